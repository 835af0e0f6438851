"""Kernel discriminant information: identities of the paper, and accuracy in float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from sklearn.kernel_ridge import KernelRidge

import privjax

pytestmark = pytest.mark.slow

SIGMAS = (1, 2, 4, 8, 16)


def problem(seed=0, n=20, d=3, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % classes)
    return (rng.normal(size=(n, d)) + 0.3 * labels[:, None]).astype(np.float32), labels.astype(np.int32)


def target(kind, n, labels):
    rng = np.random.default_rng(9)
    return {"one_hot": oracles.one_hot(labels, 3), "continuous": rng.normal(size=(n, 2)) + 5}[kind]


@pytest.mark.parametrize("kind", ["one_hot", "continuous"])
@pytest.mark.parametrize("rho", [1e-3, 1.0])
def test_literal_formula(kind, rho):
    """Eq. KDI_obj as printed, with a pseudo-inverse, agrees with the oracle's eigenvalues and the library."""
    z, labels = problem()
    p = target(kind, len(z), labels)
    k = oracles.gram(z, oracles.gaussian(1.0))
    want = oracles.kdi_literal(k, p, rho)
    np.testing.assert_allclose(oracles.kdi(k, p, rho), want, rtol=1e-6)
    value = privjax.kdi_loss(z, p.astype(np.float32), kernel=privjax.gaussian(1.0), rho=rho)
    np.testing.assert_allclose(value, want, rtol=2e-4)
    uncentred = np.linalg.solve(k.astype(float) + rho * np.eye(len(z)), k.astype(float) @ p)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(value, (p * uncentred).sum(), rtol=2e-4)


@pytest.mark.parametrize("kind", ["one_hot", "continuous"])
@pytest.mark.parametrize("rho", [1e-2, 0.5])
def test_least_loss_of_kernel_ridge_regression(kind, rho):
    """Eq. pmrlse_di: |C P|^2 - KDI is the minimum of |Kc a - C P|^2 + rho a'Kc a."""
    z, labels = problem()
    p = target(kind, len(z), labels)
    kc = oracles.centred_gram(oracles.gram(z, oracles.gaussian_mixture()))
    pc = p - p.mean(0)
    model = KernelRidge(alpha=rho, kernel="precomputed").fit(kc, pc)
    coefficients = model.dual_coef_
    least = ((kc @ coefficients - pc) ** 2).sum() + rho * (coefficients * (kc @ coefficients)).sum()
    value = float(privjax.kdi_loss(z, p.astype(np.float32), rho=rho))
    np.testing.assert_allclose((pc**2).sum() - value, least, rtol=2e-4)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("rho", [1e-4, 1.0])
@pytest.mark.parametrize(
    "kernel", [privjax.gaussian(2.0), privjax.gaussian_mixture()], ids=["one", "mixture"]
)
def test_bounds_by_the_mmd(scale, rho, kernel):
    """Eq. kdi_bound: delta MMD^2 / (N + rho) <= KDI <= delta MMD^2 / rho, p the 0/1 labels."""
    z, labels = problem(classes=2, n=25)
    z = scale * z
    n1 = labels.sum()
    delta = (n1 * (25 - n1) / 25) ** 2
    square = float(privjax.mmd_loss(z, labels, kernel=kernel)) ** 2
    kdi = float(privjax.kdi_loss(z, labels[:, None].astype(np.float32), kernel=kernel, rho=rho))
    assert delta * square / (25 + rho) <= 1.001 * kdi
    assert kdi <= 1.001 * delta * square / rho
    # One-hot labels count every contrast twice.
    both = float(privjax.kdi_loss(z, labels, kernel=kernel, rho=rho))
    np.testing.assert_allclose(both, 2 * kdi, rtol=5e-3)


@pytest.mark.parametrize("rho", [0.1, 10.0])
@pytest.mark.parametrize("d", [3, 30])
def test_linear_kernel_gives_discriminant_information(rho, d):
    z, labels = problem(d=d)
    linear = privjax.kdi_loss(z, labels, kernel=privjax.polynomial(1), rho=rho)
    np.testing.assert_allclose(linear, privjax.discriminant_information(z, labels, rho=rho), rtol=2e-3)
    np.testing.assert_allclose(
        linear, oracles.discriminant_information(z, oracles.one_hot(labels, 3), rho), rtol=2e-3
    )


