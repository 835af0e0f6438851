"""The paper's three networks: shapes, where dropout acts, tied projection; and a user's own."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_networks import nnx_networks

from privjax.networks import (
    cnn_networks,
    dropout,
    make_networks,
    nn_networks,
    scnn_networks,
)

KEY = jax.random.key(0)


def _shapes(params):
    return jax.tree.map(lambda a: a.shape, params)


def _rows(n, *shape):
    return jax.random.normal(jax.random.key(1), (n, *shape))


class TestNN:
    def test_has_the_papers_sizes_on_har(self):
        networks = nn_networks(561, num_outputs=6, num_private=30)
        params = networks.init(KEY)
        assert _shapes(params) == {
            "private": {"Dense_0": {"kernel": (561, 50), "bias": (50,)}},
            "public": {
                "Dense_0": {"kernel": (50, 500), "bias": (500,)},
                "Dense_1": {"kernel": (500, 6), "bias": (6,)},
            },
            "discriminator": {
                "Dense_0": {"kernel": (50, 1024), "bias": (1024,)},
                "Dense_1": {"kernel": (1024, 30), "bias": (30,)},
            },
        }
        z = networks.private(params, _rows(7, 561))
        assert z.shape == (7, 50)
        assert networks.public(params, z).shape == (7, 6)
        assert networks.discriminator(params, z).shape == (7, 30)
        assert networks.projection(params) is None

    def test_private_is_relu_of_a_linear_map(self):
        networks = nn_networks(4, num_outputs=2, private_widths=(3,))
        params = networks.init(KEY)
        x = _rows(5, 4)
        layer = params["private"]["Dense_0"]
        expected = np.maximum(np.asarray(x) @ layer["kernel"] + layer["bias"], 0)
        np.testing.assert_allclose(networks.private(params, x), expected, rtol=1e-5, atol=1e-6)

    def test_deeper_private_spheres_by_a_list_of_widths(self):
        networks = nn_networks((8, 8), num_outputs=2, private_widths=[32, 16, 5])
        params = networks.init(KEY)
        assert len(params["private"]) == 3
        assert networks.private(params, _rows(3, 8, 8)).shape == (3, 5)

    def test_the_funnel_is_never_dropped(self):
        networks = nn_networks(6, num_outputs=2)
        params, x = networks.init(KEY), _rows(20, 6)
        np.testing.assert_array_equal(
            networks.private(params, x, key=KEY, dropout=0.9), networks.private(params, x)
        )

    def test_hidden_layers_are_dropped_in_both_spheres(self):
        networks = nn_networks(6, num_outputs=2, private_widths=(40, 5))
        params, x = networks.init(KEY), _rows(20, 6)
        z = networks.private(params, x)
        assert not np.allclose(networks.private(params, x, key=KEY, dropout=0.5), z)
        y = networks.public(params, z)
        assert not np.allclose(networks.public(params, z, key=KEY, dropout=0.5), y)
        np.testing.assert_array_equal(networks.public(params, z, key=KEY, dropout=0.0), y)

    def test_without_private_outputs_there_is_no_discriminator(self):
        networks = nn_networks(6, num_outputs=2)
        params = networks.init(KEY)
        assert params["discriminator"] == {}
        with pytest.raises(ValueError, match="num_private="):
            networks.discriminator(params, jnp.ones((2, 50)))

    def test_same_settings_give_the_same_record(self):
        assert nn_networks(6, num_outputs=2, public_widths=[9]) is nn_networks(
            (6,), num_outputs=2, public_widths=(9,)
        )
        assert hash(nn_networks(6, num_outputs=2)) != hash(nn_networks(6, num_outputs=3))

    def test_bad_widths_name_the_argument(self):
        with pytest.raises(ValueError, match="private_widths must hold at least 1"):
            nn_networks(6, num_outputs=2, private_widths=())
        with pytest.raises(ValueError, match="public_widths"):
            nn_networks(6, num_outputs=2, public_widths=(0,))

    def test_numbers_of_numpy_are_numbers(self):
        settings = dict(private_widths=np.array([3]), public_widths=())
        networks = nn_networks(np.int64(11), num_outputs=np.int64(2), num_private=np.int32(4), **settings)
        text = json.dumps(dict(networks.settings or ()))
        assert make_networks(json.loads(text)) is networks
        assert networks is nn_networks(
            (11,), num_outputs=2, num_private=4, private_widths=(3,), public_widths=()
        )

    def test_bad_numbers_name_the_argument(self):
        for name, wrong in (("num_outputs", 0), ("num_private", -1)):
            with pytest.raises(ValueError, match=f"{name} must be at least"):
                nn_networks(4, **{"num_outputs": 2, name: wrong})

    def test_no_rows_are_no_rows_of_z(self):
        networks = nn_networks(4, num_outputs=2, private_widths=(3,))
        assert networks.private(networks.init(KEY), jnp.zeros((0, 4))).shape == (0, 3)


class TestConvolutional:
    def test_cnn_has_the_papers_sizes(self):
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

    def test_cnn_refuses_a_projection_width(self):
        with pytest.raises(TypeError, match="num_features"):
            cnn_networks((8, 8, 1), num_outputs=2, num_features=5)

    def test_scnn_rebuilds_with_the_same_orthonormal_matrix(self):
        networks = scnn_networks((8, 8, 1), num_outputs=3, num_features=6, public_widths=(10,))
        params, x = networks.init(KEY), _rows(4, 8, 8, 1)
        w = networks.projection(params)
        assert w is not None
        assert w.shape == (4 * 4 * 32, 6)
        np.testing.assert_allclose(w.T @ w, np.eye(6), atol=1e-5)
        z = networks.private(params, x)
        assert z.shape == (4, 6)
        assert np.asarray(z).min() >= 0
        # The public sphere sees W z, so with W = 0 it sees nothing.
        y = networks.public(params, z)
        assert y.shape == (4, 3)
        blind = jax.tree.map(lambda a: a, params)
        blind["private"]["projection"]["w"] = jnp.zeros_like(w)
        np.testing.assert_allclose(np.ptp(networks.public(blind, z), axis=0), 0.0, atol=1e-6)
        assert np.ptp(y, axis=0).min() > 1e-3

    def test_scnn_private_drops_the_convolution_but_not_the_funnel(self):
        networks = scnn_networks((8, 8, 1), num_outputs=3, num_features=6)
        params, x = networks.init(KEY), _rows(4, 8, 8, 1)
        dropped = networks.private(params, x, key=KEY, dropout=0.5)
        assert not np.allclose(dropped, networks.private(params, x))
        # A dropped funnel would have about half of the live units at zero.
        live = np.asarray(networks.private(params, x)) > 0.2
        assert (np.asarray(dropped)[live] > 0).mean() > 0.7

    def test_images_of_another_size_are_refused(self):
        networks = scnn_networks((8, 8, 1), num_outputs=2, num_features=5)
        params = networks.init(jax.random.key(0))
        for shape in ((3, 16, 16, 1), (3, 128)):
            with pytest.raises(ValueError, match="x must hold images of shape"):
                networks.private(params, jnp.zeros(shape))
        assert networks.private(params, jnp.zeros((3, 64))).shape == (3, 5)

    def test_no_rows_are_no_rows_of_z(self):
        networks = scnn_networks((4, 4, 1), num_outputs=2, num_features=3)
        assert networks.private(networks.init(KEY), jnp.zeros((0, 16))).shape == (0, 3)

    def test_more_features_than_the_layer_has_cannot_be_orthonormal(self):
        settings = dict(num_outputs=2, private_filters=2)
        networks = scnn_networks((4, 4, 1), num_features=8, **settings)
        w = networks.projection(networks.init(KEY))
        assert w is not None
        np.testing.assert_allclose(w.T @ w, np.eye(8), atol=1e-6)
        with pytest.raises(ValueError, match="num_features must be at most 8"):
            scnn_networks((4, 4, 1), num_features=9, **settings)

    def test_bad_image_shape(self):
        with pytest.raises(ValueError, match="image_shape must be"):
            scnn_networks((64,), num_outputs=2)


class TestDropout:
    def test_keeps_the_mean_and_the_rate(self):
        x = jnp.ones((500, 501))
        for rate in (0.1, 0.5, 0.9):
            y = np.asarray(dropout(x, key=KEY, rate=rate))
            assert abs((y == 0).mean() - rate) < 0.005
            assert abs(y.mean() - 1.0) < 0.02
            assert len(np.unique(y)) == 2

    def test_rate_zero_and_no_key_change_nothing(self):
        x = _rows(10, 10)
        np.testing.assert_array_equal(dropout(x, key=KEY, rate=0.0), x)
        np.testing.assert_array_equal(dropout(x, key=None, rate=0.5), x)

    def test_rate_one_drops_all(self):
        assert not np.asarray(dropout(_rows(10, 10), key=KEY, rate=1.0)).any()

    def test_another_rate_is_not_another_trace_and_vmap_equals_a_loop(self):
        traces = []

        def drop(rate, key):
            traces.append(rate)
            return dropout(jnp.ones((8, 8)), key=key, rate=rate)

        jitted = jax.jit(drop)
        rates, keys = jnp.array([0.0, 0.25, 0.5]), jax.random.split(KEY, 3)
        loop = jnp.stack([jitted(r, k) for r, k in zip(rates, keys, strict=True)])
        assert len(traces) == 1
        np.testing.assert_array_equal(jax.vmap(drop)(rates, keys), loop)


def test_nnx_modules_serve_behind_the_record():
    networks = nnx_networks(5, 3)
    params = networks.init(KEY)
    z = networks.private(params, _rows(4, 5))
    assert z.shape == (4, 8)
    assert networks.public(params, z).shape == (4, 3)
    gradients = jax.jit(jax.grad(lambda p: networks.public(p, networks.private(p, _rows(4, 5))).sum()))(
        params
    )
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))
