"""Privacy objectives by name: one registry entry states everything the library knows about an objective."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax import Array

from privjax import losses
from privjax.kernels import Kernel, gaussian_mixture

Value = TypeVar("Value")


class Attribute(NamedTuple):
    """A private variable."""

    name: str | None  # its key when p is a dict; None when p is one array
    num_classes: int  # 0 for a continuous variable
    width: int  # number of columns as a matrix

    def pick(self, values: Value | dict[str, Value]) -> Value:
        """Return this variable's entry of a dict with one value for each, or the only value."""
        return values if self.name is None else values[self.name]  # pyright: ignore

    def matrix(self, p: Array) -> Array:
        """Return labels as one-hot rows [n, width], or continuous values unchanged."""
        return jax.nn.one_hot(p, self.width) if self.num_classes else p


class Schedule(NamedTuple):
    """When the learning rates fall and when training ends.

    Attributes:
      kind: "plateau", where rates fall when the objective of an epoch stops declining, or "fixed", where
        rates fall `falls` times, evenly spread over the second half of `max_epochs`.
      max_epochs: Training ends after this number of epochs at the latest.
      falls: How often the rates fall.
      factor: Factor of one fall.
      patience: For "plateau", epochs without a decline before a fall. The same number of epochs without a
        decline after the last fall means convergence.
      threshold: For "plateau", the smallest relative decline that counts.
      warmup: Epochs over which the privacy weight grows, with the square of time, to its full size; 0 for
        the full weight at once, as in the paper. A large weight from the start may leave units of z dead
        before the utility has used them.
    """

    kind: str = "plateau"
    max_epochs: int = 250
    falls: int = 2
    factor: float = 0.1
    patience: int = 30
    threshold: float = 2e-3
    warmup: int = 0


class Objective(NamedTuple):
    """A privacy objective for training, from `make_objective` or written by a user.

    Build an objective once and pass the same value on: another function object is another compilation.

    A loss is a function of z [n, d] and of one private variable p, integer labels [n] or continuous values
    [n, k], with the keywords below. A loss of your own takes those that it needs, and `**_`.

    - `attribute`: the `Attribute`, with the number of classes and the width of p.
    - `critic`: maps z to the discriminator's scores [n, width]; None without a discriminator loss.
    - `weights`: sample weights [n], or None for equal weights.
    - `constants`: the result of `draw`.
    - `key`: the random key of this step; None for a deterministic loss.

    Attributes:
      name: Name in results and messages.
      privacy_loss: Small when z says nothing about p.
      discriminator_loss: The loss that the discriminator minimises; None without a discriminator.
      draw: `draw(key, width)` returns arrays drawn once for z of that width.
      continuous: Whether p may be continuous.
      within_utility: Whether only rows of the same class of y are compared, so that the loss measures the
        information of z about p beyond y. The paper's loss is small only when y, where it depends on p, is
        lost too.
      private_rate: Adam's learning rate for the private network.
      public_rate: Adam's learning rate for the public network.
      discriminator_rate: Adam's learning rate for the discriminator.
      schedule: When the rates fall and when training ends.
      settings: Settings of the loss as given to `make_objective`, for the record of a run.
    """

    name: str
    privacy_loss: Callable[..., Array]
    discriminator_loss: Callable[..., Array] | None = None
    draw: Callable[[Array, int], Any] | None = None
    continuous: bool = False
    within_utility: bool = False
    private_rate: float = 1e-3
    public_rate: float = 1e-3
    discriminator_rate: float = 1e-3
    schedule: Schedule = Schedule()
    settings: tuple[tuple[str, Any], ...] = ()


class ObjectiveEntry(NamedTuple):
    """The registry entry of a named objective."""

    name: str
    summary: str  # one line for help texts and documentation
    weights: Sequence[float]  # of a default sweep; 0 is the release without the objective
    make: Callable[..., Objective]  # takes the settings of the loss
    continuous: bool = False  # whether the private variable may be continuous


_MIXTURE = gaussian_mixture()
# The discriminator must keep up with the private network, so the other rates are ten times smaller.
_ADVERSARIAL = {"private_rate": 1e-4, "public_rate": 1e-4, "schedule": Schedule("fixed")}


def _mmd(kernel: Kernel = _MIXTURE) -> Objective:
    def privacy_loss(z, p, *, attribute, weights, **_):
        return losses.mmd_loss(z, p, kernel=kernel, num_classes=attribute.num_classes, weights=weights)

    return Objective("mmd", privacy_loss)


