"""Entries of kernel matrices: squared distances, and value and slope of every kind of term."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privjax
from privjax.numerics import entries

EPS = float(np.finfo(np.float32).eps)
LADDER = (1.0, 2.0, 4.0, 8.0, 16.0)


def rows(seed, n, d, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=(n, d))).astype(np.float32)


def exact_distances(a):
    wide = np.asarray(a, oracles.WIDE)
    return ((wide[:, None] - wide[None]) ** 2).sum(-1).astype(float)


# ---- Squared distances ------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3, 64, 65, 100])
def test_differences_are_exact_at_any_origin(width):
    a = jnp.asarray(rows(0, 7, width) + np.float32(1000))
    np.testing.assert_allclose(entries.squared_distances(a, a), exact_distances(a), rtol=width * EPS)
    assert not np.diagonal(entries.squared_distances(a, a)).any()


# Twelve rows use differences at any width; 240 rows of 40 columns use a product.
@pytest.mark.parametrize(("n", "width", "product"), [(12, 3, False), (12, 40, False), (240, 40, True)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("compensated", [False, True])
def test_equal_rows_are_at_distance_zero(n, width, product, scale, compensated):
    assert entries.by_differences(n, n, width) == (not product)
    a = np.repeat(rows(0, n // 3, width, scale), 3, axis=0)
    a = jnp.asarray(a - a.mean(0))
    d2 = np.asarray(entries.fast_squared_distances(a, a, compensated=compensated))
    same = np.arange(n)[:, None] // 3 == np.arange(n)[None] // 3
    assert not d2[same].any()
    assert (d2[~same] > 0).all()
    np.testing.assert_allclose(d2, exact_distances(a), rtol=1e-5)


@pytest.mark.parametrize("compensated", [True, np.True_])
def test_split_products_resolve_tight_clusters(compensated):
    """Clusters of spread 0.01 at distances of about 300: the rounding of a plain product exceeds them."""
    centres, inside = rows(0, 6, 40, 30.0), rows(1, 240, 40, 0.01)
    a = np.repeat(centres, 40, axis=0) + inside
    a = a - a.mean(0)
    same = (np.arange(240)[:, None] // 40 == np.arange(240)[None] // 40) & ~np.eye(240, dtype=bool)

    def error(compensated):
        d2 = jax.jit(lambda a, c: entries.fast_squared_distances(a, a, compensated=c))(a, compensated)
        return np.abs(np.asarray(d2) / np.where(same, exact_distances(a), 1) - 1)[same].max()

    assert error(compensated) < 0.1
    assert error(np.False_) > 0.5


@pytest.mark.parametrize(("n", "width"), [(7, 3), (240, 40)])
def test_a_nan_row_has_nan_distances(n, width):
    a = rows(0, n, width)
    a[2, 1] = np.nan
    a = jnp.asarray(a)
    for d2 in (entries.squared_distances(a, a), entries.fast_squared_distances(a, a)):
        assert np.isnan(np.asarray(d2)[2]).all()
        assert np.isnan(np.asarray(d2)).sum() == 2 * n - 1
    # The grid of split products depends on all rows: one NaN row makes all distances NaN.
    assert np.isnan(np.asarray(entries.fast_squared_distances(a, a, compensated=True))[2]).all()


# ---- Terms ------------------------------------------------------------------------------------------


def test_values_keep_their_digits_at_small_distances():
    """k - 1 to a few eps over twenty decades of distance, also after the squarings of a ladder."""
    terms = privjax.gaussian_mixture().terms
    d2 = np.logspace(-14, 6, 400).astype(np.float32)
    wide = d2.astype(oracles.WIDE)
    want = sum(0.2 * np.expm1(-wide / (2 * s * s)) for s in LADDER).astype(float)
    np.testing.assert_allclose(entries.value(terms, jnp.asarray(d2)), want, rtol=40 * EPS)
    naive = sum(np.float32(0.2) * (np.exp(-d2 / np.float32(2 * s * s)) - 1) for s in LADDER)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(naive, want, rtol=40 * EPS)


@settings(max_examples=300)
@given(st.floats(-100, 0, width=32, allow_subnormal=False))
def test_expm1_of_any_negative_number(x):
    got, want = float(entries.expm1_negative(jnp.float32(x))), np.expm1(x)
    assert abs(got - want) <= 2 * EPS * abs(want)
    assert -1 <= got <= 0


def test_expm1_is_more_accurate_than_that_of_xla():
    x = -np.geomspace(1e-30, 100, 100_001).astype(np.float32)
    want = np.expm1(x.astype(float))
    error = lambda f: np.abs(np.asarray(jax.jit(f)(x), float) / want - 1).max()  # noqa: E731
    assert error(entries.expm1_negative) < 1.2 * EPS
    assert error(jnp.expm1) > 1.2 * EPS


KERNELS = {
    "ladder": privjax.gaussian_mixture(LADDER),
    "no ladder": privjax.gaussian_mixture((1, 3, 5)),
    "laplacian": privjax.laplacian(2.5),
    "mixture": privjax.mixture(privjax.gaussian(), privjax.laplacian(), privjax.polynomial(3)),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
def test_slopes_are_derivatives(kernel):
    with jax.enable_x64(True):
        t = np.linspace(0.05, 9, 30)
        for terms in filter(None, entries.split_terms(kernel.terms)):
            numeric = (entries.value(terms, t + 1e-6) - entries.value(terms, t - 1e-6)) / 2e-6
            np.testing.assert_allclose(entries.slope(terms, jnp.asarray(t)), numeric, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_kind_of_kernel_is_one_entry(monkeypatch):
    """The kernel 1 / (1 + |a - b|^2 / s^2), added here, serves values and gradients."""

    def values(terms, d2, share):
        return [t.weight * (-d2 / (t.scale**2 + d2)) for t in terms]

    def slopes(terms, d2, share):
        return [jnp.where(d2 == 0, 0, -t.weight * t.scale**2 / (t.scale**2 + d2) ** 2) for t in terms]

    kind = entries.Kind("distance", values, slopes, at_zero=lambda term: 1.0)
    monkeypatch.setitem(entries.KINDS, "rational", kind)
    kernel = privjax.mixture(privjax.kernels.Kernel((entries.Term("rational", 1.5),)), privjax.gaussian())
    pair = oracles.mixture(
        [lambda a, b: 1 / (1 + (a - b) @ (a - b) / oracles.WIDE(1.5) ** 2), oracles.gaussian(1.0)], [0.5, 0.5]
    )
    z, labels = rows(0, 9, 2), np.arange(9) % 3
    np.testing.assert_allclose(kernel(z), oracles.gram(z, pair).astype(float), rtol=1e-5)
    value = privjax.mmd_loss(z, labels, kernel=kernel)
    np.testing.assert_allclose(value, oracles.mmd(oracles.gram(z, pair), labels, 3), rtol=1e-5)
    kdi = privjax.kdi_loss(z, labels, kernel=kernel, rho=0.1)
    want = oracles.kdi(oracles.gram(z, pair), oracles.one_hot(labels, 3), 0.1)
    np.testing.assert_allclose(kdi, want, rtol=1e-3)
    with jax.enable_x64(True):
        loss = lambda z: privjax.mmd_loss(z, labels, kernel=kernel, num_classes=3)  # noqa: E731
        gradient = jax.grad(loss)(z.astype(float))
        numeric = oracles.central_differences(lambda z: oracles.mmd(oracles.gram(z, pair), labels, 3), z)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-7)
