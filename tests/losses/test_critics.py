"""Losses of critics: Wasserstein with gradients in closed form, least squares by loops."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax

N, D, L = 11, 3, 4


# ---- Wasserstein ------------------------------------------------------------------------------------


def problem(seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(N) % L).astype(np.int32)
    params = {"tanh": rng.normal(size=(D, L)), "linear": rng.normal(size=(D, L)), "bias": rng.normal(size=L)}
    return rng.normal(size=(N, D)), labels, params


def critic_of(params):
    def critic(z):
        return (
            jnp.tanh(z) @ jnp.asarray(params["tanh"], z.dtype)
            + z @ jnp.asarray(params["linear"], z.dtype)
            + jnp.asarray(params["bias"], z.dtype)[None, :]
        )

    return critic


def test_linear_critic_by_hand():
    """Critic z A: the contrast is a difference of class means, the penalty depends on |A_l| alone."""
    z = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [0.0, 8.0]], np.float32)
    labels = np.array([0, 0, 1, 1])
    a = np.array([[3.0, 0.0], [4.0, 2.0]], np.float32)  # |A_0| = 5, |A_1| = 2
    scores = z @ a
    # Output 0: class 0 has mean (0 + 6) / 2 = 3, the rest (16 + 32) / 2 = 24. Output 1: 12 against 0.
    np.testing.assert_array_equal(scores[:, 0], [0, 6, 16, 32])
    contrast = 0.5 * (3 - 24) + 0.5 * (12 - 0)
    lipschitz = (2 * (5 - 1) ** 2 + 2 * (2 - 1) ** 2) / 4
    critic = lambda z: z @ a  # noqa: E731
    np.testing.assert_allclose(privjax.wdn_privacy_loss(z, labels, critic), -contrast, rtol=1e-6)
    for penalty in (0.0, 1.0, 10.0):
        loss = privjax.wdn_discriminator_loss(z, labels, critic, penalty=penalty)
        np.testing.assert_allclose(loss, contrast + penalty * lipschitz, rtol=1e-6)
    default = privjax.wdn_discriminator_loss(z, labels, critic)
    np.testing.assert_allclose(default, contrast + 10 * lipschitz, rtol=1e-6)


def test_a_curved_critic():
    z, labels, params = problem()
    want = oracles.wdn_discriminator(z, labels, params)
    got = privjax.wdn_discriminator_loss(z.astype(np.float32), labels, critic_of(params))
    np.testing.assert_allclose(got, want, rtol=1e-5)
    # Mistakes that the comparison must notice: another output, all outputs, no root, one-sided.
    slopes = [[oracles.critic_gradient(row, c, params) for c in range(L)] for row in z]
    norms = np.linalg.norm(slopes, axis=-1)
    contrast = oracles.wdn_contrast(oracles.critic_scores(z, params), labels)
    own = norms[np.arange(N), labels]
    for wrong in (
        (norms[np.arange(N), (labels + 1) % L] - 1) ** 2,
        ((norms - 1) ** 2).mean(1),
        (own**2 - 1) ** 2,
        np.maximum(own - 2, 0) ** 2,
    ):
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(got, contrast + 10 * wrong.mean(), rtol=1e-4)
    np.testing.assert_allclose(got, contrast + 10 * ((own - 1) ** 2).mean(), rtol=1e-5)


def test_the_two_losses_are_opposite():
    z, labels, params = problem()
    privacy = privjax.wdn_privacy_loss(z.astype(np.float32), labels, critic_of(params))
    bare = privjax.wdn_discriminator_loss(z.astype(np.float32), labels, critic_of(params), penalty=0.0)
    np.testing.assert_allclose(privacy, -bare, rtol=1e-6)
    np.testing.assert_allclose(
        privacy, -oracles.wdn_contrast(oracles.critic_scores(z, params), labels), rtol=1e-5
    )


@pytest.mark.parametrize("name", ["tanh", "linear", "bias"])
def test_gradient_in_the_critics_parameters(name):
    """The penalty makes it a second derivative."""
    z, labels, params = problem()
    weights = np.array([1, 2, 0, 1, 0.5, 1, 1, 0, 1, 1.5, 1.0])
    want = oracles.central_differences(
        lambda value: oracles.wdn_discriminator(z, labels, {**params, name: value}, weights=weights),
        params[name],
    )
    with jax.enable_x64(True):
        got = jax.grad(
            lambda value: privjax.wdn_discriminator_loss(
                jnp.asarray(z), labels, critic_of({**params, name: value}), weights=weights
            )
        )(jnp.asarray(params[name]))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_a_flat_critic_has_a_finite_gradient():
    """At slope zero the norm has no derivative: the subgradient is zero, not NaN."""
    z, labels, params = problem()
    flat = {k: np.zeros_like(v) for k, v in params.items()}
    loss = lambda a: privjax.wdn_discriminator_loss(  # noqa: E731
        jnp.asarray(z, jnp.float32), labels, critic_of({**flat, "linear": a})
    )
    value, slope = jax.value_and_grad(loss)(jnp.zeros((D, L), jnp.float32))
    np.testing.assert_allclose(value, 10.0, rtol=1e-6)
    assert np.isfinite(slope).all()
    z_slope = jax.grad(lambda z: privjax.wdn_discriminator_loss(z, labels, critic_of(flat)))(
        jnp.asarray(z, jnp.float32)
    )
    assert not np.asarray(z_slope).any()


def test_noise_changes_the_penalty_and_not_the_contrast():
    z, labels, params = problem()
    z, key = z.astype(np.float32), jax.random.key(5)
    loss = privjax.wdn_discriminator_loss
    plain = loss(z, labels, critic_of(params))
    noisy = loss(z, labels, critic_of(params), noise=0.5, key=key)
    assert abs(noisy - plain) > 1e-3
    np.testing.assert_array_equal(noisy, loss(z, labels, critic_of(params), noise=0.5, key=key))
    other = loss(z, labels, critic_of(params), noise=0.5, key=jax.random.key(6))
    assert abs(noisy - other) > 1e-4
    np.testing.assert_allclose(loss(z, labels, critic_of(params), noise=0.0, key=key), plain, rtol=1e-6)
    # Without the penalty noise changes nothing; a linear critic's slope is the same everywhere.
    bare = [loss(z, labels, critic_of(params), penalty=0.0, noise=s, key=key) for s in (0.0, 0.5)]
    np.testing.assert_allclose(*bare, rtol=1e-6)
    linear = critic_of({**params, "tanh": np.zeros((D, L))})
    np.testing.assert_allclose(
        loss(z, labels, linear, noise=3.0, key=key), loss(z, labels, linear), rtol=1e-5
    )


def test_noise_on_padding_changes_no_bit():
    z, labels, params = problem()
    z, key = z.astype(np.float32), jax.random.key(5)
    weights = np.ones(N, np.float32)
    weights[7:] = 0
    junk = z.copy()
    junk[7:] = np.nan
    values = [
        privjax.wdn_discriminator_loss(x, labels, critic_of(params), noise=0.5, key=key, weights=weights)
        for x in (z, junk)
    ]
    np.testing.assert_array_equal(*map(np.asarray, values))


def test_a_critic_that_gives_nan_on_padding_changes_nothing():
    """Rows of weight zero reach the critic as zeros, and its scores for them are dropped."""
    z, labels, params = problem()
    weights = np.ones(N, np.float32)
    weights[7:] = 0
    base = critic_of(params)
    poles = lambda z: jnp.where((z == 0).all(1, keepdims=True), jnp.nan, base(z))  # noqa: E731
    for loss in (privjax.wdn_privacy_loss, privjax.wdn_discriminator_loss):
        want, want_slope = jax.value_and_grad(lambda z, f=loss: f(z, labels, base, weights=weights))(
            z.astype(np.float32)
        )
        got, slope = jax.value_and_grad(lambda z, f=loss: f(z, labels, poles, weights=weights))(
            z.astype(np.float32)
        )
        np.testing.assert_allclose(got, want, rtol=1e-6)
        np.testing.assert_allclose(slope, want_slope, rtol=1e-5, atol=1e-7)


def test_outputs_and_columns_must_agree():
    z, labels, params = problem()
    with pytest.raises(ValueError, match="critic has 4 outputs but p has 3 columns"):
        privjax.wdn_privacy_loss(
            z.astype(np.float32), np.eye(3, dtype=np.float32)[labels % 3], critic_of(params)
        )
    with pytest.raises(ValueError, match="p must hold labels from 0 to 3"):
        privjax.wdn_privacy_loss(z.astype(np.float32), labels + 1, critic_of(params))


def test_half_precision_critics():
    z, labels, params = problem()
    z = z.astype(np.float32)
    half = lambda z: critic_of(params)(z).astype(jnp.bfloat16)  # noqa: E731
    for loss in (privjax.wdn_privacy_loss, privjax.wdn_discriminator_loss):
        value = loss(z, labels, half)
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, loss(z, labels, critic_of(params)), rtol=0.05)


# ---- Least squares ----------------------------------------------------------------------------------

Z = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 0, 1])
A = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)


def linear(z):
    return z @ jnp.asarray(A, z.dtype)


def test_least_squares_by_hand():
    """Two rows, two classes, predictions (1, 0) and (0.5, 0.5); the mean of p is (0.5, 0.5)."""
    z = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    identity = lambda z: z  # noqa: E731
    privacy = privjax.lsdn_privacy_loss(z, np.array([0, 1]), identity)
    np.testing.assert_allclose(privacy, (0.5**2 + 0.5**2 + 0 + 0) / 2)
    discriminator = privjax.lsdn_discriminator_loss(z, np.array([0, 1]), identity)
    np.testing.assert_allclose(discriminator, (0 + 0 + 0.5**2 + 0.5**2) / 2)


@pytest.mark.parametrize("kind", ["labels", "one_hot", "continuous"])
@pytest.mark.parametrize("weighted", [False, True])
def test_least_squares_against_loops(kind, weighted):
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
    # Another constant is not the mean, and weights change the mean.
    assert privjax.lsdn_privacy_loss(Z, LABELS, lambda z: constant(z) + 0.1) > 1e-2
    weights = (LABELS != 2).astype(np.float32)
    assert privjax.lsdn_privacy_loss(Z, LABELS, constant, weights=weights) > 1e-3


def test_perfect_prediction_has_no_discriminator_loss():
    p = jnp.asarray(oracles.one_hot(LABELS, 3), jnp.float32)
    assert privjax.lsdn_discriminator_loss(Z, LABELS, lambda z: p) == 0
    # The best critic has the largest privacy loss: the variance of the labels.
    variance = ((p - p.mean(0, keepdims=True)) ** 2).sum(1).mean()
    np.testing.assert_allclose(privjax.lsdn_privacy_loss(Z, LABELS, lambda z: p), variance, rtol=1e-6)


def test_least_squares_fit_splits_the_variance():
    """For the best affine critic: variance of p = residual + explained variance (Pythagoras)."""
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
def test_gradient_of_least_squares_in_z_and_in_the_critic(name):
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


def test_an_absent_class_is_left_out_and_a_real_column_of_zeros_is_not():
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


def test_outputs_and_columns_of_least_squares_must_agree():
    for function in (privjax.lsdn_privacy_loss, privjax.lsdn_discriminator_loss):
        with pytest.raises(ValueError, match="critic has 3 outputs but p has 2 columns"):
            function(Z, np.ones((9, 2), np.float32), linear)
        with pytest.raises(ValueError, match="p must hold labels from 0 to 2"):
            function(Z, LABELS + 1, linear)
        with pytest.raises(TypeError, match=r"integer labels.*p\[:, None\]"):
            function(Z, np.linspace(0, 1, 9), linear)
