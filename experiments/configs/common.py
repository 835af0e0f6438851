"""Shared parts of the configs: methods, the paper's ranges of weights, the tiny version."""

from collections.abc import Sequence
from typing import Any

import ml_collections

# The paper trains MMD and KDI until the objective no longer declines: 200 to 800 epochs on HAR, more than the
# library's default allows.
CONVERGED = {"schedule": {"max_epochs": 1000}}
# The paper explores [2^-10, 2^10] for MMD and WDN, [2^-10, 1] for KDI, [2^-4, 2^12] for LSDN.
# These weights span the ranges and are denser where the curves bend.
MMD = (2.0**-10, 0.25, 1.0, 2.0, 4.0, 16.0, 64.0, 2.0**10)
WDN = (2.0**-10, 4.0, 2.0**10)
RFF = (2.0**-10, 1.0, 4.0, 16.0, 2.0**10)
KDI = (2.0**-10, 2.0**-9, 0.003, 2.0**-6, 1.0)
LSDN = (2.0**-4, 4.0, 16.0, 2.0**12)
WEIGHTS = {"mmd": MMD, "rff_mmd": RFF, "wdn": WDN, "kdi": KDI, "lsdn": LSDN}
NAMES = {"mmd": "MMD", "rff_mmd": "(RF)MMD", "wdn": "WDN", "kdi": "KDI", "lsdn": "LSDN"}

# The paper's "fixed schedule of 250 epochs" for WDN and LSDN may be the whole training or the time between
# two decays of the rates. At a tenth of the others' rates 250 epochs are too few: see `parts` in `har.py`.
LONG = {"schedule": {"kind": "fixed", "max_epochs": 1000}}

# Beyond the paper: bandwidths relative to the median distance of z. With fixed bandwidths z may shrink until
# the narrowest no longer separates its rows, while an attacker still does.
SCALE_FREE = {"name": "median_gaussian", "multiples": (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)}

METHODS, OBJECTIVES, PARTS = "methods", "objectives", "parts"  # the panels of a figure

# Data and sizes of the tiny versions, shared so that they share compiled programs.
TINY_SENSORS: dict[str, Any] = {"name": "simulated_sensors", "rows": 300, "users": 5}
TINY_NN: dict[str, Any] = {"private_widths": (5,), "public_widths": (8,)}
TINY_FACES: dict[str, Any] = {"name": "digits"}
TINY_LAYERS: dict[str, Any] = {"public_widths": (8,), "discriminator_widths": (8,)}


def experiment(name: str, title: str, *, data: dict[str, Any], networks: dict[str, Any], **fields) -> Any:
    """Return a config with everything but its methods.

    Args:
      name: Name of the results file.
      title: Title of the figure.
      data: Arguments of `privjax.datasets.load`, and `scale`, the scaling of the encoders.
      networks: `kind` (nn, cnn, scnn) and arguments of its constructor.
      **fields: `sweep` (arguments of `privjax.sweep`), `adversaries`, `utility_adversaries`.
    """
    config: Any = ml_collections.ConfigDict()
    config.name, config.title = name, title
    config.seeds, config.first_seed = 10, 0  # as many splits as in the paper
    config.data = ml_collections.ConfigDict(data)
    config.networks = ml_collections.ConfigDict(networks)
    config.adversaries = "all"
    config.utility_adversaries = "paper"
    config.sweep = ml_collections.ConfigDict({"checkpoint_every": 25})
    config.update(fields)
    config.methods = ml_collections.ConfigDict()
    return config


def trained(
    objective: str, *, networks: str = "NN", weights: Sequence[float] = (), panels=(), **fields
) -> Any:
    """Return a method that trains the three networks, with a member for each weight."""
    label = fields.pop("label", f"{networks}-{NAMES[objective]}")
    weights = tuple(weights) or WEIGHTS[objective]
    return ml_collections.ConfigDict(
        dict(label=label, objective=objective, weights=weights, panels=tuple(panels), **fields)
    )


def encoder(
    label: str, name: str, *, width: int = 0, weights: Sequence[float] = (0.0,), panels=(METHODS,)
) -> Any:
    """Return a method of `privjax.baselines`."""
    return ml_collections.ConfigDict(
        dict(label=label, encoder=name, width=width, weights=tuple(weights), panels=tuple(panels))
    )


def linear_baselines(width: int) -> dict[str, Any]:
    """Return the releases that need none of the paper's networks."""
    return {
        "raw": encoder("full-dimensional", "raw"),
        "pca": encoder("PCA", "pca", width=width),
        "random_projection": encoder("random projection", "random_projection", width=width),
        "linear_erasure": encoder("linear erasure", "linear_erasure"),
        "duca": encoder("DUCA", "duca", width=width, weights=(0.0, 1.0, 2.0**10)),
        # Its utility term grows with the batch (500 rows), so the weights are larger than MMD's.
        "duca_mmd": encoder("DUCA-MMD", "duca_mmd", width=width, weights=(2.0**6, 2.0**8, 2.0**10)),
    }


def smaller(
    config: Any,
    size: str,
    data: dict[str, Any],
    *,
    only: Sequence[str] = (),
    adversary: str = "linear_svm",
    **networks,
) -> Any:
    """Return the full config, or a tiny one on embedded data that runs in seconds, for tests.

    Args:
      config: The full config.
      size: "full" or "tiny".
      data: Data of the tiny config.
      only: Methods of the tiny config; all when empty. Compiling all of them takes minutes.
      adversary: Its only attacker.
      **networks: Settings of its networks.
    """
    if size not in ("full", "tiny"):
        raise ValueError(f"the size of a config must be full or tiny, got {size!r}.")
    if size == "full":
        return config
    config.name += "_tiny"
    config.seeds = 1
    config.data = ml_collections.ConfigDict(data)
    config.networks.update(networks)
    config.adversaries = config.utility_adversaries = adversary
    config.sweep.num_epochs = 1
    for name in [name for name in config.methods if only and name not in only]:
        del config.methods[name]
    for method in config.methods.values():
        method.weights = method.weights[-1:]
        if "data" in method:
            del method.data
        if "width" in method:
            method.width = min(method.width, 5)
    return config
