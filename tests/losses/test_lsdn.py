"""The least squares discriminator losses: sums of squares, by loops and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax

Z = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 0, 1])
A = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)


def linear(z):
    return z @ jnp.asarray(A, z.dtype)


def test_by_hand():
    """Two rows, two classes, predictions (1, 0) and (0.5, 0.5); the mean of p is (0.5, 0.5)."""
    z = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    identity = lambda z: z  # noqa: E731
    privacy = privjax.lsdn_privacy_loss(z, np.array([0, 1]), identity)
    np.testing.assert_allclose(privacy, (0.5**2 + 0.5**2 + 0 + 0) / 2)
    discriminator = privjax.lsdn_discriminator_loss(z, np.array([0, 1]), identity)
    np.testing.assert_allclose(discriminator, (0 + 0 + 0.5**2 + 0.5**2) / 2)


@pytest.mark.parametrize("kind", ["labels", "one_hot", "continuous"])
@pytest.mark.parametrize("weighted", [False, True])
def test_against_loops(kind, weighted):
    p = oracles.one_hot(LABELS, 3)
    given = LABELS
    if kind != "labels":
        p = given = (
            p if kind == "one_hot" else np.random.default_rng(2).normal(size=(9, 3)).astype(np.float32)
        )
    weights = np.array([1, 0, 2, 0.5, 1, 1, 3, 0, 1], np.float32) if weighted else None
    for function, privacy in ((privjax.lsdn_privacy_loss, True), (privjax.lsdn_discriminator_loss, False)):
        value = function(Z, given, linear, weights=weights)
        scores = Z.astype(float) @ A
        settings = {"weights": weights, "classes": kind != "continuous"}
        np.testing.assert_allclose(value, oracles.lsdn(scores, p, privacy=privacy, **settings), rtol=1e-5)
        swapped = oracles.lsdn(scores, p, privacy=not privacy, **settings)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(value, swapped, rtol=1e-3)


def test_privacy_loss_is_zero_if_and_only_if_the_critic_predicts_the_mean():
    mean = oracles.one_hot(LABELS, 3).mean(0).astype(np.float32)
    constant = lambda z: jnp.zeros_like(z[:, :1]) + mean[None, :]  # noqa: E731
    np.testing.assert_allclose(privjax.lsdn_privacy_loss(Z, LABELS, constant), 0, atol=1e-13)
    for row in range(9):
        off = lambda z, row=row: constant(z).at[row, 1].add(1e-2)  # noqa: E731
        np.testing.assert_allclose(privjax.lsdn_privacy_loss(Z, LABELS, off), 1e-4 / 9, rtol=1e-3)
    # Another constant is not the mean; the mean of the labels that count is.
    assert privjax.lsdn_privacy_loss(Z, LABELS, lambda z: constant(z) + 0.1) > 1e-2
    weights = (LABELS != 2).astype(np.float32)
    assert privjax.lsdn_privacy_loss(Z, LABELS, constant, weights=weights) > 1e-3


def test_perfect_prediction_has_no_discriminator_loss():
    p = jnp.asarray(oracles.one_hot(LABELS, 3), jnp.float32)
    assert privjax.lsdn_discriminator_loss(Z, LABELS, lambda z: p) == 0
    # The best a critic can do is the privacy loss's worst: the variance of the labels.
    variance = ((p - p.mean(0, keepdims=True)) ** 2).sum(1).mean()
    np.testing.assert_allclose(privjax.lsdn_privacy_loss(Z, LABELS, lambda z: p), variance, rtol=1e-6)


def test_least_squares_fit_splits_the_variance():
    """For the best affine critic: variance of p = what is left + what it explains (Pythagoras)."""
    p = oracles.one_hot(LABELS, 3)
    x = np.concatenate([Z, np.ones((9, 1))], 1)
    fit = np.linalg.lstsq(x, p, rcond=None)[0].astype(np.float32)
    best = lambda z: z @ fit[:3] + fit[None, 3]  # noqa: E731
    left = privjax.lsdn_discriminator_loss(Z, LABELS, best)
    explained = privjax.lsdn_privacy_loss(Z, LABELS, best)
    np.testing.assert_allclose(left + explained, ((p - p.mean(0, keepdims=True)) ** 2).sum() / 9, rtol=1e-5)
    np.testing.assert_allclose(
        9 * explained, privjax.discriminant_information(Z, LABELS, rho=1e-6), rtol=1e-3
    )


@pytest.mark.parametrize("name", ["lsdn_privacy_loss", "lsdn_discriminator_loss"])
def test_gradient_in_z_and_in_the_critic(name):
    function, privacy = getattr(privjax, name), name == "lsdn_privacy_loss"
    p = oracles.one_hot(LABELS, 3)
    with jax.enable_x64(True):
        by_z, by_a = jax.grad(lambda z, a: function(z, LABELS, lambda z: z @ a), (0, 1))(
            jnp.asarray(Z, float), jnp.asarray(A, float)
        )
    loss = lambda z, a: oracles.lsdn(z @ a, p, privacy=privacy)  # noqa: E731
    z, a = Z.astype(float), A.astype(float)
    np.testing.assert_allclose(
        by_z, oracles.central_differences(lambda z: loss(z, a), z), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        by_a, oracles.central_differences(lambda a: loss(z, a), a), rtol=1e-6, atol=1e-8
    )


def test_an_absent_class_is_left_out_and_an_empty_real_column_is_not():
    scores = Z.astype(float) @ A
    two = (LABELS % 2).astype(np.int32)
    for function, privacy in ((privjax.lsdn_privacy_loss, True), (privjax.lsdn_discriminator_loss, False)):
        fewer = oracles.lsdn(scores[:, :2], oracles.one_hot(two, 2), privacy=privacy)
        np.testing.assert_allclose(function(Z, two, linear), fewer, rtol=1e-5)
        clamped = oracles.lsdn(scores, oracles.one_hot(two, 3), privacy=privacy, classes=False)
        assert clamped > 1.05 * fewer
        real = np.concatenate([0.5 * oracles.one_hot(two, 2), np.zeros((9, 1))], 1).astype(np.float32)
        want = oracles.lsdn(scores, real, privacy=privacy, classes=False)
        np.testing.assert_allclose(function(Z, real, linear), want, rtol=1e-5)


def test_outputs_and_columns_must_agree():
    for function in (privjax.lsdn_privacy_loss, privjax.lsdn_discriminator_loss):
        with pytest.raises(ValueError, match="critic has 3 outputs but p has 2 columns"):
            function(Z, np.ones((9, 2), np.float32), linear)
        with pytest.raises(ValueError, match="p must hold labels from 0 to 2"):
            function(Z, LABELS + 1, linear)
        with pytest.raises(TypeError, match=r"integer labels.*p\[:, None\]"):
            function(Z, np.linspace(0, 1, 9), linear)