# d, order, gamma, scale of z, rho: for large k float32 resolves a large ridge only.
POLYNOMIALS = [
    (1, 2, 1.0, 1.0, 1e-2),
    (1, 3, 0.1, 0.1, 1e-3),
    (3, 4, 0.5, 1.0, 1.0),
    (3, 4, 0.5, 10.0, 1e6),
    (20, 3, 0.1, 0.1, 1e-3),
]


@pytest.mark.parametrize(("d", "order", "gamma", "scale", "rho"), POLYNOMIALS)
def test_polynomial_kernel(d, order, gamma, scale, rho):
    """Value against the float64 oracle, gradient against its central differences along a random direction."""
    z, labels = problem(d=d, n=24)
    z, p = np.float32(scale) * z, oracles.one_hot(labels, 3)
    kernel, pair = privjax.polynomial(order, gamma=gamma), oracles.polynomial(order, gamma)
    loss = lambda z: privjax.kdi_loss(z, labels, kernel=kernel, rho=rho, num_classes=3)  # noqa: E731
    oracle = lambda z: oracles.kdi(oracles.gram(z, pair), p, rho)  # noqa: E731
    want, most = oracle(z), ((p - p.mean(0)) ** 2).sum()
    value, gradient = jax.value_and_grad(loss)(z)
    assert 0.01 * most < want < 0.999 * most  # neither nothing nor everything is explained
    np.testing.assert_allclose(value, want, rtol=5e-3)
    with jax.enable_x64(True):
        exact = np.asarray(jax.grad(loss)(z.astype(float)))
    direction = np.random.default_rng(1).normal(size=z.shape)
    slope = oracles.central_differences(lambda t: oracle(z + t[0] * direction), np.zeros(1))[0]
    np.testing.assert_allclose((exact * direction).sum(), slope, rtol=1e-4, atol=1e-6 * abs(exact).sum())
    assert np.linalg.norm(gradient - exact) <= 1e-2 * np.linalg.norm(exact)
    other = privjax.polynomial(order + 1, gamma=gamma)
    with pytest.raises(AssertionError):  # the comparison notices another order
        np.testing.assert_allclose(privjax.kdi_loss(z, labels, kernel=other, rho=rho), want, rtol=5e-3)


def test_limits():
    z, labels = problem()
    p = oracles.one_hot(labels, 3)
    most = ((p - p.mean(0)) ** 2).sum()
    np.testing.assert_allclose(
        privjax.kdi_loss(100 * z, labels, rho=1e-6), most, rtol=1e-4
    )  # everything is explained
    assert privjax.kdi_loss(z, labels, rho=1e6) < 1e-4  # nothing is explained
    np.testing.assert_allclose(privjax.kdi_loss(np.ones_like(z), labels), 0, atol=1e-6)
    np.testing.assert_allclose(privjax.kdi_loss(z, np.full((20, 1), 7.0)), 0, atol=1e-6)


@pytest.mark.parametrize("rho", [1e-2, 1.0])
def test_weights_multiply_the_squared_errors(rho):
    """min over f, b of sum_i w_i |f(z_i) + b - p_i|^2 + rho |f|^2, by its normal equations."""
    z, labels = problem()
    rng = np.random.default_rng(3)
    w, p = rng.uniform(0.1, 3, len(z)), oracles.one_hot(labels, 3)
    k = oracles.gram(z, oracles.gaussian(1.0)).astype(float)
    n = len(z)
    # f = K a: (W K + rho I) a + W 1 b' = W P, 1'W (K a + 1 b' - P) = 0.
    system = np.block(
        [[w[:, None] * k + rho * np.eye(n), w[:, None]], [(w @ k)[None], np.array([[w.sum()]])]]
    )
    solution = np.linalg.solve(system, np.concatenate([w[:, None] * p, (w @ p)[None]]))
    a, b = solution[:n], solution[n]
    least = (w[:, None] * (k @ a + b - p) ** 2).sum() + rho * (a * (k @ a)).sum()
    spread = (w[:, None] * (p - w @ p / w.sum()) ** 2).sum()
    value = privjax.kdi_loss(z, p, kernel=privjax.gaussian(1.0), rho=rho, weights=w.astype(np.float32))
    np.testing.assert_allclose(value, spread - least, rtol=1e-3)


