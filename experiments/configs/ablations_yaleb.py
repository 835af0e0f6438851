"""YaleB, SCNN-MMD with and without the orthonormality penalty, which the paper calls crucial.

python experiments/main.py --config=experiments/configs/ablations_yaleb.py --config.seeds=1
"""

from common import METHODS, TINY_FACES, TINY_LAYERS, experiment, smaller, trained
from yaleb import WARM

WEIGHTS = (2.0**-10, 2.0)


def get_config(size: str = "full"):
    """The same SCNN, its W free to be anything."""
    config = experiment(
        "ablations_yaleb", "YaleB: ablations", data={"name": "yaleb"}, networks={"kind": "scnn"}
    )
    own = {"networks": "SCNN", "weights": WEIGHTS, "panels": (METHODS,), "objective_settings": WARM}
    config.methods.mmd = trained("mmd", **own)
    config.methods.free = trained(
        "mmd", label="SCNN-MMD, no orthonormality penalty", variant="free_projection", **own
    )
    return smaller(config, size, TINY_FACES, only=("free",), **TINY_LAYERS)
