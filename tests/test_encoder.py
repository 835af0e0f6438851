"""The encoder: raw rows to z, its scaling, its files, and stochastic release mechanisms."""

import contextlib
import copy
import dataclasses
import functools
import json
import pickle
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_networks import nnx_networks

from privjax.encoder import Encoder, Scaling, fit_scaling
from privjax.files import write_arrays
from privjax.networks import apply_numpy, cnn_networks, linear_networks, nn_networks, scnn_networks
from privjax.release import MECHANISMS, ReleaseMechanism, exact, make_mechanism

RNG = np.random.default_rng(0)
IMAGES = dict(num_outputs=2, private_filters=3, public_filters=2, public_widths=(4,))
# (networks, shape of a raw row, number of parameters, multiply-adds)
CASES = {
    "nn": (nn_networks(6, num_outputs=2, private_widths=(5, 4)), (6,), 12 + 35 + 24, 30 + 20),
    "nn on windows": (nn_networks((4, 3), num_outputs=2, private_widths=(4,)), (4, 3), 6 + 52, 48),
    "cnn": (cnn_networks((6, 4, 2), **IMAGES), (6, 4, 2), 4 + 54 + 3, 54 * 24),
    "scnn": (scnn_networks((6, 4, 2), num_features=4, **IMAGES), (6, 4, 2), 4 + 57 + 76, 54 * 24 + 72),
    "scnn on flat rows": (scnn_networks((6, 4, 2), num_features=4, **IMAGES), (48,), 96 + 57 + 76, 1368),
    "linear": (linear_networks(6, num_features=3), (6,), 12 + 6 + 18 + 3, 18),
    "identity": (linear_networks(6, num_features=None), (6,), 12, 0),
}


def _raw(shape, rows=50):
    return (3.0 + 2.0 * RNG.normal(size=(rows, *shape))).astype(np.float32)


@functools.cache
def _encoder(name):
    networks, shape = CASES[name][:2]
    params = networks.init(jax.random.key(0))["private"]
    params = jax.tree.map(lambda a: np.asarray(a) + 0.1 * RNG.normal(size=a.shape).astype(np.float32), params)
    return Encoder(networks, params, fit_scaling(_raw(shape)), shape)


def _noise(scale):
    def apply(z, key):
        return z + scale * jax.random.normal(key, z.shape)

    return ReleaseMechanism("tiny_noise", apply, stochastic=True, settings=(("scale", scale),))


class TestScaling:
    def test_standard_has_mean_zero_and_spread_one(self):
        x = _raw((4, 3), rows=2000)
        scaled = fit_scaling(x).apply(x)
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(scaled.mean((0, 1)), 0.0, atol=1e-5)
        np.testing.assert_allclose(scaled.std((0, 1)), 1.0, atol=1e-5)

    def test_minmax_is_zero_to_one_and_none_changes_nothing(self):
        x = _raw((3,))
        scaled = fit_scaling(x, method="minmax").apply(x)
        np.testing.assert_allclose(scaled.min(0), 0.0, atol=1e-6)
        np.testing.assert_allclose(scaled.max(0), 1.0, atol=1e-6)
        np.testing.assert_array_equal(fit_scaling(x, method="none").apply(x), x)

    @pytest.mark.parametrize("method", ["standard", "minmax"])
    def test_constant_columns_become_zero(self, method):
        x = np.stack([np.full(100, 1e-7), np.full(100, 16777215.0), np.arange(100)], 1).astype(np.float32)
        scaling = fit_scaling(x, method=method)
        np.testing.assert_array_equal(scaling.spread[:2], 1.0)
        np.testing.assert_array_equal(scaling.apply(x)[:, :2], 0.0)

    def test_small_units_are_scaled(self):
        x = 1e-12 * _raw((3,))
        np.testing.assert_allclose(fit_scaling(x).apply(x).std(0), 1.0, rtol=1e-4)

    def test_sums_are_in_double(self):
        x = np.full((1_000_000, 1), 100.1, np.float32)
        x[::2] += 0.5
        scaling = fit_scaling(x)
        np.testing.assert_allclose(scaling.shift, x.astype(np.float64).mean(), rtol=1e-7)
        np.testing.assert_allclose(scaling.spread, 0.25, rtol=1e-6)

    @pytest.mark.parametrize("method", ["standard", "minmax"])
    def test_weights_count_rows(self, method):
        x = _raw((2, 3), rows=30)
        weights = np.arange(30) % 3
        repeated = fit_scaling(np.repeat(x, weights, axis=0), method=method)
        weighted = fit_scaling(x, method=method, weights=weights)
        np.testing.assert_allclose(weighted.shift, repeated.shift, rtol=1e-6)
        np.testing.assert_allclose(weighted.spread, repeated.spread, rtol=1e-6)

    def test_bad_arguments_are_named(self):
        with pytest.raises(ValueError, match="scaling must be one of standard, minmax, none, got 'robust'"):
            fit_scaling(_raw((3,)), method="robust")
        with pytest.raises(ValueError, match=r"x must hold rows \[n, ..., d\], got shape \(3,\)"):
            fit_scaling(np.ones(3))
        with pytest.raises(ValueError, match="weights are zero for all training rows"):
            fit_scaling(_raw((3,), rows=4), weights=np.zeros(4))


