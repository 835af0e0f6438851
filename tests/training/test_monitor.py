"""Measures of an epoch against scikit-learn and against cases with a known answer."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import balanced_accuracy_score, r2_score

from privjax.training import fit, prepare
from privjax.training.monitor import effective_rank, live_units, measured_rows, ridge_probe

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_effective_rank_counts_equal_directions(scale):
    basis = np.linalg.qr(RNG.normal(size=(50, 50)))[0]
    for rank in (1, 3, 10):
        z = scale * np.repeat(np.eye(rank), 200, 0) @ basis[:rank]
        z = np.concatenate([z, -z])
        np.testing.assert_allclose(effective_rank(jnp.asarray(z, jnp.float32)), rank, rtol=1e-3)


def test_effective_rank_is_that_of_the_eigenvalues_wide_or_tall():
    for shape in ((30, 200), (200, 30)):
        z = RNG.normal(size=shape) * np.geomspace(1, 0.01, shape[1])
        values = np.linalg.eigvalsh(np.cov(z.T))
        expected = values.sum() ** 2 / (values**2).sum()
        np.testing.assert_allclose(effective_rank(jnp.asarray(z, jnp.float32)), expected, rtol=1e-3)


def test_a_constant_z_has_no_rank_and_no_live_units():
    z = jnp.full((20, 5), 3.3)
    assert float(effective_rank(z)) == 0.0
    assert int(live_units(z)) == 0


def test_live_units_vary():
    z = np.zeros((20, 5), np.float32)
    z[3, 1] = 0.5
    z[:, 2] = np.arange(20)
    z[:, 3] = 8.0
    assert int(live_units(jnp.asarray(z))) == 2


@pytest.mark.parametrize("width", [8, 300])
def test_ridge_probe_equals_scikit_learns_ridge(width):
    n, m = 240, 120
    s = RNG.integers(0, 4, n)
    z = RNG.normal(size=(n, width)) + 1.5 * np.eye(4)[s] @ RNG.normal(size=(4, width)) * 0.5
    p = np.eye(4)[s]
    got = ridge_probe(*(jnp.asarray(a, jnp.float32) for a in (z[:m], p[:m], z[m:], p[m:])), discrete=True)
    centred = z[:m] - z[:m].mean(0)
    model = Ridge(alpha=1e-3 * m * np.mean(centred**2)).fit(z[:m], p[:m])
    expected = balanced_accuracy_score(s[m:], model.predict(z[m:]).argmax(1))
    assert abs(float(got) - expected) < 0.02
    assert expected > 0.4


def test_ridge_probe_of_a_real_variable_is_r2():
    z = RNG.normal(size=(300, 5))
    p = z[:, :1] + 0.3 * RNG.normal(size=(300, 1))
    got = ridge_probe(
        *(jnp.asarray(a, jnp.float32) for a in (z[:200], p[:200], z[200:], p[200:])),
        discrete=False,
    )
    model = Ridge(alpha=0.2).fit(z[:200], p[:200])
    np.testing.assert_allclose(got, r2_score(p[200:], model.predict(z[200:])), atol=1e-3)


def test_ridge_probe_of_a_constant_z_is_at_chance():
    s = np.arange(100) % 5
    p = jnp.asarray(np.eye(5)[s], jnp.float32)
    assert float(ridge_probe(jnp.zeros((100, 3)), p, jnp.zeros((100, 3)), p, discrete=True)) == (
        pytest.approx(0.2)
    )


def test_rows_of_weight_zero_are_not_measured():
    s = np.arange(200) % 4
    z = RNG.normal(size=(200, 5)) + 2.0 * np.eye(4, 5)[s]
    p = np.eye(4)[s]
    odd, weights = z.copy(), (np.arange(200) % 2 == 0).astype(np.float32)
    odd[1::2] += 100 * RNG.normal(size=(100, 5))
    arrays = lambda *values: [jnp.asarray(a, jnp.float32) for a in values]  # noqa: E731
    halves = lambda z: arrays(z[:100], p[:100], z[100:], p[100:])  # noqa: E731
    w = {"weights": jnp.asarray(weights[:100]), "test_weights": jnp.asarray(weights[100:])}
    assert ridge_probe(*halves(odd), discrete=True, **w) == ridge_probe(*halves(z), discrete=True, **w)
    assert ridge_probe(*halves(odd), discrete=True) != ridge_probe(*halves(z), discrete=True)
    (z, odd, w) = arrays(z, odd, weights)
    np.testing.assert_allclose(effective_rank(odd, w), effective_rank(z, w), rtol=1e-4)
    np.testing.assert_allclose(effective_rank(z, w), effective_rank(z[::2]), rtol=1e-4)
    dead = z.at[:, 2].set(jnp.where(w > 0, 1.0, 7.0))
    assert (int(live_units(dead, w)), int(live_units(dead))) == (4, 5)


@pytest.mark.slow
def test_measures_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    s, y = np.sort(rng.integers(0, 4, 400)), rng.integers(0, 2, 400)
    x = np.concatenate([3 * np.eye(4)[s], 3 * np.eye(2)[y], rng.normal(size=(400, 2))], 1)
    result = fit(x, y, s, privacy_weight=0.0, num_epochs=5, batch_size=100)
    assert (
        result.history.measures.probe[-1] > 0.5
    )  # fitted on the first half, the probe would meet unseen classes
    assert not result.collapsed
    by_y = fit(x[np.argsort(y)], np.sort(y), s, privacy_weight=0.0, num_epochs=5, batch_size=100)
    assert by_y.baseline < 0.6
    assert not by_y.collapsed
    one_hot = np.eye(2)[y]
    assert result.score(x, one_hot) == result.score(x, y) == result.score(x, y == 1)
    with pytest.raises(ValueError, match="y must be labels"):
        result.score(x, y[:, None] + 0.5)


@pytest.mark.parametrize(("rows", "looked_at"), [(90, 90), (1931, 482), (20_000, 2000)])
def test_without_validation_rows_a_part_of_the_training_rows_is_measured(rows, looked_at):
    labels = np.arange(rows) % 3
    x = RNG.normal(size=(rows, 2)).astype(np.float32)
    found = np.asarray(measured_rows(prepare(x, labels, labels)[0]))
    assert len(np.unique(found)) == looked_at
    assert found[-1] >= rows - 1 - rows // looked_at  # from end to end: data are often sorted
    held_out = np.arange(5, 15)
    split = prepare(x, labels, labels)[0]._replace(validation_rows=held_out)
    np.testing.assert_array_equal(measured_rows(split), held_out)
