"""The Wasserstein discriminator losses against critics whose gradient is written by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax

N, D, L = 11, 3, 4


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
    # Sabotage: a penalty at the next class's output, at all outputs, without the root, one-sided.
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


def test_the_two_losses_oppose_each_other():
    z, labels, params = problem()
    privacy = privjax.wdn_privacy_loss(z.astype(np.float32), labels, critic_of(params))
    bare = privjax.wdn_discriminator_loss(z.astype(np.float32), labels, critic_of(params), penalty=0.0)
    np.testing.assert_allclose(privacy, -bare, rtol=1e-6)
    np.testing.assert_allclose(
        privacy, -oracles.wdn_contrast(oracles.critic_scores(z, params), labels), rtol=1e-5
    )


@pytest.mark.parametrize("name", ["tanh", "linear", "bias"])
def test_gradient_in_the_critics_parameters(name):
    """Through the penalty it is a derivative of a derivative."""
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
    """At slope zero the norm has no derivative: the subgradient taken is zero, not NaN."""
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


def test_noise_moves_the_penalty_and_not_the_contrast():
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


def test_a_critic_that_breaks_on_padding_does_no_harm():
    """Rows of weight zero reach the critic as zeros: what it makes of them is dropped."""
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