class TestCall:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", CASES)
    def test_jax_and_numpy_agree_on_raw_rows(self, name):
        encoder, shape = _encoder(name), CASES[name][1]
        x = _raw(shape, rows=33)
        z = encoder(x)
        assert (z.dtype, z.shape) == (np.float32, (33, encoder.width))
        np.testing.assert_allclose(apply_numpy(encoder.layers, x), z, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(encoder(x.reshape(33, -1)), z)

    @pytest.mark.parametrize("name", CASES)
    def test_size_and_cost(self, name):
        encoder = _encoder(name)
        assert (encoder.num_parameters, encoder.multiply_adds) == CASES[name][2:]

    def test_the_scaling_is_applied(self):
        encoder = _encoder("nn")
        x = _raw((6,))
        unscaled = Encoder(encoder.networks, encoder.params, fit_scaling(x, method="none"), (6,))
        np.testing.assert_allclose(unscaled(encoder.scaling.apply(x)), encoder(x), rtol=1e-5, atol=1e-6)
        assert not np.allclose(unscaled(x), encoder(x), atol=0.1)

    def test_blocks_do_not_show(self, monkeypatch):
        encoder, x = _encoder("nn"), _raw((6,), rows=23)
        whole = encoder(x)
        monkeypatch.setattr("privjax.encoder._BLOCK_ROWS", 4)
        np.testing.assert_allclose(encoder(x), whole, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("name", CASES)
    def test_no_rows_and_other_types(self, name):
        encoder, shape = _encoder(name), CASES[name][1]
        assert encoder(np.zeros((0, *shape))).shape == (0, encoder.width)
        whole = np.round(_raw(shape))
        np.testing.assert_allclose(encoder(whole.astype(np.int16)), encoder(whole), rtol=1e-4, atol=1e-4)

    def test_another_number_of_rows_is_seldom_another_compilation(self):
        networks, traces = CASES["nn"][0], []

        def private(params, x, **settings):
            traces.append(x.shape)
            return networks.private(params, x, **settings)

        encoder = Encoder(
            networks._replace(private=private), _encoder("nn").params, _encoder("nn").scaling, (6,)
        )
        for rows in range(65, 129):
            encoder(_raw((6,), rows=rows))
        assert traces == [(128, 6)]

    @pytest.mark.parametrize(
        ("x", "error", "message"),
        [
            (np.zeros((3, 5)), ValueError, r"x must hold rows of shape \(6, 4, 2\), or flat rows of 48 num"),
            (np.zeros((3, 2, 6, 4)), ValueError, r"got shape \(3, 2, 6, 4\)"),
            (np.zeros(48), ValueError, r"got shape \(48,\)"),
            (np.full((3, 48), "a"), TypeError, "x must hold real numbers, got <U1"),
        ],
    )
    def test_wrong_rows_are_refused_in_one_sentence(self, x, error, message):
        with pytest.raises(error, match=message):
            _encoder("scnn")(x)

    def test_it_describes_itself(self):
        assert repr(_encoder("nn")) == (
            "Encoder(x [6] -> z [4], 71 parameters, scaling standard, release exact)"
        )


class TestRelease:
    def test_a_stochastic_mechanism_needs_a_key_and_repeats_with_it(self):
        encoder = dataclasses.replace(_encoder("nn"), release=_noise(0.1))
        x = _raw((6,))
        with pytest.raises(ValueError, match="key is needed for the release mechanism tiny_noise"):
            encoder(x)
        first, same, other = (encoder(x, key=jax.random.key(seed)) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, same)
        assert not np.allclose(first, other)
        noise = first - _encoder("nn")(x)
        assert 0.08 < noise.std() < 0.12

    def test_each_block_has_its_own_noise(self, monkeypatch):
        monkeypatch.setattr("privjax.encoder._BLOCK_ROWS", 4)
        encoder = dataclasses.replace(_encoder("nn"), release=_noise(1.0))
        z = encoder(np.zeros((8, 6)), key=jax.random.key(0))
        assert not np.allclose(z[:4], z[4:])

    def test_the_layers_without_the_noise_are_not_given_away(self):
        encoder = dataclasses.replace(_encoder("nn"), release=_noise(0.1))
        with pytest.raises(ValueError, match="tiny_noise cannot be written as layers"):
            _ = encoder.layers

    def test_a_mechanism_of_the_registry_is_saved_with_the_encoder(self, tmp_path, monkeypatch):
        monkeypatch.setitem(MECHANISMS, "tiny_noise", functools.cache(_noise))
        mechanism = make_mechanism({"name": "tiny_noise", "scale": 0.1})
        encoder = dataclasses.replace(_encoder("nn"), release=mechanism)
        encoder.save(tmp_path / "encoder.npz")
        x, key = _raw((6,)), jax.random.key(0)
        np.testing.assert_array_equal(Encoder.load(tmp_path / "encoder.npz")(x, key=key), encoder(x, key=key))
        monkeypatch.delitem(MECHANISMS, "tiny_noise")
        with pytest.raises(ValueError, match="one of exact, got 'tiny_noise'"):
            Encoder.load(tmp_path / "encoder.npz")

    def test_exact_is_one_value_and_the_identity(self):
        assert exact() is exact() is make_mechanism(json.loads(json.dumps(exact().to_dict())))
        z = jnp.ones(3)
        assert exact().apply(z, None) is z


class TestFiles:
    @pytest.mark.parametrize("name", CASES)
    def test_a_saved_encoder_releases_the_same(self, name, tmp_path):
        encoder, path = _encoder(name), tmp_path / "encoder.npz"
        encoder.save(path)
        loaded = Encoder.load(path)
        x = _raw(CASES[name][1])
        np.testing.assert_array_equal(loaded(x), encoder(x))
        assert loaded.networks is encoder.networks
        assert [p.name for p in tmp_path.iterdir()] == ["encoder.npz"]

    def test_own_networks_are_given_again(self, tmp_path):
        networks = nnx_networks(6, 2)
        params = networks.init(jax.random.key(0))["private"]
        encoder = Encoder(networks, params, fit_scaling(_raw((6,))), (6,))
        encoder.save(tmp_path / "encoder.npz")
        with pytest.raises(ValueError, match="networks of your own: pass them as networks="):
            Encoder.load(tmp_path / "encoder.npz")
        x = _raw((6,))
        loaded = Encoder.load(tmp_path / "encoder.npz", networks=networks)
        np.testing.assert_array_equal(loaded(x), encoder(x))
        with pytest.raises(ValueError, match="layers are unknown"):
            _ = loaded.layers

    def test_networks_changed_by_the_user_are_not_taken_for_built_in(self):
        networks = CASES["nn"][0]._replace(private=lambda params, x, **_: x[:, :1])
        encoder = Encoder(networks, _encoder("nn").params, _encoder("nn").scaling, (6,))
        assert encoder.to_arrays()[0]["networks"] is None
        with pytest.raises(ValueError, match="layers are unknown"):
            _ = encoder.layers

    def test_only_the_private_half_is_written(self, tmp_path):
        _encoder("scnn").save(tmp_path / "encoder.npz")
        names = zipfile.ZipFile(tmp_path / "encoder.npz").namelist()
        assert sorted(names) == sorted(
            [
                "header.npy",
                *(f"params/convolution/{name}.npy" for name in ("bias", "kernel")),
                *(f"params/projection/{name}.npy" for name in ("b", "w")),
                *(f"scaling/{name}.npy" for name in ("shift", "spread")),
            ]
        )

    def test_any_flipped_or_missing_byte_is_noticed(self, tmp_path):
        path = tmp_path / "encoder.npz"
        _encoder("identity").save(path)
        content = path.read_bytes()
        for position in range(0, len(content), 7):
            changed = bytearray(content)
            changed[position] ^= 0x20
            path.write_bytes(changed)
            with contextlib.suppress(ValueError):
                loaded = Encoder.load(path)  # the byte may be no content, such as a time of day
                np.testing.assert_array_equal(loaded.scaling.shift, _encoder("identity").scaling.shift)
            path.write_bytes(content[:position])
            with pytest.raises(ValueError, match="is incomplete or damaged"):
                Encoder.load(path)

    def test_files_of_a_stranger_are_refused(self, tmp_path):
        path = tmp_path / "encoder.npz"
        header, arrays = _encoder("nn").to_arrays()
        header = {"format": "privjax-trained-encoder", "version": 1, **header}

        def refused(message, header=header, **changed):
            write_arrays(path, header, {**arrays, **changed})
            with pytest.raises(ValueError, match=message):
                Encoder.load(path)

        refused("params/Dense_0/bias must be finite", **{"params/Dense_0/bias": np.full(5, np.nan, "f4")})
        refused("params/Dense_0/bias must have the shape", **{"params/Dense_0/bias": np.zeros(4, "f4")})
        refused("scaling/spread must have the shape", **{"scaling/spread": np.ones(7, "f4")})
        refused(
            "must be of format privjax-trained-encoder 1, got privjax-trained-encoder 2",
            {**header, "version": 2},
        )
        refused("must be of format privjax-trained-encoder 1, got other 1", {**header, "format": "other"})
        refused("settings must name their kind", {**header, "networks": {"kind": "rnn"}})
        refused("cannot be loaded", {**header, "networks": {"kind": "nn"}})
        refused("cannot be loaded", {**header, "input_shape": None})

    def test_a_missing_file_is_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Encoder.load(tmp_path / "none.npz")


def test_parameters_that_fit_no_scaling_shape_are_named():
    header, arrays = _encoder("nn").to_arrays()
    assert isinstance(_encoder("nn").scaling, Scaling)
    del arrays["params/Dense_1/kernel"]
    with pytest.raises(ValueError, match="params/Dense_1/kernel must have the shape .*no such array"):
        Encoder.from_arrays(header, arrays)


@pytest.mark.parametrize("name", ["nn", "scnn", "linear"])
def test_encoders_can_be_pickled_and_copied(name):
    encoder, x = _encoder(name), _raw(CASES[name][1])
    for copied in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
        assert copied.networks is encoder.networks
        np.testing.assert_array_equal(copied(x), encoder(x))
