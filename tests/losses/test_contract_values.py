"""Values and gradients of every objective against its oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from contract import (
    CLASSES,
    NARROW,
    ONES,
    RHO,
    TABLE,
    TINY,
    N,
    P,
    Z,
    batches,
    cases,
    compiled,
    critic_params,
    every_objective,
    every_width,
    median_pair_kernel,
    scores_of,
)
from hypothesis import given
from hypothesis import strategies as st


@every_width
@cases(120)
@given(data=st.data())
def test_values_are_right_and_gradients_finite(objective, d, data):
    batch = data.draw(batches(d))
    value, gradient = compiled(objective.name)(*batch)
    assert value.shape == ()
    assert value.dtype == jnp.float32
    assert gradient.shape == batch.z.shape
    assert np.isfinite(gradient).all()
    want = objective.oracle(*batch)
    assert abs(float(value) - want) <= objective.tolerance(*batch) + TINY, (float(value), want)


@pytest.mark.slow
@every_objective
@cases(60)
@given(data=st.data())
def test_float64_is_right_to_more_digits(objective, data):
    scales = range(-3, 2)
    batch = data.draw(batches(NARROW, scales=scales, dtype=np.float64))
    with jax.enable_x64(True):
        value, gradient = compiled(objective.name)(*batch)
    assert value.dtype == gradient.dtype == jnp.float64
    assert np.isfinite(gradient).all()
    # The same tolerance in units of float64.
    allowed = objective.tolerance(*batch) * 1e-6 + 1e-12
    if objective.name.startswith("mmd"):
        allowed = max(allowed, 1e-7)  # a zero under a root: sqrt of 1e-15
    want = objective.oracle(*batch)
    assert abs(float(value) - want) <= allowed, (float(value), want)


@every_objective
@pytest.mark.parametrize("content", ["normal", "grid"])
def test_gradient_against_central_differences_of_the_oracle(objective, content):
    rng = np.random.default_rng(5)
    z = rng.normal(size=(N, NARROW)) if content == "normal" else rng.integers(-1, 2, (N, NARROW)) * 1.0
    labels = (np.arange(N) % CLASSES).astype(np.int32)
    weights = np.array([1, 0.5, 2, 1, 0, 1.25, 1, 1, 0.25, 1, 1, 0], np.float32)
    # A bandwidth from the rows is a constant to the gradient: fix it in the oracle too.
    oracle = held_bandwidth(objective, z, weights) if objective.data_scale else objective.oracle
    want = oracles.central_differences(lambda x: oracle(x, labels, weights), z)
    with jax.enable_x64(True):
        gradient = compiled(objective.name)(z, labels, weights)[1]
    np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


def held_bandwidth(objective, z, weights):
    kernel = median_pair_kernel(z, weights)
    if objective.name == "mmd_median":
        return lambda x, labels, w: oracles.mmd(oracles.gram(x, kernel), labels, CLASSES, w)
    return lambda x, labels, w: oracles.weighted_kdi(
        oracles.gram(x, kernel), oracles.one_hot(labels, CLASSES), 1e-4, w
    )


@every_objective
@cases(40)
@given(data=st.data())
def test_float32_gradient_is_the_float64_gradient(objective, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    z = (rng.normal(size=(N, NARROW)) * 10.0 ** data.draw(st.integers(-3, 0))).astype(np.float32)
    labels, weights = rng.permutation(np.arange(N) % CLASSES).astype(np.int32), np.ones(N, np.float32)
    gradient = np.asarray(compiled(objective.name)(z, labels, weights)[1])
    with jax.enable_x64(True):
        want = np.asarray(compiled(objective.name)(z.astype(float), labels, weights)[1])
    assert np.linalg.norm(gradient - want) <= 2e-3 * np.linalg.norm(want)


def test_the_tolerances_reject_common_mistakes():
    """Common mistakes in each formula lie far outside of the tolerance of its row."""
    weights = ONES.copy()
    k = oracles.gram(Z, oracles.gaussian_mixture())
    terms = oracles.mmd_terms(k, P, CLASSES, weights)
    p = oracles.one_hot(P, CLASSES)
    scores = scores_of(Z, weights)
    wrong = {
        "mmd": sum(share * square for share, square in terms),  # the root left out
        "kdi": oracles.kdi_literal(k + 1 - np.ones_like(k), p, 1e-3),  # another ridge
        "wdn_privacy": oracles.wdn_contrast(scores, P),  # the sign
        "wdn_discriminator": oracles.wdn_discriminator(Z, P, critic_params(NARROW), penalty=9.9),
        "lsdn_privacy": oracles.lsdn(scores, p, privacy=False),
        "lsdn_discriminator": oracles.lsdn(scores, p, privacy=True),
        "discriminant_information": oracles.discriminant_information(Z, p, 100 * RHO),
        "rff_mmd": TABLE["mmd"].oracle(Z, P, weights),
    }
    for name, value in wrong.items():
        row = TABLE[name]
        right = row.oracle(Z, P, weights)
        got = float(compiled(name)(Z, P, weights)[0])
        tolerance = row.tolerance(Z, P, weights)
        assert abs(got - right) <= tolerance
        assert abs(got - value) > 5 * tolerance, name
