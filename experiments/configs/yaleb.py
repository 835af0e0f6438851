"""YaleB, convolutional mappings: the group of people is the utility, the person is private.

python experiments/main.py --config=experiments/configs/yaleb.py --config.seeds=2
"""

from common import METHODS, OBJECTIVES, TINY_FACES, TINY_LAYERS, encoder, experiment, smaller, trained


def get_config(size: str = "full"):
    """The paper's third experiment: 38 people in 4 groups, 32 x 32."""
    return faces("yaleb", "YaleB: group against person", size)


def faces(name: str, title: str, size: str, only: tuple[str, ...] = ("raw", "nn_mmd", "cnn_mmd", "mmd")):
    """NN, CNN and SCNN with MMD, then SCNN with the other objectives; funnel 50, public sphere 1024.

    Args:
      name: of the data set.
      title: of the figure.
      size: full or tiny.
      only: the methods of the tiny one.
    """
    config = experiment(
        name,
        title,
        data={"name": name},
        networks={"kind": "scnn", "discriminator_widths": (1024, 1024)},
    )
    dense = {"kind": "nn", "public_widths": (1024,)}
    config.methods.raw = encoder("full-dimensional", "raw")
    config.methods.nn_mmd = trained("mmd", networks="NN", panels=(METHODS,), replace=dense)
    config.methods.cnn_mmd = trained("mmd", networks="CNN", panels=(METHODS,), replace={"kind": "cnn"})
    config.methods.mmd = trained("mmd", networks="SCNN", panels=(METHODS, OBJECTIVES))
    for objective in ("kdi", "wdn", "lsdn", "rff_mmd"):
        config.methods[objective] = trained(objective, networks="SCNN", panels=(OBJECTIVES,))
    return smaller(config, size, TINY_FACES, only=only, **TINY_LAYERS)
