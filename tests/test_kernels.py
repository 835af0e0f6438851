"""Kernels against their formulas, one pair of rows at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax
from privjax import kernels

LADDER = (1.0, 2.0, 4.0, 8.0, 16.0)

PAIRS = {
    "gaussian": (privjax.gaussian(1.5), oracles.gaussian(1.5)),
    "gaussian_array": (privjax.gaussian(jnp.float32(1.5)), oracles.gaussian(1.5)),
    "ladder_of_numpy": (privjax.gaussian_mixture(np.float32([4, 2, 1])), oracles.gaussian_mixture((4, 2, 1))),
    "ladder": (privjax.gaussian_mixture(), oracles.gaussian_mixture(LADDER)),
    "ladder_unsorted": (privjax.gaussian_mixture((4, 1, 0.5)), oracles.gaussian_mixture((4, 1, 0.5))),
    "ladder_repeated": (privjax.gaussian_mixture((2, 2, 1)), oracles.gaussian_mixture((2, 2, 1))),
    "no_ladder": (privjax.gaussian_mixture((1, 3, 5)), oracles.gaussian_mixture((1, 3, 5))),
    "far_ladder": (privjax.gaussian_mixture((1, 32)), oracles.gaussian_mixture((1, 32))),
    "laplacian": (privjax.laplacian(2.5), oracles.laplacian(2.5)),
    "polynomial": (privjax.polynomial(4, gamma=0.3), oracles.polynomial(4, 0.3)),
    "linear": (privjax.polynomial(1), oracles.polynomial(1)),
    "mixture": (
        privjax.mixture(
            privjax.gaussian_mixture((1, 2)),
            privjax.laplacian(),
            privjax.polynomial(2),
            weights=[0.5, 2, 0.1],
        ),
        oracles.mixture(
            [oracles.gaussian_mixture((1, 2)), oracles.laplacian(1), oracles.polynomial(2)], [0.5, 2, 0.1]
        ),
    ),
}
every_kernel = pytest.mark.parametrize(("kernel", "pair"), PAIRS.values(), ids=PAIRS.keys())


def rows(seed, n=7, d=3, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=(n, d))).astype(np.float32)


@every_kernel
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_matrix_is_the_formula(kernel, pair, scale):
    a, b = rows(0, scale=scale), rows(1, n=5, scale=scale)
    want = np.array([[pair(x, y) for y in b.astype(oracles.WIDE)] for x in a.astype(oracles.WIDE)], float)
    np.testing.assert_allclose(kernel(a, b), want, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(kernel(a), oracles.gram(a, pair).astype(float), rtol=2e-5, atol=2e-6)


@every_kernel
def test_the_comparison_notices_another_formula(kernel, pair):
    a = rows(0)
    off = oracles.gram(1.001 * a.astype(float), pair).astype(float)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(kernel(a), off, rtol=2e-5, atol=2e-6)


@every_kernel
def test_float64(kernel, pair):
    with jax.enable_x64(True):
        a = rows(0).astype(np.float64)
        np.testing.assert_allclose(kernel(a), oracles.gram(a, pair).astype(float), rtol=1e-12, atol=1e-14)


class TestMedianBandwidth:
    @pytest.mark.parametrize("n", [2, 3, 8, 9])
    def test_is_the_median_of_pairs(self, n):
        z = rows(n, n=n)
        np.testing.assert_allclose(privjax.median_bandwidth(z), oracles.median_distance(z), rtol=1e-6)

    def test_padding_changes_nothing(self):
        for seed in range(10):
            z, rng = rows(seed, n=12), np.random.default_rng(seed)
            weights = (rng.random(12) < 0.6).astype(np.float32)
            want = oracles.median_distance(z, weights > 0)
            np.testing.assert_allclose(privjax.median_bandwidth(z, weights=weights), want, rtol=1e-6)
            z[weights == 0] = np.nan
            np.testing.assert_allclose(privjax.median_bandwidth(z, weights=weights), want, rtol=1e-6)

    def test_collapsed_and_single_rows_get_the_floor(self):
        for z in (np.ones((6, 2), np.float32), np.ones((1, 2), np.float32)):
            np.testing.assert_allclose(privjax.median_bandwidth(z), 1e-6)
            np.testing.assert_allclose(privjax.median_bandwidth(z, floor=0.5), 0.5)
        np.testing.assert_allclose(privjax.median_bandwidth(rows(0), weights=np.zeros(7)), 1e-6)

    @pytest.mark.slow
    def test_a_subsample_is_close_to_all_rows(self):
        z = rows(0, n=2000)
        whole = privjax.median_bandwidth(z, max_rows=2000)
        np.testing.assert_allclose(privjax.median_bandwidth(z), whole, rtol=0.05)
        np.testing.assert_allclose(privjax.median_bandwidth(z, max_rows=50), whole, rtol=0.2)
        sorted_rows = z[np.argsort(z[:, 0])]  # evenly spaced rows, not the first ones
        np.testing.assert_allclose(privjax.median_bandwidth(sorted_rows), whole, rtol=0.05)

    @pytest.mark.slow
    def test_subsample_of_a_padded_batch(self):
        z, weights = rows(0, n=900), np.ones(900, np.float32)
        weights[::2] = 0
        want = privjax.median_bandwidth(z[1::2], max_rows=64)
        np.testing.assert_allclose(privjax.median_bandwidth(z, weights=weights, max_rows=64), want, rtol=1e-6)

    def test_constant_to_the_gradient(self):
        assert not np.asarray(jax.grad(lambda z: privjax.median_bandwidth(z))(rows(0))).any()

    def test_nan_stays(self):
        z = rows(0)
        z[3, 0] = np.nan
        assert np.isnan(privjax.median_bandwidth(z))

    @pytest.mark.slow
    def test_follows_the_scale_of_the_rows(self):
        """A median kernel has no units: the MMD is the same in metres and in millimetres."""
        z, p = rows(0, n=10), np.arange(10) % 2
        losses = [privjax.mmd_loss(s * z, p, kernel=privjax.median_gaussian()) for s in (0.01, 1, 1000)]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-4)


def test_kernels_cross_jit_as_arguments():
    """A bandwidth in an array is traced; a Python number is part of the program."""
    z = rows(0)
    traces = []

    @jax.jit
    def matrix(kernel, z):
        traces.append(1)
        return kernel(z)

    for sigma in (1.0, 2.0, 3.0):
        got = matrix(privjax.gaussian(jnp.float32(sigma)), z)
        np.testing.assert_allclose(got, oracles.gram(z, oracles.gaussian(sigma)).astype(float), atol=1e-6)
    assert len(traces) == 1
    matrix(privjax.gaussian(1.0), z)
    matrix(privjax.gaussian(2.0), z)
    assert len(traces) == 3
    leaves, tree = jax.tree.flatten(PAIRS["mixture"][0])
    np.testing.assert_array_equal(jax.tree.unflatten(tree, leaves)(z), PAIRS["mixture"][0](z))


@pytest.mark.slow
def test_bandwidths_can_be_swept_by_vmap():
    z, p, bandwidths = rows(0, n=8), np.arange(8) % 2, jnp.array([0.5, 1.0, 3.0])

    def loss(z, bandwidth):
        kernel = privjax.mixture(privjax.gaussian(bandwidth), privjax.laplacian(bandwidth))
        return privjax.mmd_loss(z, p, kernel=kernel, num_classes=2)

    swept = jax.vmap(jax.value_and_grad(loss), (None, 0))(z, bandwidths)
    for i, bandwidth in enumerate(bandwidths):
        for got, want in zip(swept, jax.value_and_grad(loss)(z, bandwidth), strict=True):
            np.testing.assert_allclose(got[i], want, rtol=1e-5)
    assert len({float(value) for value in swept[0]}) == 3


def test_numpy_numbers_are_numbers():
    """NumPy numbers count as numbers, not arrays: they share exponentials and compare equal."""
    for kernel in (privjax.gaussian(np.float32(2)), privjax.gaussian(np.int64(2))):
        assert kernel == privjax.gaussian(2.0)
        assert not jax.tree.leaves(kernel)
    assert privjax.polynomial(np.int64(3)) == privjax.polynomial(3)


def test_rows_of_integers_are_rows_of_reals():
    a = np.array([[0, 1], [2, 1], [0, 0]])
    kernel = privjax.mixture(privjax.gaussian(2.0), privjax.polynomial(2, gamma=0.3), weights=[0.3, 0.3])
    np.testing.assert_array_equal(kernel(a), kernel(a.astype(np.float32)))
    assert kernel(a, a.astype(np.float16)).dtype == jnp.float16


def test_bandwidths_get_no_gradient():
    z, p = rows(0, n=8), np.arange(8) % 2
    slope = jax.grad(lambda s: privjax.mmd_loss(z, p, kernel=privjax.gaussian(s), num_classes=2))(1.0)
    assert slope == 0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: privjax.gaussian_mixture(()), "bandwidths"),
        (lambda: privjax.gaussian_mixture(2.0), "bandwidths"),
        (lambda: privjax.gaussian_mixture(jnp.float32(2.0)), "bandwidths"),
        (lambda: privjax.gaussian(jnp.ones(2)), "bandwidth"),
        (lambda: privjax.gaussian(np.inf), "bandwidth"),
        (lambda: privjax.gaussian("1"), "bandwidth"),
        (lambda: privjax.gaussian(True), "bandwidth"),
        (lambda: privjax.median_gaussian(()), "multiples"),
        (lambda: privjax.median_gaussian(2.0), "multiples"),
        (lambda: privjax.median_bandwidth(np.ones(3)), "z must be a matrix"),
        (lambda: privjax.median_bandwidth(np.ones((3, 2)), weights=np.ones(2)), "weights must have shape"),
        (lambda: privjax.polynomial(0), "order"),
        (lambda: privjax.polynomial(2.5), "order"),
        (lambda: privjax.polynomial(True), "order"),
        (lambda: privjax.mixture(), "at least one kernel"),
        (lambda: privjax.mixture([privjax.gaussian()]), "kernels must be"),
        (lambda: privjax.mixture(privjax.gaussian(), weights=[1, 2]), "weights"),
        (lambda: privjax.gaussian()(np.ones((3, 2)), np.ones((3, 4))), "equal width"),
        (lambda: privjax.gaussian()(np.ones(3)), "matri"),
    ],
)
def test_bad_arguments_are_named(make, name):
    with pytest.raises((ValueError, TypeError), match=name):
        make()


def test_a_second_median_compiles_nothing():
    z = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    first = privjax.median_bandwidth(z)
    compiled = kernels._median_bandwidth._cache_size()
    assert privjax.median_bandwidth(2 * z) == pytest.approx(2 * first)
    assert kernels._median_bandwidth._cache_size() == compiled
