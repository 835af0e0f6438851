"""The permutation test: uniform under the null, small under dependence, the same with preparation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import privjax
from privjax import independence

pytestmark = pytest.mark.slow


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def labels(seed, n, num_classes):
    return jnp.asarray(np.random.default_rng(seed).integers(0, num_classes, n))


@pytest.mark.parametrize("statistic", [privjax.mmd_loss, privjax.kdi_loss])
def test_p_values_are_uniform_when_z_is_independent_of_p(statistic):
    z, s = normal(0, 150, 40, 3), np.random.default_rng(1).integers(0, 3, (150, 40))
    s[:, :3] = range(3)
    test = jax.jit(
        lambda z, s, key: (
            privjax.privacy_confidence(
                z, s, key=key, num_permutations=199, statistic=statistic, num_classes=3
            ).p_value
        )
    )
    keys = jax.random.split(jax.random.key(0), 150)
    p = np.array([test(z[i], jnp.asarray(s[i]), keys[i]) for i in range(150)])
    # Permutation p-values live on a grid of 1/200: spread them over their cell before the KS test.
    p -= np.random.default_rng(2).uniform(0, 1 / 200, 150)
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert stats.kstest(p**2, "uniform").pvalue < 1e-4  # the check notices p-values that are not uniform


def test_p_value_is_small_under_dependence_and_never_zero():
    s = labels(0, 120, 4)
    z = normal(1, 120, 5) + 1.0 * jax.nn.one_hot(s, 5)
    result = privjax.privacy_confidence(z, s, key=jax.random.key(0), num_permutations=500)
    assert result.p_value == pytest.approx(1 / 501)
    assert result.permuted.shape == (500,)
    independent = privjax.privacy_confidence(normal(1, 120, 5), s, key=jax.random.key(0))
    assert independent.p_value > 0.02


def test_a_kernel_sees_a_circle_and_the_mean_does_not():
    # The class decides the radius: every linear moment agrees.
    s = labels(2, 200, 2)
    direction = normal(3, 200, 2)
    direction /= jnp.linalg.norm(direction, axis=1, keepdims=True)
    z = direction * jnp.where(s == 1, 2.0, 1.0)[:, None]
    seen = privjax.privacy_confidence(z, s, key=jax.random.key(1), num_permutations=300)
    assert seen.p_value == pytest.approx(1 / 301)
    linear = functools.partial(privjax.discriminant_information, rho=1.0)
    missed = privjax.privacy_confidence(z, s, key=jax.random.key(1), num_permutations=300, statistic=linear)
    assert missed.p_value > 0.05


def test_continuous_p_uses_kdi():
    age = normal(4, 100, 1)
    z = jnp.concatenate([jnp.tanh(age), normal(5, 100, 2)], 1)
    key = jax.random.key(2)
    assert privjax.privacy_confidence(z, age, key=key, num_permutations=300).p_value < 0.01
    # The square says nothing about the mean of a symmetric p: p^2 has to be a column.
    z = jnp.concatenate([age**2, normal(5, 100, 2)], 1)
    both = jnp.concatenate([age, 3 * age**2], 1)
    assert privjax.privacy_confidence(z, age, key=key, num_permutations=300).p_value > 0.02
    assert privjax.privacy_confidence(z, both, key=key, num_permutations=300).p_value < 0.01
    assert privjax.privacy_confidence(normal(6, 100, 3), age, key=key, num_permutations=300).p_value > 0.02


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (privjax.mmd_loss, {}),
        (privjax.mmd_loss, {"kernel": privjax.polynomial(4, gamma=0.5)}),
        (privjax.mmd_loss, {"kernel": privjax.median_gaussian()}),
        (privjax.kdi_loss, {}),
        (privjax.kdi_loss, {"rho": 0.1, "kernel": privjax.laplacian(2.0)}),
    ],
)
def test_the_prepared_statistic_is_the_loss(loss, options):
    z, s = normal(7, 60, 4), labels(8, 60, 5)
    statistic = functools.partial(loss, **options)
    fast = privjax.privacy_confidence(z, s, key=jax.random.key(3), num_permutations=20, statistic=statistic)
    plain = privjax.privacy_confidence(
        z, s, key=jax.random.key(3), num_permutations=20, statistic=lambda z, p: statistic(z, p)
    )
    np.testing.assert_allclose(fast.statistic, loss(z, s, **options), rtol=2e-4)
    np.testing.assert_allclose(fast.permuted, plain.permuted, rtol=2e-4)
    assert fast.p_value == plain.p_value


def test_rff_and_chunks(monkeypatch):
    z, s = normal(9, 50, 3), labels(10, 50, 2)
    features = privjax.random_fourier_features(jax.random.key(0), 3, num_features=64)
    statistic = functools.partial(privjax.rff_mmd_loss, features=features)
    run = functools.partial(
        privjax.privacy_confidence, z, s, key=jax.random.key(4), num_permutations=37, statistic=statistic
    )
    whole = run()
    monkeypatch.setattr(independence, "CHUNK_BYTES", 1)  # one permutation at a time, nothing prepared
    np.testing.assert_allclose(run().permuted, whole.permuted, rtol=1e-5)


def test_degenerate_batches():
    key = jax.random.key(5)
    s = labels(11, 30, 3)
    constant = privjax.privacy_confidence(jnp.ones((30, 2)), s, key=key, num_permutations=50)
    assert constant.statistic == 0
    assert constant.p_value == 1
    one_class = privjax.privacy_confidence(normal(12, 30, 2), 0 * s, key=key, num_permutations=50)
    assert one_class.p_value == 1
    # Two rows have two orders, which give the same groups: no evidence for any z.
    two = privjax.privacy_confidence(normal(13, 2, 2), jnp.array([0, 1]), key=key, num_permutations=50)
    assert two.p_value == 1
    invalid = privjax.privacy_confidence(
        normal(14, 30, 2).at[3, 0].set(jnp.nan), s, key=key, num_permutations=5
    )
    assert jnp.isnan(invalid.p_value)


def test_bad_arguments_are_named():
    z, s = normal(15, 10, 2), labels(16, 10, 2)
    with pytest.raises(ValueError, match="num_permutations"):
        privjax.privacy_confidence(z, s, key=jax.random.key(0), num_permutations=0)
    with pytest.raises(TypeError, match="statistic must be a function"):
        privjax.privacy_confidence(z, s, key=jax.random.key(0), statistic="mmd")  # pyright: ignore
    for loss in (privjax.kdi_loss, privjax.discriminant_information):
        statistic = functools.partial(loss, rho=-1.0)
        with pytest.raises(ValueError, match="rho must be positive"):
            privjax.privacy_confidence(z, s, key=jax.random.key(0), statistic=statistic)
    statistic = functools.partial(privjax.mmd_loss, kernel="gaussian")
    with pytest.raises(TypeError, match="kernel must be"):
        privjax.privacy_confidence(z, s, key=jax.random.key(0), statistic=statistic)
    with pytest.raises(ValueError, match="statistic"):
        jax.jit(lambda p: privjax.privacy_confidence(z, p, key=jax.random.key(0)).p_value)(jnp.eye(10))
    with pytest.raises(ValueError, match="num_classes"):
        jax.jit(lambda p: privjax.privacy_confidence(z, p, key=jax.random.key(0)).p_value)(s)


def test_a_second_call_compiles_nothing():
    s = labels(17, 20, 2)
    options = {"key": jax.random.key(0), "num_permutations": 7}
    narrow = functools.partial(privjax.kdi_loss, rho=0.1)
    wide = functools.partial(privjax.kdi_loss, rho=0.2)
    first = privjax.privacy_confidence(normal(17, 20, 2), s, statistic=narrow, **options)
    traces = independence._test._cache_size()
    second = privjax.privacy_confidence(normal(17, 20, 2), s, statistic=wide, **options)
    assert independence._test._cache_size() == traces
    assert first.statistic > second.statistic  # the new rho has an effect


def test_rows_of_weight_zero_change_nothing():
    z, s = normal(0, 40, 2), labels(1, 40, 2)
    padded = jnp.concatenate([z, jnp.full((40, 2), jnp.nan)])
    weights = jnp.repeat(jnp.array([1.0, 0.0]), 40)
    statistic = functools.partial(privjax.mmd_loss, weights=weights)
    found = privjax.privacy_confidence(
        padded,
        jnp.concatenate([s, jnp.zeros(40, int)]),
        key=jax.random.key(0),
        num_permutations=499,
        statistic=statistic,
        num_classes=2,
    )
    alone = privjax.privacy_confidence(z, s, key=jax.random.key(0), num_permutations=499)
    np.testing.assert_allclose(found.statistic, alone.statistic, rtol=1e-5)
    # The same distribution: labels of padding, all of one class, never reach valid rows.
    assert stats.ks_2samp(found.permuted, alone.permuted).pvalue > 0.01
    assert abs(float(found.p_value - alone.p_value)) < 0.1


def test_counts_in_a_matrix_are_continuous():
    ages = np.random.default_rng(0).integers(20, 60, (50, 1))
    z = jnp.asarray(ages + np.random.default_rng(1).normal(size=(50, 1)), jnp.float32)
    for dtype in (np.int32, np.int64):
        found = privjax.privacy_confidence(z, ages.astype(dtype), key=jax.random.key(0), num_permutations=99)
        assert found.p_value == pytest.approx(0.01)
