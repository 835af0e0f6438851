"""Privacy objectives by name: one registry entry states everything the library knows about an objective."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
from jax import Array

from privjax.kernels import Kernel, gaussian_mixture
from privjax.losses import (
    kdi_loss,
    lsdn_discriminator_loss,
    lsdn_privacy_loss,
    mmd_loss,
    random_fourier_features,
    rff_mmd_loss,
    wdn_discriminator_loss,
    wdn_privacy_loss,
)

Value = TypeVar("Value")


class Attribute(NamedTuple):
    """A private variable.

    Attributes:
      name: Its key when p is a dict; None when p is one array.
      num_classes: Number of classes; 0 for a continuous variable.
      width: Number of columns as a matrix.
    """

    name: str | None
    num_classes: int
    width: int

    def pick(self, values: Value | dict[str, Value]) -> Value:
        """Return this variable's entry of a dict with one value for each, or the only value."""
        return values if self.name is None else values[self.name]  # pyright: ignore

    def matrix(self, p: Array) -> Array:
        """Return labels as one-hot rows [n, width], or continuous values unchanged."""
        return jax.nn.one_hot(p, self.width) if self.num_classes else p


class PrivacyLoss(Protocol):
    """A loss of z [n, d] and one private variable p: integer labels [n], or continuous values [n, k].

    Args:
      attribute: Number of classes and width of p.
      critic: Map z to the discriminator's scores [n, width]; None without a discriminator loss.
      weights: Sample weights [n], or None for equal weights.
      constants: The result of `Objective.draw`.
      key: Random key of this step; None for a deterministic loss.
    """

    def __call__(
        self,
        z: Array,
        p: Array,
        /,
        *,
        attribute: Attribute,
        critic: Callable[[Array], Array] | None,
        weights: Array | None,
        constants: Any,
        key: Array | None,
    ) -> Array:
        """Return a scalar."""
        ...


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
    A loss of your own may take the keywords that it needs and `**_` for the others.

    Attributes:
      name: Name in results and messages.
      privacy_loss: Small when z says nothing about p.
      discriminator_loss: The loss that the discriminator minimises; None without a discriminator.
      draw: `draw(key, width)` returns arrays drawn once for z of that width, passed on as `constants`.
      continuous: Whether p may be continuous.
      within_utility: Whether only rows of the same class of y are compared, so that the loss measures the
        information of z about p beyond y. The paper's loss compares all rows: where y itself depends on p,
        it is small only when y is lost too.
      private_rate: Adam's learning rate for the private network.
      public_rate: Adam's learning rate for the public network.
      discriminator_rate: Adam's learning rate for the discriminator.
      schedule: When the rates fall and when training ends.
      settings: Settings of the loss as given to `make_objective`, for the record of a run.
    """

    name: str
    privacy_loss: PrivacyLoss
    discriminator_loss: PrivacyLoss | None = None
    draw: Callable[[Array, int], Any] | None = None
    continuous: bool = False
    within_utility: bool = False
    private_rate: float = 1e-3
    public_rate: float = 1e-3
    discriminator_rate: float = 1e-3
    schedule: Schedule = Schedule()
    settings: tuple[tuple[str, Any], ...] = ()


class ObjectiveEntry(NamedTuple):
    """The registry entry of a named objective.

    Attributes:
      name: The name in APIs, on the command line and in results.
      summary: One line for help texts and documentation.
      weights: Privacy weights of a default sweep, over the paper's range and denser where curves bend; 0 is
        the release without the objective.
      make: Build the objective from its own settings.
      continuous: Whether the private variable may be continuous.
    """

    name: str
    summary: str
    weights: Sequence[float]
    make: Callable[..., Objective]
    continuous: bool = False


OBJECTIVES: dict[str, ObjectiveEntry] = {}
_MMD_WEIGHTS = (0.0, 2.0**-10, 2.0**-4, 1.0, 2.0, 4.0, 8.0, 16.0, 2.0**10)
_MIXTURE = gaussian_mixture()
# The discriminator must keep up with the private network, so the other rates are ten times smaller.
_ADVERSARIAL = {"private_rate": 1e-4, "public_rate": 1e-4, "schedule": Schedule("fixed")}


def _entry(name: str, summary: str, weights: Sequence[float], *, continuous: bool = False):
    """Decorate the constructor of an objective with its entry in `OBJECTIVES`."""

    def register(make: Callable[..., Objective]) -> Callable[..., Objective]:
        OBJECTIVES[name] = ObjectiveEntry(name, summary, weights, make, continuous)
        return make

    return register


@_entry("mmd", "Maximum mean discrepancy of each class to the rest.", _MMD_WEIGHTS)
def _mmd(kernel: Kernel = _MIXTURE) -> Objective:
    def privacy_loss(z, p, *, attribute, weights, **_):
        return mmd_loss(z, p, kernel=kernel, num_classes=attribute.num_classes, weights=weights)

    return Objective("mmd", privacy_loss)


@_entry("rff_mmd", "Maximum mean discrepancy on random Fourier features.", _MMD_WEIGHTS)
def _rff_mmd(kernel: Kernel = _MIXTURE, num_features: int = 1000) -> Objective:
    def draw(key, width):
        return random_fourier_features(key, width, kernel=kernel, num_features=num_features)

    def privacy_loss(z, p, *, attribute, weights, constants, **_):
        return rff_mmd_loss(z, p, features=constants, num_classes=attribute.num_classes, weights=weights)

    return Objective("rff_mmd", privacy_loss, draw=draw)


_KDI_WEIGHTS = (0.0, 2.0**-10, 2.0**-9, 2.0**-8, 2.0**-6, 2.0**-4, 1.0)


@_entry("kdi", "Kernel discriminant information.", _KDI_WEIGHTS, continuous=True)
def _kdi(kernel: Kernel = _MIXTURE, rho: float = 1e-4) -> Objective:
    def privacy_loss(z, p, *, attribute, weights, **_):
        return kdi_loss(z, attribute.matrix(p), kernel=kernel, rho=rho, weights=weights)

    return Objective("kdi", privacy_loss)


_WDN_WEIGHTS = (0.0, 2.0**-10, 2.0**-4, 1.0, 4.0, 16.0, 64.0, 2.0**10)


@_entry("wdn", "Wasserstein discriminator network.", _WDN_WEIGHTS)
def _wdn(penalty: float = 10.0, noise: float = 0.0) -> Objective:
    def privacy_loss(z, p, *, attribute, critic, weights, **_):
        return wdn_privacy_loss(z, attribute.matrix(p), critic, weights=weights)

    def discriminator_loss(z, p, *, attribute, critic, weights, key, **_):
        key = key if noise else None
        p = attribute.matrix(p)
        return wdn_discriminator_loss(z, p, critic, penalty=penalty, noise=noise, key=key, weights=weights)

    return Objective("wdn", privacy_loss, discriminator_loss, **_ADVERSARIAL)


_LSDN_WEIGHTS = (0.0, 2.0**-4, 1.0, 16.0, 64.0, 2.0**8, 2.0**10, 2.0**12)


@_entry("lsdn", "Least-squares discriminator network.", _LSDN_WEIGHTS, continuous=True)
def _lsdn() -> Objective:
    def privacy_loss(z, p, *, attribute, critic, weights, **_):
        return lsdn_privacy_loss(z, attribute.matrix(p), critic, weights=weights)

    def discriminator_loss(z, p, *, attribute, critic, weights, **_):
        return lsdn_discriminator_loss(z, attribute.matrix(p), critic, weights=weights)

    return Objective("lsdn", privacy_loss, discriminator_loss, **_ADVERSARIAL)


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
