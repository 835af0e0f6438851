"""The encoder: everything that runs on the device, from a raw row x to its release z.

Training, sweeps, baselines and the estimator return encoders; audits and exports take them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.files import read_arrays, write_arrays
from privjax.networks import LAYER_KINDS, Layer, Networks, Params, is_built_in, make_networks
from privjax.release import ReleaseMechanism, exact, make_mechanism

_FORMAT, _VERSION = "privjax-trained-encoder", 1
SCALINGS = ("standard", "minmax", "none")
_BLOCK_ROWS = 4096  # rows in one call of a network
_BLOCK_NUMBERS = 1 << 22  # numbers of x in one step of the scaling
# A constant column is centred and keeps spread 1. The floor is relative, because units may be small.
_SPREAD_FLOOR = 1e-8
_LARGEST = float(np.finfo(np.float32).max)

Rows = Shaped[ArrayLike, "n ..."] | Sequence[Sequence[float]]
SampleWeights = Shaped[ArrayLike, " n"]


class Scaling(NamedTuple):
    """The map `(x - shift) / spread` along the last axis of x."""

    method: str
    shift: np.ndarray  # [d] float32
    spread: np.ndarray  # [d] float32

    def apply(self, x: Rows) -> Float[np.ndarray, "n ..."]:
        """Scale rows in blocks, in the precision of x, and return float32."""
        x = np.asarray(x)
        scaled = np.empty(x.shape, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in _row_blocks(x):
                scaled[rows] = (x[rows] - self.shift) / self.spread
        return scaled


def fit_scaling(x_train: Rows, *, method: str = "standard", weights: SampleWeights | None = None) -> Scaling:
    """Learn a scaling along the last axis of the training rows; the spread of a constant column is 1.

    Example:
      >>> fit_scaling([[0.0, 5.0], [4.0, 5.0]]).apply([[6.0, 5.0]])
      array([[2., 0.]], dtype=float32)
    """
    if method not in SCALINGS:
        raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, got {method!r}.")
    x = np.asarray(x_train)
    if x.ndim < 2 or not x.size:
        raise ValueError(f"x must hold rows [n, ..., d], got shape {x.shape}.")
    if method == "none":
        return Scaling(method, np.zeros(x.shape[-1], np.float32), np.ones(x.shape[-1], np.float32))
    w = np.ones(len(x)) if weights is None else np.asarray(weights, np.float64)
    if not w.any():
        raise ValueError("weights are zero for all training rows: give some of them a positive weight.")
    if method == "standard":
        shift = _weighted_mean(x, w, lambda block: block)
        spread = np.sqrt(_weighted_mean(x, w, lambda block: np.square(block - shift)))
    else:
        counted = x.reshape(len(x), -1, x.shape[-1])[w > 0]
        shift = counted.min((0, 1)).astype(np.float64)
        spread = counted.max((0, 1)) - shift
    floor = np.maximum(_SPREAD_FLOOR * np.abs(shift), np.finfo(np.float32).tiny)
    spread = np.where(spread > floor, np.minimum(spread, _LARGEST), 1.0)
    return Scaling(method, shift.astype(np.float32), spread.astype(np.float32))


def _weighted_mean(x: np.ndarray, weights: np.ndarray, function: Callable[..., np.ndarray]) -> np.ndarray:
    """Average a function of x over all axes but the last, in float64: float32 sums lose digits."""
    total = np.zeros(x.shape[-1])
    for rows in _row_blocks(x):
        block = function(x[rows].astype(np.float64))
        total += (weights[rows] @ block.reshape(len(block), -1)).reshape(-1, x.shape[-1]).sum(0)
    return total / (weights.sum() * (x[:1].size // x.shape[-1]))


def _row_blocks(x: np.ndarray) -> Iterator[slice]:
    step = max(1, _BLOCK_NUMBERS // max(1, x[:1].size))
    return (slice(start, start + step) for start in range(0, len(x), step))


@dataclasses.dataclass(frozen=True, eq=False)
class Encoder:
    """The private half of a trained model: a function of raw rows x to the release z.

    Attributes:
      networks: The networks that `params` belong to.
      params: Parameters of the private network alone.
      scaling: Applied to raw rows first.
      input_shape: Shape of one raw row.
      release: Applied to the output of the private network.

    Example:
      >>> from privjax.networks import linear_networks
      >>> networks = linear_networks(2, num_features=None)
      >>> scaling = fit_scaling([[0.0, 0.0], [4.0, 2.0]])
      >>> Encoder(networks, {}, scaling, (2,))([[4.0, 0.0]])
      array([[ 1., -1.]], dtype=float32)
    """

    networks: Networks
    params: Params
    scaling: Scaling
    input_shape: tuple[int, ...]
    release: ReleaseMechanism = exact()

    def __call__(self, x: Rows, *, key: Array | None = None) -> Float[np.ndarray, "n d"]:
        """Release z for raw rows, or for flat rows of the same size; a stochastic mechanism needs a key."""
        rows, size = np.asarray(x), math.prod(self.input_shape)
        if rows.ndim < 2 or rows.shape[1:] not in (self.input_shape, (size,)):
            raise ValueError(
                f"x must hold rows of shape {self.input_shape}, or flat rows of {size} numbers, "
                f"got shape {rows.shape}."
            )
        if rows.dtype.kind in "OSUMmc":
            raise TypeError(f"x must hold real numbers, got {rows.dtype}: encode text as numbers.")
        if self.release.stochastic and key is None:
            raise ValueError(f"key is needed for the release mechanism {self.release.name}: pass a jax key.")
        return apply_in_blocks(
            release_function(self.networks, self.release),
            {"private": self.params},
            rows.reshape(len(rows), *self.input_shape),
            key=key if self.release.stochastic else None,
            prepare=self.scaling.apply,
        )

    @functools.cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Scaling and private network as plain layers with NumPy parameters, for exports."""
        if self.networks.private_layers is None or not is_built_in(self.networks):
            raise ValueError("networks are your own, so their layers are unknown: use those of privjax.")
        if self.release.name != "exact":
            raise ValueError(f"the release mechanism {self.release.name} cannot be written as layers.")
        scale = Layer("scale", (self.scaling.shift, self.scaling.spread))
        layers = (scale, *self.networks.private_layers({"private": self.params}))
        plain = (tuple(np.asarray(a, np.float32) for a in layer.arrays) for layer in layers)
        return tuple(layer._replace(arrays=arrays) for layer, arrays in zip(layers, plain, strict=True))

    @functools.cached_property
    def width(self) -> int:
        """Number of columns of z."""
        apply = release_function(self.networks, self.release)
        row = jax.ShapeDtypeStruct((1, *self.input_shape), np.float32)
        return jax.eval_shape(apply, {"private": self.params}, row, key=jax.random.key(0)).shape[-1]

    @property
    def num_parameters(self) -> int:
        """Number of parameters, including those of the scaling."""
        return sum(array.size for array in self.to_arrays()[1].values())

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds that one row costs, scaling aside."""
        return sum(LAYER_KINDS[layer.kind].multiply_adds(layer) for layer in self.layers)

    def __repr__(self) -> str:
        """Describe input, output and size in one line."""
        return (
            f"Encoder(x {list(self.input_shape)} -> z [{self.width}], {self.num_parameters} parameters, "
            f"scaling {self.scaling.method}, release {self.release.name})"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle settings and parameters, because functions of networks cannot be pickled."""
        built_in = is_built_in(self.networks)
        return (Encoder.from_arrays, self.to_arrays()) if built_in else super().__reduce_ex__(protocol)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return a JSON header and arrays by name, from which `from_arrays` builds an equal encoder."""
        header = {
            "networks": dict(self.networks.settings or ()) if is_built_in(self.networks) else None,
            "scaling": self.scaling.method,
            "input_shape": list(self.input_shape),
            "release": self.release.to_dict(),
        }
        arrays = {"scaling/shift": self.scaling.shift, "scaling/spread": self.scaling.spread}
        for path, array in jax.tree_util.tree_leaves_with_path(self.params):
            arrays[_name_of(path)] = np.asarray(array)
        return header, arrays

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, networks: Networks | None = None
    ) -> Encoder:
        """Build an encoder from the result of `to_arrays`; networks of your own are passed along.

        Arrays that are not finite or do not fit the networks are refused.
        """
        if networks is None:
            if header.get("networks") is None:
                raise ValueError("the encoder has networks of your own: pass them as networks=.")
            networks = make_networks(header["networks"])
        template = jax.eval_shape(networks.init, jax.random.key(0))["private"]
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: _fitting_array(arrays, _name_of(path), leaf.shape), template
        )
        shape = tuple(int(side) for side in header["input_shape"])
        shift, spread = (_fitting_array(arrays, f"scaling/{n}", shape[-1:]) for n in ("shift", "spread"))
        scaling = Scaling(str(header["scaling"]), shift, spread)
        return cls(networks, params, scaling, shape, make_mechanism(header["release"]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the encoder to one `.npz`; an old file is replaced once the new one is complete."""
        header, arrays = self.to_arrays()
        write_arrays(Path(path).expanduser(), {"format": _FORMAT, "version": _VERSION, **header}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, networks: Networks | None = None) -> Encoder:
        """Read an encoder that `save` wrote; networks of your own are passed along.

        A damaged or changed file is refused, and nothing is unpickled.
        """
        header, arrays = read_arrays(path := Path(path).expanduser())
        found = header.get("format"), header.get("version")
        if found != (_FORMAT, _VERSION):
            raise ValueError(f"{path} must be of format {_FORMAT} {_VERSION}, got {found[0]} {found[1]}.")
        try:
            return cls.from_arrays(header, arrays, networks=networks)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"{path} cannot be loaded: {error}") from None


