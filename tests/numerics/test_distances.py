"""Squared distances against differences in wide floats, by differences and from products alike."""

import jax
import numpy as np
import oracles
import pytest

from privjax import distances

EPS = float(np.finfo(np.float32).eps)


def rows(seed, n, d, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=(n, d))).astype(np.float32)


def wanted(a):
    wide = a.astype(oracles.WIDE)
    return ((wide[:, None] - wide[None]) ** 2).sum(-1).astype(float)


@pytest.mark.parametrize("width", [1, 3, 64, 65, 100])
def test_differences_do_not_see_the_origin(width):
    a = rows(0, 7, width) + np.float32(1000)
    np.testing.assert_allclose(distances.squared_distances(a, a), wanted(a), rtol=width * EPS)
    assert not np.diagonal(distances.squared_distances(a, a)).any()


# Twelve rows go by differences whatever their width; 240 of 40 columns by a product.
@pytest.mark.parametrize(("n", "width", "product"), [(12, 3, False), (12, 40, False), (240, 40, True)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("fine", [False, True])
def test_equal_rows_are_at_distance_zero(n, width, product, scale, fine):
    assert distances.by_differences(n, n, width) == (not product)
    a = np.repeat(rows(0, n // 3, width, scale), 3, axis=0)
    a = a - a.mean(0)
    d2 = np.asarray(distances.fast_squared_distances(a, a, fine=fine))
    same = np.arange(n)[:, None] // 3 == np.arange(n)[None] // 3
    assert not d2[same].any()
    assert (d2[~same] > 0).all()
    np.testing.assert_allclose(d2, wanted(a), rtol=1e-5)


@pytest.mark.parametrize("fine", [True, np.True_])
def test_split_products_see_inside_tight_clusters(fine):
    """Clusters of spread 0.01 at distances of about 300: a plain product rounds their insides away."""
    centres, inside = rows(0, 6, 40, 30.0), rows(1, 240, 40, 0.01)
    a = np.repeat(centres, 40, axis=0) + inside
    a = a - a.mean(0)
    same = (np.arange(240)[:, None] // 40 == np.arange(240)[None] // 40) & ~np.eye(240, dtype=bool)

    def error(fine):
        d2 = jax.jit(lambda a, fine: distances.fast_squared_distances(a, a, fine=fine))(a, fine)
        return np.abs(np.asarray(d2) / np.where(same, wanted(a), 1) - 1)[same].max()

    assert error(fine) < 0.1
    assert error(np.False_) > 0.5


@pytest.mark.parametrize(("n", "width"), [(7, 3), (240, 40)])
def test_a_nan_row_has_nan_distances(n, width):
    a = rows(0, n, width)
    a[2, 1] = np.nan
    for d2 in (distances.squared_distances(a, a), distances.fast_squared_distances(a, a)):
        assert np.isnan(np.asarray(d2)[2]).all()
        assert np.isnan(np.asarray(d2)).sum() == 2 * n - 1
    # The grid of split products is that of all rows: they are all lost with one.
    assert np.isnan(np.asarray(distances.fast_squared_distances(a, a, fine=True))[2]).all()
