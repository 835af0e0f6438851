"""MHEALTH's protocol on HAPT frames: activity is the utility, the user is private.

    python experiments/main.py --config=experiments/configs/hapt.py --config.seeds=3

A point takes two to five minutes on one core.
"""

from mhealth import frames


def get_config(size: str = "full"):
    """Return the config. With six channels instead of 23 the baselines project to 3; z keeps 10 columns."""
    return frames("hapt", "HAPT frames: activity against user", size, width=3)
