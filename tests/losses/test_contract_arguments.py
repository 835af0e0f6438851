"""The contract about arguments: errors name the argument, at trace time where possible."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import (
    CLASSES,
    NARROW,
    ONES,
    RHO,
    TABLE,
    N,
    P,
    Z,
    every_function,
    fourier,
    make_critic,
)

import privjax

WRONG = {
    "z of rank 1": ((Z[:, 0], P, ONES), ValueError, "[zx] must"),
    "z of rank 3": ((Z[None], P, ONES), ValueError, "[zx] must"),
    "z without rows": ((Z[:0], P[:0], ONES[:0]), ValueError, "[zx] must"),
    "z of integers": ((P[:, None], P, ONES), TypeError, "[zx] must be floating"),
    "z complex": ((Z.astype(np.complex64), P, ONES), TypeError, "[zx] must be floating"),
    "p too short": ((Z, P[:-1], ONES), ValueError, r"\bp\b.*11"),
    "p of floats": ((Z, P.astype(np.float32), ONES), TypeError, r"\bp\b.*integer labels"),
    "p of rank 0": ((Z, np.int32(1), ONES), ValueError, r"\bp must"),
    "p of rank 3": ((Z, np.ones((N, CLASSES, 1), np.float32), ONES), ValueError, r"\bp must"),
    "p complex": ((Z, np.ones((N, CLASSES), np.complex64), ONES), TypeError, r"\bp must"),
    "p too wide": ((Z, np.eye(CLASSES + 1, dtype=np.float32)[P], ONES), ValueError, r"\bp has 5 columns"),
    "weights too short": ((Z, P, ONES[:-1]), ValueError, "weights must have shape"),
    "weights of rank 2": ((Z, P, ONES[:, None]), ValueError, "weights must have shape"),
    "weights complex": ((Z, P, ONES.astype(np.complex64)), TypeError, "weights must"),
}


@every_function
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_wrong_shapes_and_types_are_named_at_trace_time(objective, case):
    arguments, error, match = case
    with pytest.raises(error, match=match):
        objective.call(*arguments)
    with pytest.raises(error, match=match):
        jax.eval_shape(objective.call, *arguments)  # traced, never run


@every_function
def test_wrong_values_are_named_outside_of_jit(objective):
    bad = P.copy()
    for label in (-1, CLASSES):
        bad[3] = label
        with pytest.raises(ValueError, match=r"\bp must hold labels from 0 to 3, row 3"):
            objective.call(Z, bad, ONES)
    for weight in (-0.5, np.nan):
        with pytest.raises(ValueError, match="weights must be non-negative"):
            objective.call(Z, P, np.where(P == 0, weight, ONES).astype(np.float32))
    soft = np.full((N, CLASSES), 0.25, np.float32)
    if objective.needs_classes:
        with pytest.raises(ValueError, match=r"\bp must be one-hot"):
            objective.call(Z, soft, ONES)
    else:
        assert np.isfinite(objective.call(Z, soft, ONES))


@every_function
def test_integers_of_64_bits_do_not_wrap_around(objective):
    """JAX would keep the last 32 bits, and those of 2^32 + 1 are class 1."""
    wide = P.astype(np.int64)
    np.testing.assert_array_equal(objective.call(Z, wide, ONES), objective.call(Z, P, ONES))
    for label in (2**32 + 1, -(2**32) + 1, 2**62):
        with pytest.raises(ValueError, match=r"\bp must hold labels from 0 to 3, row 1"):
            objective.call(Z, np.where(np.arange(N) == 1, label, wide), ONES)
    padded = np.where(np.arange(N) == 1, 0, ONES)
    junk = np.where(np.arange(N) == 1, 2**62, wide)
    np.testing.assert_array_equal(objective.call(Z, junk, padded), objective.call(Z, P, padded))
    if not objective.needs_classes:
        times = 2**33 * np.arange(N * CLASSES).reshape(N, CLASSES)
        want = objective.call(Z, times.astype(np.float32), ONES)
        np.testing.assert_array_equal(objective.call(Z, times, ONES), want)


COUNTED = {
    "mmd_loss": privjax.mmd_loss,
    "rff_mmd_loss": lambda z, p, **k: privjax.rff_mmd_loss(z, p, features=fourier(NARROW), **k),
    "kdi_loss": privjax.kdi_loss,
    "discriminant_information": lambda z, p, **k: privjax.discriminant_information(z, p, rho=RHO, **k),
}


@pytest.mark.parametrize("loss", COUNTED.values(), ids=COUNTED.keys())
def test_num_classes(loss):
    with pytest.raises(ValueError, match="num_classes"):
        jax.eval_shape(loss, Z, P)
    for wrong, error in ((0, ValueError), (2.0, TypeError), (True, TypeError), (CLASSES - 1, ValueError)):
        with pytest.raises(error, match="num_classes"):
            loss(Z, P, num_classes=wrong)
    with pytest.raises(ValueError, match="num_classes"):
        loss(Z, np.eye(CLASSES, dtype=np.float32)[P], num_classes=CLASSES + 1)
    np.testing.assert_allclose(loss(Z, P), loss(Z, P, num_classes=CLASSES), rtol=1e-6)
    with pytest.raises(ValueError, match="p holds the label .*: number the classes from 0"):
        loss(Z, P.astype(np.int64) + 2**40)


def test_hyperparameters_out_of_range_are_named():
    critic = make_critic(NARROW)
    for bad in (0.0, -1.0, np.nan, np.inf, jnp.float32(-1.0)):
        for make, name in (
            (privjax.gaussian, "bandwidth"),
            (privjax.laplacian, "bandwidth"),
            (lambda b: privjax.gaussian_mixture((1.0, b)), "bandwidths"),
            (lambda b: privjax.median_gaussian((b,)), "multiples"),
            (lambda b: privjax.polynomial(4, gamma=b), "gamma"),
            (lambda b: privjax.mixture(privjax.gaussian(), weights=[b]), "weights"),
        ):
            with pytest.raises(ValueError, match=name):
                make(bad)
        with pytest.raises(ValueError, match="rho must be positive"):
            privjax.kdi_loss(Z, P, rho=bad)
        with pytest.raises(ValueError, match="rho must be positive"):
            jax.eval_shape(lambda z: privjax.kdi_loss(z, P, rho=bad, num_classes=CLASSES), Z)  # noqa: B023
        with pytest.raises(ValueError, match="rho must be positive"):
            privjax.discriminant_information(Z, P, rho=bad)
    for bad, error in ((None, TypeError), ("1", TypeError), (np.ones(2), ValueError), ([1.0], TypeError)):
        with pytest.raises(error, match="rho must be a"):
            privjax.kdi_loss(Z, P, rho=bad)
        with pytest.raises(error, match="penalty must be a"):
            privjax.wdn_discriminator_loss(Z, P, critic, penalty=bad)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="penalty must not be negative"):
            privjax.wdn_discriminator_loss(Z, P, critic, penalty=bad)
        with pytest.raises(ValueError, match="noise must not be negative"):
            privjax.wdn_discriminator_loss(Z, P, critic, noise=bad, key=jax.random.key(0))
    with pytest.raises(ValueError, match="key"):
        privjax.wdn_discriminator_loss(Z, P, critic, noise=0.1)
    for kernel in (None, "gaussian", lambda a, b: a @ b.T):
        with pytest.raises(TypeError, match="kernel must be"):
            privjax.mmd_loss(Z, P, kernel=kernel)
        with pytest.raises(TypeError, match="kernel must be"):
            privjax.kdi_loss(Z, P, kernel=kernel)


WITH_CRITIC = [row.name for row in TABLE.values() if row.name.startswith(("wdn", "lsdn"))]


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_a_critic_of_the_wrong_kind_is_named(name):
    loss = getattr(privjax, f"{name}_loss")
    with pytest.raises(TypeError, match="critic must be a function"):
        loss(Z, P, None)
    for critic in (lambda z: z[:, 0], lambda z: z[:-1], lambda z: z.sum()):
        with pytest.raises(ValueError, match="critic must return"):
            loss(Z, P, critic)
