"""MeGlass, convolutional mappings: glasses are the utility, the group of five people is private.

    python experiments/main.py --config=experiments/configs/meglass.py

Needs MeGlass (see `privjax datasets`). `cmu_faces.py` is the same on faces that are easier to have.
"""

from yaleb import faces


def get_config(size: str = "full"):
    """The paper's fourth experiment: 500 random people in 100 groups."""
    return faces("meglass", "MeGlass: glasses against group of people", size, only=("mmd",))
