"""A fitted transformer as arrays, applied with NumPy: nothing to compile for another number of rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Layers = tuple[tuple[np.ndarray, np.ndarray], ...]
_BLOCK = 4096  # rows worked on at a time: memory stays the same however many there are


class Model(NamedTuple):
    """Both spheres. In float64, so that a row gives the same numbers alone and among others.

    Attributes:
      mean: [features], taken from rows,
      spread: [features], by which they are then divided.
      private: kernels and biases of the private sphere.
      public: those of the public sphere.
      classes: of y; None when it is continuous.
      y_mean: added last to a continuous prediction,
      y_spread: after it was multiplied by this.
    """

    mean: np.ndarray
    spread: np.ndarray
    private: Layers
    public: Layers
    classes: np.ndarray | None
    y_mean: float = 0.0
    y_spread: float = 1.0

    def release(self, x: np.ndarray) -> np.ndarray:
        """The private sphere: z [n, d] for rows that are not scaled yet."""
        return _by_blocks(self._private, x)

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """The public sphere after the private one: logits [n, classes], or a standardised prediction."""
        return _by_blocks(lambda rows: _dense(self.public, self._private(rows)), x)

    def _private(self, rows: np.ndarray) -> np.ndarray:
        return np.maximum(_dense(self.private, (rows.astype(np.float64) - self.mean) / self.spread), 0)


def make_layers(params: dict[str, Any]) -> Layers:
    """The layers of a dense network from its parameters."""
    layers = (params[f"Dense_{i}"] for i in range(len(params)))
    return tuple((np.asarray(layer["kernel"]), np.asarray(layer["bias"])) for layer in layers)


def _dense(layers: Layers, x: np.ndarray) -> np.ndarray:
    for i, (kernel, bias) in enumerate(layers):
        x = (np.maximum(x, 0) if i else x) @ kernel + bias
    return x


def _by_blocks(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    return np.concatenate([function(x[i : i + _BLOCK]) for i in range(0, max(len(x), 1), _BLOCK)])