def _name_of(path: tuple[Any, ...]) -> str:
    return "params/" + jax.tree_util.keystr(path, simple=True, separator="/")


def _fitting_array(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array of a name, if it has the shape and is finite."""
    found = arrays[name].shape if name in arrays else "no such array"
    if found != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {found}.")
    if not np.isfinite(arrays[name]).all():
        raise ValueError(f"{name} must be finite, but it holds NaN or infinity.")
    return arrays[name]


@functools.cache
def release_function(networks: Networks, release: ReleaseMechanism) -> Callable[..., Array]:
    """Return private network and mechanism as one function `(params, scaled rows, *, key=None)`, once."""

    def apply(params: Params, x: Array, *, key: Array | None = None) -> Array:
        return release.apply(networks.private(params, x), key)

    return apply


def apply_in_blocks(
    function: Callable[..., Array], params: Params, x: np.ndarray, *, key: Array | None = None, prepare=None
) -> np.ndarray:
    """Apply `function(params, rows, key=key)` to rows in blocks, each prepared in NumPy first."""
    compiled = jax.jit(function)  # compiled programs are kept by function, whatever the parameters
    blocks = []
    for number, start in enumerate(range(0, max(len(x), 1), _BLOCK_ROWS)):
        rows = x[start : start + _BLOCK_ROWS]
        rows = rows.astype(np.float32) if prepare is None else prepare(rows)
        # Each number of rows is another compilation: powers of two are few. No rows become one row.
        size = 1 << max(len(rows) - 1, 0).bit_length()
        padded = np.pad(rows, [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1))
        block_key = None if key is None else jax.random.fold_in(key, number)
        blocks.append(np.asarray(compiled(params, padded, key=block_key), np.float32)[: len(rows)])
    return np.concatenate(blocks)
