"""A new objective needs one file: the checks, kernels and sums of the library are enough to write it."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax
from privjax.kernels import check_kernel, prepare
from privjax.losses.checks import check_batch, check_matrix
from privjax.numerics import matmul, subtract_mean
from privjax.numerics.sums import centred_gram


def hsic(z, p, *, kernel=privjax.gaussian_mixture(), num_classes=None, weights=None):  # noqa: B008
    """Compute the Hilbert-Schmidt independence criterion 1/N^2 tr(K C P P' C) with weighted rows."""
    check_kernel("kernel", kernel)
    batch = check_batch(z, weights)
    p, _ = check_matrix(p, batch, num_classes)
    rows, terms, scale = prepare(kernel, *batch)
    share = batch.weights / batch.weights.sum()
    k, _ = centred_gram(rows, share, terms)
    p = share[:, None] * subtract_mean(p, batch.weights)
    return scale**2 * (p * matmul(k, p)).sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "pair"),
    [
        (privjax.gaussian_mixture(), oracles.gaussian_mixture()),
        (privjax.polynomial(3, gamma=0.5), oracles.polynomial(3, 0.5)),
    ],
    ids=["mixture", "polynomial"],
)
def test_a_loss_in_one_file(kernel, pair):
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(10, 3)), np.arange(10) % 3
    p = oracles.one_hot(labels, 3)
    p = p - p.mean(0)

    def want(z):
        return float(np.trace(oracles.gram(z, pair).astype(float) @ p @ p.T)) / 100

    loss = jax.jit(jax.value_and_grad(lambda z: hsic(z, labels, kernel=kernel, num_classes=3)))
    with jax.enable_x64(True):
        value, gradient = loss(z)
    np.testing.assert_allclose(value, want(z), rtol=1e-9)
    np.testing.assert_allclose(gradient, oracles.central_differences(want, z), rtol=1e-5, atol=1e-8)
    # Padding changes nothing, in float32 too; wrong input is named.
    padded = jnp.asarray(np.concatenate([z, np.full((2, 3), np.nan)]), jnp.float32)
    found = hsic(padded, np.append(labels, [0, 9]), kernel=kernel, num_classes=3, weights=np.arange(12) < 10)
    np.testing.assert_allclose(found, value, rtol=1e-5)
    with pytest.raises(ValueError, match="p has 9 rows but z has 10"):
        hsic(z, labels[1:])