def test_gradient_in_a_continuous_variable_and_its_scale():
    z, _ = problem()
    p = np.random.default_rng(0).normal(size=(20, 2))
    value = functools.partial(privjax.kdi_loss, kernel=privjax.gaussian(1.0), rho=0.1)
    with jax.enable_x64(True):
        got = jax.grad(lambda p: value(jnp.asarray(z, float), p))(jnp.asarray(p))
        np.testing.assert_allclose(value(z.astype(float), 3 * p), 9 * value(z.astype(float), p), rtol=1e-9)
    k = oracles.gram(z, oracles.gaussian(1.0))
    want = oracles.central_differences(lambda p: oracles.kdi(k, p, 0.1), p)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


# ---- Float32 against float64 ------------------------------------------------------------------------


def reference(z, p, rho=1e-4):
    """KDI and its gradient in float64: A = (Kc + rho)^-1 Pc, |Pc|^2 - rho <Pc, A>, dKDI/dK = rho A A'."""
    z = z.astype(float)
    square = (z * z).sum(1)
    d2 = square[:, None] + square[None] - 2 * z @ z.T
    np.maximum(d2, 0, out=d2)
    k, slope = np.zeros_like(d2), np.zeros_like(d2)
    for sigma in SIGMAS:
        e = np.exp(-d2 / (2 * sigma**2)) / len(SIGMAS)
        k += e
        slope -= e / (2 * sigma**2)
    row = k.mean(1)
    kc = k - row[:, None] - row[None] + row.mean()
    pc = p - p.mean(0)
    a = np.linalg.solve(kc + rho * np.eye(len(z)), pc)
    a -= a.mean(0)
    g = 4 * rho * (a @ a.T) * slope
    return (pc**2).sum() - rho * (pc * a).sum(), z * g.sum(1)[:, None] - g @ z


ACCURACY = {
    "narrow d=10": (500, 10, 0.3, 0.0, 1e-3),
    "narrow d=3": (500, 3, 0.1, 0.0, 1e-3),
    "n=2000 d=5": (2000, 5, 1.0, 0.0, 5e-3),
    "n=2000 d=3": (2000, 3, 0.1, 0.0, 5e-3),
    "n=2000 far": (2000, 10, 1.0, 100.0, 5e-3),
    "n=2000 d=50": (2000, 50, 1.0, 0.0, 5e-3),
    "n=2000 d=2": (2000, 2, 5.0, 0.0, 5e-3),
    "n=1000 d=1": (1000, 1, 1.0, 0.0, 5e-3),
}


@pytest.mark.parametrize("case", ACCURACY.values(), ids=ACCURACY.keys())
def test_float32_is_close_to_float64(case):
    n, d, scale, shift, allowed = case
    rng = np.random.default_rng(n + d)
    labels = rng.integers(0, 6, n)
    z = (scale * rng.normal(size=(n, d)) + shift).astype(np.float32)
    want, slope = reference(z, oracles.one_hot(labels, 6))
    value, gradient = jax.value_and_grad(lambda z: privjax.kdi_loss(z, labels, num_classes=6))(z)
    assert abs(float(value) - want) <= allowed * want
    assert np.linalg.norm(gradient - slope) <= 0.01 * np.linalg.norm(slope)


