"""Layers: JAX, NumPy and ONNX state the same pass, and the NumPy functions stand alone."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privjax.encoder import Encoder
from privjax.networks import (
    LAYER_KINDS,
    NETWORKS,
    Layer,
    apply_jax,
    apply_numpy,
    cnn_networks,
    dense_layers,
    dropout,
    linear_networks,
    nn_networks,
    scnn_networks,
)
from privjax.networks.layers import LayerKind, OnnxNode, network_kind
from privjax.training import fit

RNG = np.random.default_rng(0)


def _normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# (layer, shape of a row, multiply-adds of a row)
LAYERS = {
    "scale": (Layer("scale", (_normal(3), np.abs(_normal(3)) + 0.5)), (2, 3), 0),
    "reshape": (Layer("reshape", shape=(3, 2)), (6,), 0),
    "dense": (Layer("dense", (_normal(6, 4), _normal(4))), (6,), 24),
    "dense_relu": (Layer("dense_relu", (_normal(6, 4), _normal(4))), (6,), 24),
    "convolve_pool_relu": (
        Layer("convolve_pool_relu", (_normal(3, 3, 2, 5), _normal(5)), (7, 6, 2)),
        (7, 6, 2),
        3 * 3 * 2 * 5 * 7 * 6,
    ),
}
NETWORKS_BY_KIND = {
    "nn": nn_networks((2, 3), num_outputs=2, private_widths=(5, 4)),
    "cnn": cnn_networks((6, 5, 2), num_outputs=2, private_filters=3),
    "scnn": scnn_networks((6, 5, 2), num_outputs=2, num_features=4, private_filters=3),
    "linear": linear_networks((2, 3), num_features=4),
    "identity": linear_networks((2, 3), num_features=None),
}


def _random_params(networks):
    params = networks.init(jax.random.key(0))["private"]
    return {"private": jax.tree.map(lambda a: a + jnp.asarray(_normal(*a.shape)), params)}


def _rows_for(networks, n):
    settings = dict(networks.settings)
    return _normal(n, *settings.get("input_shape", settings.get("image_shape")))


def test_the_cases_cover_every_layer_kind_and_network_kind():
    assert set(LAYERS) == set(LAYER_KINDS)
    assert {dict(networks.settings)["kind"] for networks in NETWORKS_BY_KIND.values()} == set(NETWORKS)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_jax_and_numpy_agree_on_each_layer(kind, rows):
    layer, shape, cost = LAYERS[kind]
    x = _normal(rows, *shape)
    expected = apply_jax([layer], jnp.asarray(x))
    found = apply_numpy([layer], x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert LAYER_KINDS[kind].multiply_adds(layer) == cost


@pytest.mark.parametrize("kind", NETWORKS_BY_KIND)
def test_the_layers_are_the_private_network(kind):
    networks = NETWORKS_BY_KIND[kind]
    params, x = _random_params(networks), _rows_for(networks, 9)
    z = networks.private(params, x)
    layers = networks.private_layers(jax.tree.map(np.asarray, params))
    np.testing.assert_allclose(apply_numpy(layers, x), z, rtol=1e-4, atol=1e-4)
    flat = x.reshape(len(x), -1)
    np.testing.assert_array_equal(networks.private(params, flat), z)


@pytest.mark.parametrize("kind", NETWORKS_BY_KIND)
def test_no_rows_give_no_rows_of_z(kind):
    networks = NETWORKS_BY_KIND[kind]
    params = _random_params(networks)
    z = networks.private(params, _rows_for(networks, 0))
    assert z.shape == (0, networks.private(params, _rows_for(networks, 2)).shape[1])


def test_the_numpy_pass_keeps_float64():
    layers = [LAYERS["convolve_pool_relu"][0], Layer("reshape", shape=(3 * 3 * 5,))]
    x = _normal(4, 7, 6, 2)
    wide = apply_numpy(layers, x.astype(np.float64))
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, apply_numpy(layers, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
def test_numpy_functions_run_from_their_source_with_numpy_alone(kind):
    layer, shape, _ = LAYERS[kind]
    function = LAYER_KINDS[kind].numpy
    namespace = {"np": np}
    exec(inspect.getsource(function), namespace)
    x = _normal(3, *shape)
    found = namespace[function.__name__](x, *layer.arrays, shape=layer.shape)
    np.testing.assert_array_equal(found, apply_numpy([layer], x))


@pytest.mark.parametrize("kind", LAYERS)
def test_onnx_nodes_agree_with_numpy(kind):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    layer, shape, _ = LAYERS[kind]
    nodes, constants, source = [], [], "x"
    for i, (operation, parameters, attributes) in enumerate(LAYER_KINDS[kind].onnx(layer)):
        names = [f"p{i}_{j}" for j in range(len(parameters))]
        constants += [onnx.numpy_helper.from_array(a, n) for a, n in zip(parameters, names, strict=True)]
        nodes.append(onnx.helper.make_node(operation, [source, *names], [f"step{i}"], **attributes))
        source = f"step{i}"
    x = _normal(5, *shape)
    expected = apply_numpy([layer], x)
    value = onnx.helper.make_tensor_value_info
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "layer", [value("x", float32, x.shape)], [value(source, float32, expected.shape)], constants
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run([source], {"x": x})[0], expected, rtol=1e-5, atol=1e-5)


def test_dropout_acts_on_hidden_layers_and_never_on_z():
    hidden, final = (
        Layer("dense_relu", (np.eye(50), np.zeros(50))),
        Layer("dense", (np.eye(50), np.zeros(50))),
    )
    x = jnp.ones((20, 50))
    key = jax.random.key(0)
    for last in (final, hidden):
        dropped = apply_jax([hidden, last], x, key=key, rate=0.5)
        assert 0.4 < (np.asarray(dropped) == 0).mean() < 0.6
    flat = Layer("reshape", shape=(50,))
    np.testing.assert_array_equal(apply_jax([hidden, flat], x, key=key, rate=0.5), x)


def test_a_linear_map_is_computed_about_its_mean():
    networks = linear_networks(2, num_features=1)
    mean = np.array([1e6, -1e6], np.float32)
    params = {"private": {"weights": np.ones((2, 1), np.float32), "mean": mean, "offset": np.full(1, 5.0)}}
    x = mean + np.array([[1.0, 2.0]], np.float32)
    np.testing.assert_array_equal(networks.private(params, x), [[8.0]])
    with pytest.raises(ValueError, match="no public network"):
        networks.public(params, x)


def test_dense_layers_of_a_public_network():
    networks = nn_networks(3, num_outputs=2, public_widths=(6, 5))
    params = networks.init(jax.random.key(0))
    z = _normal(7, 50)
    layers = dense_layers(params["public"], last="dense")
    np.testing.assert_allclose(apply_numpy(layers, z), networks.public(params, z), rtol=1e-5, atol=1e-5)


def test_dropout_keeps_the_mean_and_drops_at_the_rate():
    x = jnp.ones((500, 501))
    for rate in (0.1, 0.5, 0.9):
        y = np.asarray(dropout(x, key=jax.random.key(0), rate=rate))
        assert abs((y == 0).mean() - rate) < 0.005
        assert abs(y.mean() - 1.0) < 0.02
        assert len(np.unique(y)) == 2


def test_dropout_at_rate_zero_or_without_a_key_changes_nothing():
    x = _normal(10, 10)
    np.testing.assert_array_equal(dropout(x, key=jax.random.key(0), rate=0.0), x)
    np.testing.assert_array_equal(dropout(x, key=None, rate=0.5), x)


def test_dropout_at_rate_one_drops_all():
    assert not np.asarray(dropout(_normal(10, 10), key=jax.random.key(0), rate=1.0)).any()


def test_another_dropout_rate_is_not_another_trace():
    traces = []

    def drop(rate, key):
        traces.append(rate)
        return dropout(jnp.ones((8, 8)), key=key, rate=rate)

    jitted = jax.jit(drop)
    rates, keys = jnp.array([0.0, 0.25, 0.5]), jax.random.split(jax.random.key(0), 3)
    loop = jnp.stack([jitted(r, k) for r, k in zip(rates, keys, strict=True)])
    assert len(traces) == 1
    np.testing.assert_array_equal(jax.vmap(drop)(rates, keys), loop)


def test_a_layer_kind_and_a_network_kind_are_one_entry_each(monkeypatch, tmp_path):
    def square(x, *, shape):
        return x * x

    kind = LayerKind(square, square, onnx=lambda layer: [OnnxNode("Mul", layer.arrays)])
    monkeypatch.setitem(LAYER_KINDS, "square", kind)
    monkeypatch.setattr("privjax.networks.layers.NETWORKS", dict(NETWORKS))

    @network_kind("squares")
    def squares_networks(input_shape, *, num_outputs):
        dense = nn_networks(input_shape, num_outputs=num_outputs, private_widths=input_shape)

        def private_layers(params):
            return (Layer("square"),)

        def private(params, x, *, key=None, dropout=0.0):
            return apply_jax(private_layers(params), x, key=key, rate=dropout)

        return dense._replace(private=private, private_layers=private_layers)

    x = _normal(40, 3)
    networks = squares_networks(3, num_outputs=2)
    result = fit(x, x[:, 0] ** 2 > 0.5, x[:, 1] > 0, networks=networks, num_epochs=2)
    result.encoder.save(tmp_path / "encoder.npz")
    loaded = Encoder.load(tmp_path / "encoder.npz")
    assert loaded.networks is networks
    np.testing.assert_allclose(apply_numpy(loaded.layers, x), result.encoder(x), rtol=1e-5)
