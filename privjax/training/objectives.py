"""The privacy objectives by name, with the rates and the schedule that the paper trains them by."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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


class Schedule(NamedTuple):
    """When the learning rates fall and when training ends.

    Attributes:
      kind: "plateau", rates fall when the epoch's objective fails to decline; or "fixed", rates
        fall `falls` times, evenly spread over the second half of `max_epochs`.
      max_epochs: training ends there in any case.
      falls: how often the rates fall.
      factor: by what.
      patience: "plateau" only: epochs without a decline before a fall. After the last fall, that
        many epochs without a decline mean convergence.
      threshold: "plateau" only: the least relative decline that counts.
      warmup: epochs over which the privacy weight grows, with the square of the time, to its full size; 0
        for the full weight at once, as in the paper. From the start a large weight may leave the
        funnel's units dead before the utility has shown them what to keep.
    """

    kind: str = "plateau"
    max_epochs: int = 250
    falls: int = 2
    factor: float = 0.1
    patience: int = 30
    threshold: float = 2e-3
    warmup: int = 0


class Objective(NamedTuple):
    """A privacy objective as training sees it: by name from `make_objective`, or your own.

    Both losses are called with z [n, d], one private variable p and the keywords `attribute` (its
    `Attribute`), `critic` (z -> its scores [n, width]; None without a discriminator loss), `weights`
    ([n] or None), `constants` and `key` (of this step; None when nothing is to be random). Build an
    own objective once: another function object is another compilation.

    Attributes:
      name: for results and messages.
      privacy_loss: small when z says nothing about p.
      discriminator_loss: what the discriminator minimises, or None when there is none.
      draw: `draw(key, width)` gives arrays drawn once for z of that width and passed as
        `constants`.
      continuous: whether p may be continuous.
      within_utility: whether only rows of the same utility class are compared (y must be classes): the mean
        over those classes of what z says of p beyond y. Where y itself tells of p, as a group does
        of its people, the paper's loss can only be small once y is lost too.
      private_rate: Adam's learning rate for the private network.
      public_rate: for the public network.
      discriminator_rate: for the discriminator.
      schedule: when these fall.
      settings: the loss's own settings as given to `make_objective`, for the record of a run.
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


def make_objective(name: str, **settings) -> Objective:
    """The paper's objective of that name; the same settings give the same record.

    Args:
      name: "mmd", "rff_mmd", "kdi", "wdn" or "lsdn".
      **settings: `kernel` (mmd, rff_mmd, kdi), `num_features` (rff_mmd), `rho` (kdi), `penalty`
        (wdn), and any field of `Objective`, such as `schedule`.
    """
    if name not in _MAKERS:
        raise ValueError(f"objective must be one of {', '.join(_MAKERS)}, got {name!r}.")
    for setting, value in settings.items():
        try:
            hash(value)
        except TypeError as error:
            raise TypeError(
                f"{setting} of an objective must be made of Python numbers: turn arrays into float(...)."
            ) from error
    return _make_objective(name, tuple(sorted(settings.items())))


@functools.cache
def _make_objective(name: str, settings: tuple) -> Objective:
    own = {k: v for k, v in settings if k not in Objective._fields}
    try:
        objective = _MAKERS[name](**own)
    except TypeError as error:
        raise TypeError(f"{name} does not know one of the settings {sorted(own)}.") from error
    fields = {k: v for k, v in settings if k in Objective._fields}
    return objective._replace(settings=tuple(own.items()), **fields)


def _mmd(kernel: Kernel | None = None) -> Objective:
    kernel = gaussian_mixture() if kernel is None else kernel

    def privacy_loss(z, p, *, attribute, weights, **_):
        return mmd_loss(z, p, kernel=kernel, num_classes=attribute.num_classes, weights=weights)

    return Objective("mmd", privacy_loss)


def _rff_mmd(kernel: Kernel | None = None, num_features: int = 1000) -> Objective:
    kernel = gaussian_mixture() if kernel is None else kernel

    def draw(key, width):
        return random_fourier_features(key, width, kernel=kernel, num_features=num_features)

    def privacy_loss(z, p, *, attribute, weights, constants, **_):
        return rff_mmd_loss(z, p, features=constants, num_classes=attribute.num_classes, weights=weights)

    return Objective("rff_mmd", privacy_loss, draw=draw)


def _kdi(kernel: Kernel | None = None, rho: float = 1e-4) -> Objective:
    kernel = gaussian_mixture() if kernel is None else kernel

    def privacy_loss(z, p, *, attribute, weights, **_):
        return kdi_loss(z, attribute.matrix(p), kernel=kernel, rho=rho, weights=weights)

    return Objective("kdi", privacy_loss, continuous=True)


def _adversarial(objective: Objective) -> Objective:
    # The discriminator must keep up with what it judges, so the others learn ten times slower.
    return objective._replace(private_rate=1e-4, public_rate=1e-4, schedule=Schedule("fixed"))


def _wdn(penalty: float = 10.0, noise: float = 0.0) -> Objective:
    def privacy_loss(z, p, *, attribute, critic, weights, **_):
        return wdn_privacy_loss(z, attribute.matrix(p), critic, weights=weights)

    def discriminator_loss(z, p, *, attribute, critic, weights, key, **_):
        return wdn_discriminator_loss(
            z,
            attribute.matrix(p),
            critic,
            penalty=penalty,
            noise=noise,
            key=key if noise else None,
            weights=weights,
        )

    return _adversarial(Objective("wdn", privacy_loss, discriminator_loss))


def _lsdn() -> Objective:
    def privacy_loss(z, p, *, attribute, critic, weights, **_):
        return lsdn_privacy_loss(z, attribute.matrix(p), critic, weights=weights)

    def discriminator_loss(z, p, *, attribute, critic, weights, **_):
        return lsdn_discriminator_loss(z, attribute.matrix(p), critic, weights=weights)

    return _adversarial(Objective("lsdn", privacy_loss, discriminator_loss, continuous=True))


_MAKERS = {"mmd": _mmd, "rff_mmd": _rff_mmd, "kdi": _kdi, "wdn": _wdn, "lsdn": _lsdn}
