"""The convolutional networks CNN and SCNN: sizes, dropout, the tied projection."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privjax.networks import cnn_networks, scnn_networks

KEY = jax.random.key(0)


def _shapes(params):
    return jax.tree.map(lambda a: a.shape, params)


def _rows(n, *shape):
    return jax.random.normal(jax.random.key(1), (n, *shape))


def test_cnn_has_the_papers_sizes():
    networks = cnn_networks((32, 32, 1), num_outputs=4, num_private=38)
    params = jax.eval_shape(networks.init, KEY)
    assert _shapes(params["private"]) == {"convolution": {"kernel": (3, 3, 1, 32), "bias": (32,)}}
    public = _shapes(params["public"])
    assert public["_ConvolutionPool_0"]["kernel"] == (3, 3, 32, 64)
    assert public["_Dense_0"]["Dense_0"]["kernel"] == (8 * 8 * 64, 1024)
    discriminator = _shapes(params["discriminator"])
    assert [discriminator[f"Dense_{i}"]["bias"] for i in range(3)] == [(1024,), (1024,), (38,)]
    z = jax.eval_shape(networks.private, params, jnp.ones((2, 1024)))
    assert z.shape == (2, 16 * 16 * 32)
    assert networks.projection(params) is None


def test_cnn_refuses_a_projection_width():
    with pytest.raises(TypeError, match="num_features"):
        cnn_networks((8, 8, 1), num_outputs=2, num_features=5)


def test_scnn_rebuilds_with_the_same_orthonormal_matrix():
    networks = scnn_networks((8, 8, 1), num_outputs=3, num_features=6, public_widths=(10,))
    params, x = networks.init(KEY), _rows(4, 8, 8, 1)
    w = networks.projection(params)
    assert w is not None
    assert w.shape == (4 * 4 * 32, 6)
    np.testing.assert_allclose(w.T @ w, np.eye(6), atol=1e-5)
    z = networks.private(params, x)
    assert z.shape == (4, 6)
    assert np.asarray(z).min() >= 0
    # The public network works on W z, so with W = 0 its output is constant.
    y = networks.public(params, z)
    assert y.shape == (4, 3)
    blind = jax.tree.map(lambda a: a, params)
    blind["private"]["projection"]["w"] = jnp.zeros_like(w)
    np.testing.assert_allclose(np.ptp(networks.public(blind, z), axis=0), 0.0, atol=1e-6)
    assert np.ptp(y, axis=0).min() > 1e-3


def test_scnn_drops_the_convolution_but_not_the_funnel():
    networks = scnn_networks((8, 8, 1), num_outputs=3, num_features=6)
    params, x = networks.init(KEY), _rows(4, 8, 8, 1)
    dropped = networks.private(params, x, key=KEY, dropout=0.5)
    assert not np.allclose(dropped, networks.private(params, x))
    # A dropped funnel would have about half of the live units at zero.
    live = np.asarray(networks.private(params, x)) > 0.2
    assert (np.asarray(dropped)[live] > 0).mean() > 0.7


def test_images_of_another_size_are_refused():
    networks = scnn_networks((8, 8, 1), num_outputs=2, num_features=5)
    params = networks.init(jax.random.key(0))
    for shape in ((3, 16, 16, 1), (3, 128)):
        with pytest.raises(ValueError, match="x must hold images of shape"):
            networks.private(params, jnp.zeros(shape))
    assert networks.private(params, jnp.zeros((3, 64))).shape == (3, 5)


def test_no_rows_are_no_rows_of_z():
    networks = scnn_networks((4, 4, 1), num_outputs=2, num_features=3)
    assert networks.private(networks.init(KEY), jnp.zeros((0, 16))).shape == (0, 3)


def test_more_features_than_the_private_layer_are_refused():
    settings = dict(num_outputs=2, private_filters=2)
    networks = scnn_networks((4, 4, 1), num_features=8, **settings)
    w = networks.projection(networks.init(KEY))
    assert w is not None
    np.testing.assert_allclose(w.T @ w, np.eye(8), atol=1e-6)
    with pytest.raises(ValueError, match="num_features must be at most 8"):
        scnn_networks((4, 4, 1), num_features=9, **settings)


def test_a_bad_image_shape_is_refused():
    with pytest.raises(ValueError, match="image_shape must be"):
        scnn_networks((64,), num_outputs=2)
