"""Discriminant information and the orthonormality penalty."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from sklearn.linear_model import Ridge

import privjax


def problem(n=30, d=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % classes)
    return (rng.normal(size=(n, d)) + 0.4 * labels[:, None]).astype(np.float32), labels.astype(np.int32)


@pytest.mark.parametrize("rho", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("d", [1, 4, 60])
def test_the_formula(rho, d):
    x, labels = problem(d=d)
    y = oracles.one_hot(labels, 3)
    value = privjax.discriminant_information(x, labels, rho=rho)
    want = oracles.discriminant_information(x, y, rho)
    np.testing.assert_allclose(value, want, rtol=1e-3)
    np.testing.assert_allclose(oracles.discriminant_information_by_svd(x, y, rho), want, rtol=1e-6)
    raw = x.astype(float)  # the comparison notices rows that are not centred
    uncentred = np.trace(np.linalg.solve(raw.T @ raw + rho * np.eye(d), raw.T @ y @ y.T @ raw))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(value, uncentred, rtol=1e-3)


@pytest.mark.parametrize("rho", [0.1, 10.0])
def test_least_loss_of_ridge_regression(rho):
    """Eq. pmrlse_di: |C Y|^2 - DI = min |X w + b - Y|^2 + rho |w|^2."""
    x, _ = problem()
    y = np.random.default_rng(1).normal(size=(30, 2)) + x[:, :2]
    model = Ridge(alpha=rho).fit(x, y)
    least = ((model.predict(x) - y) ** 2).sum() + rho * (model.coef_**2).sum()
    value = privjax.discriminant_information(x, y.astype(np.float32), rho=rho)
    np.testing.assert_allclose(((y - y.mean(0)) ** 2).sum() - value, least, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("d", [4, 60])
def test_gradient(d):
    x, labels = problem(n=12, d=d)
    y = oracles.one_hot(labels, 3)
    weights = np.array([1, 1, 2, 0, 1, 0.5, 1, 1, 1.5, 1, 1, 1])

    def oracle(x):
        rows = oracles.repeated(weights)
        return 0.25 * oracles.discriminant_information(x[rows], y[rows], 0.5 / 0.25)

    with jax.enable_x64(True):
        got = jax.grad(
            lambda x: privjax.discriminant_information(x, labels, rho=0.5, num_classes=3, weights=weights)
        )(jnp.asarray(x, float))
    want = oracles.central_differences(oracle, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("shift", [100.0, 1e4])
def test_a_shift_changes_nothing(shift):
    x, labels = problem()
    moved = (x + np.float32(shift)).astype(np.float32)
    want = oracles.discriminant_information(moved, oracles.one_hot(labels, 3), 0.1)
    np.testing.assert_allclose(privjax.discriminant_information(moved, labels, rho=0.1), want, rtol=1e-3)


@pytest.mark.parametrize("angle", [1e-1, 1e-2, 1e-3])
def test_nearly_collinear_columns(angle):
    """The class depends on a direction in which the rows vary by a thousandth."""
    a, b = np.random.default_rng(0).normal(size=(2, 50))
    x = np.stack([a, a + angle * b], 1).astype(np.float32)
    y = (x[:, 1] > x[:, 0]).astype(np.int32)
    want = oracles.discriminant_information_by_svd(x, oracles.one_hot(y, 2), 1e-6)
    np.testing.assert_allclose(privjax.discriminant_information(x, y, rho=1e-6), want, rtol=5e-3)


def test_independent_of_rotation():
    x, labels = problem()
    q = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0].astype(np.float32)
    a, b = (privjax.discriminant_information(z, labels, rho=0.1) for z in (x, x @ q))
    np.testing.assert_allclose(a, b, rtol=1e-4)


class TestOrthonormality:
    def test_against_loops(self):
        w = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
        value = privjax.orthonormality_penalty(w)
        np.testing.assert_allclose(value, oracles.orthonormality(w), rtol=1e-5)
        with pytest.raises(AssertionError):  # the comparison notices a norm that is not squared
            np.testing.assert_allclose(value**0.5, oracles.orthonormality(w), rtol=1e-3)
        with pytest.raises(AssertionError):  # and W W' in place of W'W
            np.testing.assert_allclose(value, oracles.orthonormality(w.T), rtol=1e-3)

    def test_zero_exactly_for_orthonormal_columns(self):
        q = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 5)))[0].astype(np.float32)
        assert privjax.orthonormality_penalty(q) < 1e-11
        assert privjax.orthonormality_penalty(np.eye(4, dtype=np.float32)) == 0
        np.testing.assert_allclose(privjax.orthonormality_penalty(2 * q), 5 * 9, rtol=1e-5)  # (4 - 1)^2 each

    def test_gradient(self):
        w = np.random.default_rng(0).normal(size=(5, 3))
        with jax.enable_x64(True):
            got = jax.grad(privjax.orthonormality_penalty)(jnp.asarray(w))
        want = oracles.central_differences(oracles.orthonormality, w)
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(got, 4 * w @ (w.T @ w - np.eye(3)), rtol=1e-10)

    @pytest.mark.parametrize("scale", [0.0, 1e-6, 1e6])
    def test_extremes_are_finite(self, scale):
        w = scale * np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
        value, slope = jax.value_and_grad(privjax.orthonormality_penalty)(jnp.asarray(w))
        np.testing.assert_allclose(value, oracles.orthonormality(w), rtol=1e-5)
        assert np.isfinite(slope).all()

    @pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
    def test_half_precision(self, dtype):
        w = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)), dtype)
        value, slope = jax.value_and_grad(privjax.orthonormality_penalty)(w)
        assert value.dtype == jnp.float32
        assert slope.dtype == dtype
        np.testing.assert_allclose(value, oracles.orthonormality(w.astype(jnp.float32)), rtol=1e-5)

    def test_nan_stays_and_transformations_serve(self):
        w = np.ones((2, 4, 3), np.float32)
        values = jax.jit(jax.vmap(privjax.orthonormality_penalty))(w)
        np.testing.assert_allclose(values, oracles.orthonormality(w[0]), rtol=1e-6)
        w[0, 0, 0] = np.nan
        assert np.isnan(privjax.orthonormality_penalty(w[0]))

    @pytest.mark.parametrize(
        ("w", "error"),
        [(np.ones(3), ValueError), (np.ones((2, 3, 4)), ValueError), (np.ones((2, 2), int), TypeError)],
    )
    def test_bad_arguments_are_named(self, w, error):
        with pytest.raises(error, match="w must"):
            privjax.orthonormality_penalty(w)
