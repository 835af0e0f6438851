"""MHEALTH, linear projections of raw frames: activity is the utility, the user is private.

    python experiments/main.py --config=experiments/configs/mhealth.py

Needs the ten logs of MHEALTH (see `privjax datasets`). `hapt.py` is the same protocol on frames that are
easier to have.
"""

from common import METHODS, OBJECTIVES, TINY_NN, TINY_SENSORS, experiment, linear_baselines, smaller, trained


def get_config(size: str = "full"):
    """The paper's second experiment: funnel 10 of 23 channels."""
    return frames("mhealth", "MHEALTH: activity against user", size, width=10)


def frames(name: str, title: str, size: str, *, width: int):
    """The protocol: 100 training and 25 test frames per activity and user, 400 frames apart.

    Args:
      name: of the data set.
      title: of the figure.
      size: full or tiny.
      width: of the baselines' projections, at most the number of channels.
    """
    config = experiment(
        name,
        title,
        data={"name": name},
        networks={"kind": "nn", "private_widths": (10,), "public_widths": (500,)},
    )
    for key, method in linear_baselines(width).items():
        config.methods[key] = method
    config.methods.mmd = trained("mmd", panels=(METHODS, OBJECTIVES))
    for objective in ("kdi", "wdn", "lsdn", "rff_mmd"):
        config.methods[objective] = trained(objective, panels=(OBJECTIVES,))
    return smaller(config, size, TINY_SENSORS, only=("mmd",), **TINY_NN)
