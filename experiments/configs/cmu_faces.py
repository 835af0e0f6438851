"""MeGlass's question on the CMU faces: sunglasses are the utility, the person is private.

python experiments/main.py --config=experiments/configs/cmu_faces.py --config.seeds=2
"""

from yaleb import faces


def get_config(size: str = "full"):
    """Twenty people, about 30 images each."""
    return faces("cmu_faces", "CMU faces: sunglasses against person", size, only=("mmd",))
