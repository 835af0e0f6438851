"""MHEALTH's protocol on HAPT frames: activity is the utility, the user is private.

python experiments/main.py --config=experiments/configs/hapt.py --config.seeds=3
"""

from mhealth import frames


def get_config(size: str = "full"):
    """Six channels instead of 23: baselines project to 3, the NN's funnel stays 10."""
    return frames("hapt", "HAPT frames: activity against user", size, width=3)
