"""MHEALTH, linear projections of raw frames: activity is the utility, the user is private.

    python experiments/main.py --config=experiments/configs/mhealth.py

It needs the ten logs of MHEALTH (see `privjax datasets`). `hapt.py` runs the same protocol on HAPT.
"""

from typing import Any

from common import (
    METHODS,
    OBJECTIVES,
    SCALE_FREE,
    TINY_NN,
    TINY_SENSORS,
    experiment,
    linear_baselines,
    smaller,
    trained,
)

# These weights span the paper's ranges and are denser where the curves bend.
WEIGHTS = {
    "mmd": (2.0**-10, 4.0, 16.0, 64.0, 2.0**10),
    "kdi": (2.0**-10, 2.0**-8, 1.0),
    "wdn": (2.0**-10, 4.0, 16.0, 2.0**10),
    "lsdn": (2.0**-4, 64.0, 2.0**12),
    "rff_mmd": (2.0**-10, 4.0, 16.0, 2.0**10),
}
# Training ends when the objective no longer declines, or after as many steps as HAR's 1000 epochs.
CONVERGED = {"schedule": {"max_epochs": 500}}


def get_config(size: str = "full"):
    """Return the paper's second experiment: z of 10 columns from 23 channels."""
    return frames("mhealth", "MHEALTH: activity against user", size, width=10)


def frames(name: str, title: str, size: str, *, width: int):
    """Return the protocol: 100 training and 25 test frames per activity and user, 400 frames apart.

    Args:
      name: Name of the data set.
      title: Title of the figure.
      size: "full" or "tiny".
      width: Width of the baselines' projections, at most the number of channels.
    """
    config = experiment(
        name,
        title,
        data={"name": name},
        networks={"kind": "nn", "private_widths": (10,), "public_widths": (500,)},
    )
    for key, method in linear_baselines(width).items():
        config.methods[key] = method
    # WDN and LSDN take 250 epochs of 36 steps, more than half as many steps as HAR's 1000 epochs.
    for objective, weights in WEIGHTS.items():
        panels = (METHODS, OBJECTIVES) if objective == "mmd" else (OBJECTIVES,)
        settings: Any = {} if objective in ("wdn", "lsdn") else {"objective_settings": CONVERGED}
        config.methods[objective] = trained(objective, panels=panels, weights=weights, **settings)
    config.methods.scale_free = trained(
        "mmd",
        label="NN-MMD, scale-free",
        weights=(4.0,),
        panels=(METHODS,),
        objective_settings=CONVERGED | {"kernel": SCALE_FREE},
    )
    return smaller(config, size, TINY_SENSORS, only=("mmd",), **TINY_NN)