def test_the_reference_is_the_oracle_and_float32_pinv_is_not_good_enough():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 30)
    z, p = rng.normal(size=(30, 3)).astype(np.float32), oracles.one_hot(labels, 3)
    value, slope = reference(z, p)
    kdi = lambda z: oracles.kdi(oracles.gram(z, oracles.gaussian_mixture(SIGMAS)), p, 1e-4)  # noqa: E731
    np.testing.assert_allclose(value, kdi(z), rtol=1e-8)
    numeric = oracles.central_differences(
        lambda row: kdi(np.concatenate([row[None], z[1:].astype(float)])), z[0]
    )
    np.testing.assert_allclose(slope[0], numeric, rtol=1e-5)
    # The comparison notices the error of the literal formula in float32 on narrow rows.
    n = 200
    z, labels = (0.1 * rng.normal(size=(n, 3))).astype(np.float32), rng.integers(0, 3, n)
    p = oracles.one_hot(labels, 3)
    d2 = ((z[:, None] - z[None]) ** 2).sum(-1)
    k = sum(np.exp(-d2 / np.float32(2 * s * s)) for s in SIGMAS) / np.float32(5)
    c = (np.eye(n) - 1 / n).astype(np.float32)
    kc, p32 = c @ k @ c, p.astype(np.float32)
    naive = np.trace(np.linalg.pinv(kc @ kc + np.float32(1e-4) * kc) @ kc @ p32 @ p32.T @ kc)
    assert abs(naive - reference(z, p)[0]) > 0.05 * reference(z, p)[0]


def clusters(separation, n=300, d=40):
    """Six tight clusters far apart, with the class a small step inside of each, as at the end of training."""
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, 6, n), rng.integers(0, 2, n)
    step = np.eye(d)[0]
    z = separation * rng.normal(size=(6, d))[y] + 0.01 * rng.normal(size=(n, d)) + 0.1 * s[:, None] * step
    return z.astype(np.float32), s


@pytest.mark.parametrize("separation", [1, 10, 30])
def test_tight_clusters_far_apart_in_many_wide_rows(separation):
    z, s = clusters(separation)
    wide = z.astype(float)
    d2 = ((wide[:, None] - wide[None]) ** 2).sum(-1)
    k = np.mean([np.expm1(-d2 / (2 * b * b)) for b in SIGMAS], 0)
    p = oracles.one_hot(s, 2)
    k = k - k.mean(0) - k.mean(1)[:, None] + k.mean()
    a = np.linalg.solve(k + 1e-4 * np.eye(len(z)), p - p.mean(0))
    g = 1e-4 * (a @ a.T) * np.mean([-np.exp(-d2 / (2 * b * b)) / (2 * b * b) for b in SIGMAS], 0)
    want = 4 * (wide * g.sum(1)[:, None] - g @ wide)
    value, gradient = jax.value_and_grad(privjax.kdi_loss)(jnp.asarray(z), jnp.asarray(p, jnp.float32))
    np.testing.assert_allclose(value, ((p - p.mean(0)) * (k @ a)).sum(), rtol=1e-4)
    assert np.linalg.norm(gradient - want) < 0.05 * np.linalg.norm(want)
    mmd, slope = jax.value_and_grad(lambda z: privjax.mmd_loss(z, s, num_classes=2))(jnp.asarray(z))
    k = np.mean([np.exp(-d2 / (2 * b * b)) for b in SIGMAS], 0)
    np.testing.assert_allclose(mmd, float(oracles.mmd(k, s, 2)), rtol=1e-3)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("shift", [0.0, 100.0, 1000.0])
def test_a_linear_kernel_is_invariant_to_shifts(shift):
    z, labels = problem(n=200, d=10)
    linear = privjax.polynomial(1)
    want = privjax.kdi_loss(z, labels, kernel=linear, rho=1.0)
    shifted = privjax.kdi_loss(z + np.float32(shift), labels, kernel=linear, rho=1.0)
    np.testing.assert_allclose(shifted, want, rtol=2e-3)


def test_a_polynomial_of_rows_off_the_centre_is_finite():
    z, labels = problem(n=200, d=20)
    for order, shift in ((2, 10.0), (4, 20.0)):
        loss = lambda z: privjax.kdi_loss(z, labels, kernel=privjax.polynomial(order), num_classes=3)  # noqa: E731, B023
        value, gradient = jax.value_and_grad(loss)(jnp.asarray(z + np.float32(shift)))
        assert 0 <= value <= 134
        assert np.isfinite(gradient).all()
