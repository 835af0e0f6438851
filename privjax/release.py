"""Release mechanisms: the last step from the private network's output to the release z.

A mechanism is a value, like a kernel. Training, encoders and audits apply the same mechanism, so a
network is trained for the release that leaves the device.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax import Array


class ReleaseMechanism(NamedTuple):
    """A release mechanism; build it once, because another function object is another compilation.

    Attributes:
      name: A key of `MECHANISMS`, so that a saved encoder can be loaded.
      apply: `apply(z, key)` returns the release [n, k] of z [n, d], row by row and differentiable in z.
      stochastic: Whether `apply` needs a key; otherwise the key may be None.
      settings: The arguments of the constructor in `MECHANISMS`.
    """

    name: str
    apply: Callable[[Array, Array | None], Array]
    stochastic: bool = False
    settings: tuple[tuple[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the name and the settings, for JSON."""
        return {"name": self.name, **dict(self.settings)}


@functools.cache
def exact() -> ReleaseMechanism:
    """Build the mechanism that releases z unchanged.

    Returns:
      The mechanism; every call returns the same value.

    Example:
      >>> exact().apply(3.0, None)
      3.0
    """
    return ReleaseMechanism("exact", lambda z, key: z)


MECHANISMS: dict[str, Callable[..., ReleaseMechanism]] = {"exact": exact}


def make_mechanism(settings: Mapping[str, Any]) -> ReleaseMechanism:
    """Build the mechanism with this `to_dict`, also after the dict went through JSON."""
    arguments = dict(settings)
    name = arguments.pop("name", None)
    if name not in MECHANISMS:
        raise ValueError(f"release must name its mechanism, one of {', '.join(MECHANISMS)}, got {name!r}.")
    return MECHANISMS[name](**arguments)
