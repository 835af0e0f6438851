"""Random Fourier features: the loss of given features, and convergence to the loss of the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax
from privjax.losses.rff import sin_cos

TARGETS = {
    "gaussian": (privjax.gaussian(1.5), oracles.gaussian(1.5)),
    "mixture": (privjax.gaussian_mixture(), oracles.gaussian_mixture()),
    "weighted": (
        privjax.mixture(privjax.gaussian(1.0), privjax.gaussian(3.0), weights=[0.25, 0.75]),
        oracles.mixture([oracles.gaussian(1.0), oracles.gaussian(3.0)], [0.25, 0.75]),
    ),
}
every_kernel = pytest.mark.parametrize(("kernel", "pair"), TARGETS.values(), ids=TARGETS.keys())


def problem(seed=0, n=18, d=3, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % classes)
    return (rng.normal(size=(n, d)) + 0.7 * labels[:, None]).astype(np.float32), labels.astype(np.int32)


def draw(kernel, count, seed=0, d=3):
    return privjax.random_fourier_features(jax.random.key(seed), d, num_features=count, kernel=kernel)


def test_the_loss_of_given_features():
    z, labels = problem()
    features = draw(privjax.gaussian(), 50)
    want = oracles.rff_mmd(z, labels, 3, *features)
    value = privjax.rff_mmd_loss(z, labels, features=features)
    np.testing.assert_allclose(value, want, rtol=1e-5)
    phases = np.asarray(features.phases) + 0.1  # the comparison notices other phases
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            value, oracles.rff_mmd(z, labels, 3, features.frequencies, phases), rtol=1e-4
        )


@every_kernel
def test_inner_products_approach_the_kernel(kernel, pair):
    z, _ = problem()
    want = oracles.gram(z, pair).astype(float)
    for count in (100, 10_000):
        phi = np.asarray(draw(kernel, count)(jnp.asarray(z)))
        assert phi.shape == (len(z), count)
        # The mean of m terms of variance at most 1: five standard errors.
        assert np.abs(phi @ phi.T - want).max() < 5 / count**0.5


@pytest.mark.slow
@every_kernel
def test_loss_converges_to_the_exact_one(kernel, pair):
    z, labels = problem()
    exact = oracles.mmd(oracles.gram(z, pair), labels, 3)

    def error(count):
        draws = [privjax.rff_mmd_loss(z, labels, features=draw(kernel, count, seed)) for seed in range(6)]
        return np.sqrt(np.mean((np.array(draws) - exact) ** 2))

    assert error(16_000) < 0.02 * exact
    assert error(16_000) < 0.35 * error(250)  # 1/8 in expectation


def test_features_of_another_kernel_do_not_converge():
    z, labels = problem()
    exact = oracles.mmd(oracles.gram(z, oracles.gaussian_mixture()), labels, 3)
    value = privjax.rff_mmd_loss(z, labels, features=draw(privjax.gaussian(1.0), 16_000))
    assert abs(value - exact) > 0.1 * exact


def test_defaults_are_those_of_the_paper():
    features = privjax.random_fourier_features(jax.random.key(0), 5)
    assert features.frequencies.shape == (5, 1000)
    assert features.phases.shape == (1000,)
    spread = np.asarray(features.frequencies).std()
    np.testing.assert_allclose(spread, 1.0, rtol=0.05)


def test_features_are_shared_out_by_the_weights_of_a_mixture():
    features = draw(privjax.gaussian_mixture((1e-3, 1e3)), 11, d=200)
    wide = np.asarray(features.frequencies).std(0) > 1
    assert wide.sum() in (5, 6)
    features = draw(
        privjax.mixture(privjax.gaussian(1e-3), privjax.gaussian(1e3), weights=[0.2, 0.8]), 50, d=200
    )
    assert (np.asarray(features.frequencies).std(0) > 1).sum() == 10


def test_same_key_same_features():
    a, b, c = (draw(privjax.gaussian(), 20, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.frequencies, b.frequencies)
    assert np.abs(np.asarray(a.frequencies) - np.asarray(c.frequencies)).max() > 0.1


def test_features_get_no_gradient():
    z, labels = problem()
    features = draw(privjax.gaussian(), 20)
    slope = jax.grad(lambda f: privjax.rff_mmd_loss(z, labels, features=f, num_classes=3))(features)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize("size", [1e-6, 1.0, 10.0, 1e3, 1e5, 1e6])
def test_sine_and_cosine_are_those_of_float64(size):
    x = np.random.default_rng(0).uniform(-size, size, 20_000).astype(np.float32)
    x[:5] = 0.0, np.pi / 2, -np.pi / 2, np.pi, 2 * np.pi
    sin, cos = jax.jit(sin_cos)(x)
    exact = x.astype(np.float64)
    # An ulp of 1 up to 1e5, then of x, whose rounding is as large; small angles keep all digits.
    ulp = np.finfo(np.float32).eps * (1.0 if size <= 1e5 else size)
    np.testing.assert_allclose(sin, np.sin(exact), rtol=0, atol=2 * ulp)
    np.testing.assert_allclose(cos, np.cos(exact), rtol=0, atol=2 * ulp)
    np.testing.assert_allclose(sin[np.abs(x) < 1], np.sin(exact)[np.abs(x) < 1], rtol=5e-7)
    slope = jax.vmap(jax.grad(lambda x: sin_cos(x)[0] + 2 * sin_cos(x)[1]))(x)
    np.testing.assert_allclose(slope, np.cos(exact) - 2 * np.sin(exact), rtol=0, atol=4 * ulp)


def test_sine_and_cosine_of_huge_and_nan_angles():
    sin, cos = sin_cos(jnp.asarray([1e8, 1e20, -3e38], jnp.float32))
    np.testing.assert_allclose(np.square(sin) + np.square(cos), 1.0, rtol=1e-6)
    assert np.isnan(sin_cos(jnp.asarray([np.nan, np.inf], jnp.float32))).all()


@pytest.mark.parametrize("scale", [1e-6, 1e-3])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_close_rows_keep_their_digits(scale, shift):
    z, labels = problem()
    z = (scale * z + shift).astype(np.float32)
    features = draw(privjax.gaussian_mixture(), 60)
    want = oracles.rff_mmd(z, labels, 3, *features)
    np.testing.assert_allclose(privjax.rff_mmd_loss(z, labels, features=features), want, rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: draw(privjax.laplacian(), 10), "kernel"),
        (lambda: draw(privjax.median_gaussian(), 10), "kernel"),
        (lambda: draw(privjax.mixture(privjax.gaussian(), weights=[2.0]), 10), "kernel"),
        (lambda: draw(privjax.gaussian(), 0), "num_features"),
        (lambda: draw(privjax.gaussian(), 10, d=0), "dim"),
        (lambda: privjax.rff_mmd_loss(*problem(), features=None), "features"),
        (lambda: privjax.rff_mmd_loss(*problem(), features=draw(privjax.gaussian(), 10, d=4)), "features"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises((TypeError, ValueError), match=name):
        call()


def test_a_class_of_nearly_all_rows():
    rng = np.random.default_rng(5)
    z = rng.normal(size=(20_000, 3)).astype(np.float32)
    labels = np.zeros(len(z), np.int32)
    labels[:3] = [1, 2, 2]
    features = draw(privjax.gaussian_mixture(), 40)
    phi = oracles.fourier_features(z, *features)
    want = sum(
        np.mean(labels == c) * np.linalg.norm(phi[labels == c].mean(0) - phi[labels != c].mean(0))
        for c in range(3)
    )
    np.testing.assert_allclose(privjax.rff_mmd_loss(z, labels, features=features), want, rtol=1e-5)


@pytest.mark.slow
def test_memory_is_linear_in_the_classes():
    z, labels = problem()
    features = draw(privjax.gaussian(), 4)
    lowered = jax.jit(lambda z: privjax.rff_mmd_loss(z, labels, features=features, num_classes=20_000)).lower(
        z
    )
    used = lowered.compile().memory_analysis().temp_size_in_bytes
    assert used < 50e6 < 4 * 20_000**2