def _rff_mmd(kernel: Kernel = _MIXTURE, num_features: int = 1000) -> Objective:
    def draw(key, width):
        return losses.random_fourier_features(key, width, kernel=kernel, num_features=num_features)

    def privacy_loss(z, p, *, attribute, weights, constants, **_):
        return losses.rff_mmd_loss(
            z, p, features=constants, num_classes=attribute.num_classes, weights=weights
        )

    return Objective("rff_mmd", privacy_loss, draw=draw)


def _kdi(kernel: Kernel = _MIXTURE, rho: float = 1e-4) -> Objective:
    def privacy_loss(z, p, *, attribute, weights, **_):
        return losses.kdi_loss(z, attribute.matrix(p), kernel=kernel, rho=rho, weights=weights)

    return Objective("kdi", privacy_loss)


def _wdn(penalty: float = 10.0, noise: float = 0.0) -> Objective:
    def privacy_loss(z, p, *, attribute, critic, weights, **_):
        return losses.wdn_privacy_loss(z, attribute.matrix(p), critic, weights=weights)

    def discriminator_loss(z, p, *, attribute, critic, weights, key, **_):
        settings = {"penalty": penalty, "noise": noise, "key": key if noise else None}
        return losses.wdn_discriminator_loss(z, attribute.matrix(p), critic, weights=weights, **settings)

    return Objective("wdn", privacy_loss, discriminator_loss, **_ADVERSARIAL)


def _lsdn() -> Objective:
    def privacy_loss(z, p, *, attribute, critic, weights, **_):
        return losses.lsdn_privacy_loss(z, attribute.matrix(p), critic, weights=weights)

    def discriminator_loss(z, p, *, attribute, critic, weights, **_):
        return losses.lsdn_discriminator_loss(z, attribute.matrix(p), critic, weights=weights)

    return Objective("lsdn", privacy_loss, discriminator_loss, **_ADVERSARIAL)


# The weights of default sweeps cover the paper's range and are denser where curves bend.
_MMD_WEIGHTS = (0.0, 2.0**-10, 2.0**-4, 1.0, 2.0, 4.0, 8.0, 16.0, 2.0**10)
_KDI_WEIGHTS = (0.0, 2.0**-10, 2.0**-9, 2.0**-8, 2.0**-6, 2.0**-4, 1.0)
_WDN_WEIGHTS = (0.0, 2.0**-10, 2.0**-4, 1.0, 4.0, 16.0, 64.0, 2.0**10)
_LSDN_WEIGHTS = (0.0, 2.0**-4, 1.0, 16.0, 64.0, 2.0**8, 2.0**10, 2.0**12)
_ENTRIES = (
    ObjectiveEntry("mmd", "Maximum mean discrepancy of each class to the rest.", _MMD_WEIGHTS, _mmd),
    ObjectiveEntry("rff_mmd", "Maximum mean discrepancy on random Fourier features.", _MMD_WEIGHTS, _rff_mmd),
    ObjectiveEntry("kdi", "Kernel discriminant information.", _KDI_WEIGHTS, _kdi, continuous=True),
    ObjectiveEntry("wdn", "Wasserstein discriminator network.", _WDN_WEIGHTS, _wdn),
    ObjectiveEntry("lsdn", "Least-squares discriminator network.", _LSDN_WEIGHTS, _lsdn, continuous=True),
)
OBJECTIVES: dict[str, ObjectiveEntry] = {entry.name: entry for entry in _ENTRIES}


def make_objective(name: str, **settings: Any) -> Objective:
    """Build a named objective.

    Args:
      name: A key of `OBJECTIVES`.
      **settings: Settings of the loss, `kernel` (mmd, rff_mmd, kdi), `num_features` (rff_mmd), `rho` (kdi),
        `penalty` and `noise` (wdn), and any field of `Objective`, such as `schedule`.

    Returns:
      The objective; the same settings return the same value, so training compiles once.

    Example:
      >>> make_objective("kdi", rho=1e-3) is make_objective("kdi", rho=1e-3)
      True
    """
    if name not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {name!r}.")
    for setting, value in settings.items():
        try:
            hash(value)
        except TypeError as error:
            raise TypeError(
                f"{setting} of an objective must be made of Python numbers: turn arrays into float(...)."
            ) from error
    return _make_objective(OBJECTIVES[name], tuple(sorted(settings.items())))


@functools.cache
def _make_objective(entry: ObjectiveEntry, settings: tuple[tuple[str, Any], ...]) -> Objective:
    own = {name: value for name, value in settings if name not in Objective._fields}
    fields = {name: value for name, value in settings if name in Objective._fields}
    try:
        objective = entry.make(**own)
    except TypeError as error:
        raise TypeError(f"{entry.name} does not know one of the settings {sorted(own)}.") from error
    return objective._replace(continuous=entry.continuous, settings=tuple(own.items()))._replace(**fields)
