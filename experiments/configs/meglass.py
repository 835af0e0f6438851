"""MeGlass, convolutional mappings: glasses are the utility, the group of five people is private.

    python experiments/main.py --config=experiments/configs/meglass.py

It needs MeGlass (see `privjax datasets`). `cmu_faces.py` asks the same question of the CMU faces.
"""

from yaleb import faces


def get_config(size: str = "full"):
    """Return the paper's fourth experiment: 500 random people in 100 groups."""
    return faces("meglass", "MeGlass: glasses against group of people", size, only=("mmd",))
