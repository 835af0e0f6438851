"""The centred kernel matrix and its products: right, and more exact than plain float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax
from privjax.losses import _gram

KERNELS = {
    "mixture": (privjax.gaussian_mixture((1, 2)), oracles.gaussian_mixture((1, 2))),
    "laplacian": (privjax.laplacian(1.5), oracles.laplacian(1.5)),
    "polynomial": (privjax.polynomial(3, gamma=0.2), oracles.polynomial(3, 0.2)),
    "both": (
        privjax.mixture(privjax.gaussian(1.0), privjax.polynomial(2, gamma=0.5)),
        oracles.mixture([oracles.gaussian(1.0), oracles.polynomial(2, 0.5)], [0.5, 0.5]),
    ),
}


def problem(d, n=14):
    rng = np.random.default_rng(0)
    share = rng.integers(0, 4, n).astype(float)
    return rng.normal(size=(n, d)), share / share.sum(), rng.normal(size=(n, 3))


def centred(k, share):
    c = np.eye(len(k)) - share[None, :]
    return c @ k @ c.T


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("name", KERNELS)
def test_centred_kernel_and_gradient(name, d):
    """Against the oracle's matrix, and against differences of b' K b along random directions."""
    kernel, pair = KERNELS[name]
    z, share, b = problem(d)
    form = lambda z: np.trace(b.T @ oracles.gram(z, pair).astype(float) @ b)  # noqa: E731
    with jax.enable_x64(True):
        k = jax.jit(functools.partial(_gram.centred_kernel, kernel=kernel))(z, share)[0]
        np.testing.assert_allclose(k, centred(oracles.gram(z, pair).astype(float), share), atol=1e-12)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(k, centred(oracles.gram(z, pair).astype(float), 0 * share), atol=1e-12)
        pull = jax.jit(functools.partial(_gram.quadratic_gradient, kernel=kernel))
        gradient = np.asarray(pull(z, b, 0 * b))
    for seed in range(4):
        direction = np.random.default_rng(seed).normal(size=z.shape)
        slope = oracles.central_differences(lambda t, u=direction: form(z + t[0] * u), np.zeros(1))[0]
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-7)


def test_an_entry_of_the_centred_kernel_rounds_about_once():
    """A kernel near one, whose centred entries are small: plain float32 sums round at the size of k."""
    z = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    share = np.full(300, 1 / 300, np.float32)
    kernel = privjax.gaussian_mixture()
    d2 = ((z[:, None].astype(float) - z[None]) ** 2).sum(-1)
    exact = centred(sum(np.expm1(-d2 / (2 * s * s)) for s in (1, 2, 4, 8, 16)) / 5, np.full(300, 1 / 300))
    error = lambda k: np.sqrt(np.mean((np.asarray(k, float) - exact) ** 2))  # noqa: E731
    careful = error(jax.jit(functools.partial(_gram.centred_kernel, kernel=kernel))(z, share)[0])
    k = jnp.asarray(kernel(z))
    plain = k - k.mean(0, keepdims=True) - k.mean(1, keepdims=True) + k.mean()
    assert careful < 1e-8
    assert error(plain) > 3 * careful


@pytest.mark.parametrize("n", [300, 2000])
def test_exact_product_of_terms_that_cancel(n):
    rng = np.random.default_rng(0)
    k = rng.normal(size=(50, n)).astype(np.float32)
    a = rng.normal(size=(n, 4))
    a = 1e4 * (a - np.linalg.pinv(k.astype(float)) @ (k @ a))  # k a = 0 but for rounding
    high = a.astype(np.float32)
    low = (a - high).astype(np.float32)
    want = k.astype(float) @ a
    error = np.abs(np.asarray(jax.jit(_gram.exact_product)(k, high, low)) - want).max()
    plain = np.abs(np.asarray(jnp.matmul(k, high, precision="highest")) - want).max()
    assert plain > 30 * error
    unsplit = np.abs(np.asarray(jax.jit(_gram.exact_product)(k, high, 0 * low)) - want).max()
    assert unsplit > 2 * error  # the digits kept apart count
