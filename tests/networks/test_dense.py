"""The dense networks NN: sizes, dropout, settings; and networks of a user."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_networks import nnx_networks

from privjax.networks import is_built_in, make_networks, nn_networks

KEY = jax.random.key(0)


def _shapes(params):
    return jax.tree.map(lambda a: a.shape, params)


def _rows(n, *shape):
    return jax.random.normal(jax.random.key(1), (n, *shape))


def test_nn_has_the_papers_sizes_on_har():
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


def test_the_private_network_is_relu_of_a_linear_map():
    networks = nn_networks(4, num_outputs=2, private_widths=(3,))
    params = networks.init(KEY)
    x = _rows(5, 4)
    layer = params["private"]["Dense_0"]
    expected = np.maximum(np.asarray(x) @ layer["kernel"] + layer["bias"], 0)
    np.testing.assert_allclose(networks.private(params, x), expected, rtol=1e-5, atol=1e-6)


def test_a_list_of_widths_gives_a_deeper_private_network():
    networks = nn_networks((8, 8), num_outputs=2, private_widths=[32, 16, 5])
    params = networks.init(KEY)
    assert len(params["private"]) == 3
    assert networks.private(params, _rows(3, 8, 8)).shape == (3, 5)


def test_the_funnel_is_never_dropped():
    networks = nn_networks(6, num_outputs=2)
    params, x = networks.init(KEY), _rows(20, 6)
    np.testing.assert_array_equal(
        networks.private(params, x, key=KEY, dropout=0.9), networks.private(params, x)
    )


def test_hidden_layers_of_both_networks_are_dropped():
    networks = nn_networks(6, num_outputs=2, private_widths=(40, 5))
    params, x = networks.init(KEY), _rows(20, 6)
    z = networks.private(params, x)
    assert not np.allclose(networks.private(params, x, key=KEY, dropout=0.5), z)
    y = networks.public(params, z)
    assert not np.allclose(networks.public(params, z, key=KEY, dropout=0.5), y)
    np.testing.assert_array_equal(networks.public(params, z, key=KEY, dropout=0.0), y)


def test_without_private_outputs_there_is_no_discriminator():
    networks = nn_networks(6, num_outputs=2)
    params = networks.init(KEY)
    assert params["discriminator"] == {}
    with pytest.raises(ValueError, match="num_private="):
        networks.discriminator(params, jnp.ones((2, 50)))


def test_same_settings_give_the_same_record():
    assert nn_networks(6, num_outputs=2, public_widths=[9]) is nn_networks(
        (6,), num_outputs=2, public_widths=(9,)
    )
    assert hash(nn_networks(6, num_outputs=2)) != hash(nn_networks(6, num_outputs=3))
    assert is_built_in(nn_networks(6, num_outputs=2))


def test_bad_widths_name_the_argument():
    with pytest.raises(ValueError, match="private_widths must hold at least 1"):
        nn_networks(6, num_outputs=2, private_widths=())
    with pytest.raises(ValueError, match="public_widths"):
        nn_networks(6, num_outputs=2, public_widths=(0,))


def test_numpy_integers_are_accepted_and_settings_survive_json():
    settings = dict(private_widths=np.array([3]), public_widths=())
    networks = nn_networks(np.int64(11), num_outputs=np.int64(2), num_private=np.int32(4), **settings)
    text = json.dumps(dict(networks.settings or ()))
    assert make_networks(json.loads(text)) is networks
    assert networks is nn_networks((11,), num_outputs=2, num_private=4, private_widths=(3,), public_widths=())


def test_bad_numbers_name_the_argument():
    for name, wrong in (("num_outputs", 0), ("num_private", -1)):
        with pytest.raises(ValueError, match=f"{name} must be at least"):
            nn_networks(4, **{"num_outputs": 2, name: wrong})


def test_no_rows_are_no_rows_of_z():
    networks = nn_networks(4, num_outputs=2, private_widths=(3,))
    assert networks.private(networks.init(KEY), jnp.zeros((0, 4))).shape == (0, 3)


def test_nnx_modules_work_behind_the_record():
    networks = nnx_networks(5, 3)
    params = networks.init(KEY)
    z = networks.private(params, _rows(4, 5))
    assert z.shape == (4, 8)
    assert networks.public(params, z).shape == (4, 3)
    gradients = jax.jit(jax.grad(lambda p: networks.public(p, networks.private(p, _rows(4, 5))).sum()))(
        params
    )
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))
