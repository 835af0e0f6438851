"""YaleB, convolutional mappings: the group of people is the utility, the person is private.

    python experiments/main.py --config=experiments/configs/yaleb.py --config.seeds=2

Seven to eleven minutes a member of SCNN on one core, and two to attack it. Over two splits SCNN-MMD keeps the
group at 0.933 with the strongest of nine attackers naming the person at 0.247 (weight 0.5; the group alone
gives 0.10). At weight 1 the second split lost its utility, with four units of z alive, and at 4 the first.
LSDN gives 0.937 and 0.240 (weight 4; fifteen minutes a member, as WDN). KDI gave 0.894 and 0.184 on the
first split (2^-10, the least of the paper's range), RF-MMD 0.915 and 0.186 (weight 1), each run after a
weight that was seen there to be too strong or too weak; on the second split both lost a quarter of their
utility, with few units of z alive. WDN loses its utility at weight 4; at 1 it gives 0.907 and 0.379 on the
first split. Without the penalty no unit of z lived at weight 0.5. On a split that is not shown the scale-free
kernel kept 0.967 with 0.360 (weight 1). Rows compared within each group keep 0.916 with 0.164 (weight 1,
chosen after 4 and 16 on that split, where it gave 0.919 with 0.155), with the scale-free kernel 0.936 with
0.227 (weight 0.25, chosen after 1, beside 0.5 and a batch of 250, on that split, where it gave 0.946 with
0.159). CNN-MMD hides nothing: 0.995 with
0.943.
"""

from typing import Any

from common import (
    METHODS,
    OBJECTIVES,
    PARTS,
    SCALE_FREE,
    TINY_FACES,
    TINY_LAYERS,
    encoder,
    experiment,
    smaller,
    trained,
)

# A member of SCNN takes minutes on two cores: the part of the paper's ranges in which the curves bend.
WEIGHTS = {
    # 0.5 was added after 0.25 and 1 had been seen on both splits.
    "mmd": (2.0**-10, 0.25, 0.5, 1.0, 4.0),
    "kdi": (2.0**-10, 2.0**-8, 2.0**-6, 2.0**-4),
    "wdn": (1.0, 4.0, 16.0, 64.0),
    "lsdn": (1.0, 4.0, 16.0, 64.0),
    "rff_mmd": (0.5, 1.0, 4.0),
}
# Not in the paper: with the full weight from the first epoch NN-MMD loses all units of z at 4 and above.
WARM = {"schedule": {"warmup": 100}}


def get_config(size: str = "full"):
    """The paper's third experiment: 38 people in 4 groups, 32 x 32."""
    # 250 epochs in batches of 500 are 750 steps here, and 4000 were too few for critics on HAR.
    critics = {
        "sweep": {"batch_size": 125},
        "objective_settings": {"schedule": {"kind": "fixed", "warmup": 100}},
    }
    return faces("yaleb", "YaleB: group against person", size, critics=critics)


def faces(
    name: str,
    title: str,
    size: str,
    *,
    critics: dict[str, Any] | None = None,
    only: tuple[str, ...] = ("raw", "mmd", "free"),
    **fields,
):
    """NN, CNN and SCNN with MMD, then SCNN with the other objectives; funnel 50, public sphere 1024.

    Args:
      name: of the data set.
      title: of the figure.
      size: full or tiny.
      critics: settings of the methods with a discriminator.
      only: the methods of the tiny one.
      **fields: others of the experiment.
    """
    config = experiment(
        name,
        title,
        data={"name": name},
        networks={"kind": "scnn", "discriminator_widths": (1024, 1024)},
        **fields,
    )
    dense = {"kind": "nn", "public_widths": (1024,)}
    config.methods.raw = encoder("full-dimensional", "raw")
    mmd = {"weights": WEIGHTS["mmd"], "objective_settings": WARM}
    config.methods.nn_mmd = trained("mmd", networks="NN", panels=(METHODS,), replace=dense, **mmd)
    # Few weights: its z has 8192 numbers, and attackers take their time.
    config.methods.cnn_mmd = trained(
        "mmd",
        networks="CNN",
        panels=(METHODS,),
        replace={"kind": "cnn"},
        weights=(1.0, 4.0),
        objective_settings=WARM,
    )
    config.methods.mmd = trained("mmd", networks="SCNN", panels=(METHODS, OBJECTIVES, PARTS), **mmd)
    # Beyond the paper: what hid the most on HAR.
    config.methods.scale_free = trained(
        "mmd",
        label="SCNN-MMD, scale-free",
        panels=(METHODS,),
        weights=(0.5, 1.0, 2.0),
        objective_settings=WARM | {"kernel": SCALE_FREE},
    )
    # Beyond the paper too: rows are compared within each class of the utility, so that z may tell all of y.
    within = WARM | {"within_utility": True}
    config.methods.nn_within = trained(
        "mmd",
        label="NN-MMD, within y",
        panels=(METHODS,),
        replace=dense,
        weights=(4.0, 16.0),
        objective_settings=within,
    )
    config.methods.within = trained(
        "mmd",
        label="SCNN-MMD, within y",
        panels=(METHODS,),
        weights=(0.5, 1.0, 4.0),
        objective_settings=within,
    )
    # Both together.
    config.methods.within_scale_free = trained(
        "mmd",
        label="SCNN-MMD, within y, scale-free",
        panels=(METHODS,),
        weights=(0.25, 0.5),
        objective_settings=within | {"kernel": SCALE_FREE},
    )
    for objective in ("kdi", "wdn", "lsdn", "rff_mmd"):
        config.methods[objective] = trained(
            objective,
            networks="SCNN",
            panels=(OBJECTIVES,),
            weights=WEIGHTS[objective],
            **({"objective_settings": WARM} if objective in ("kdi", "rff_mmd") else critics or {}),
        )
    # The paper calls the penalty that keeps W orthonormal crucial.
    config.methods.free = trained(
        "mmd",
        label="SCNN-MMD, no orthonormality penalty",
        panels=(PARTS,),
        variant="free_projection",
        weights=(2.0**-10, 0.5, 1.0),
        objective_settings=WARM,
    )
    return smaller(config, size, TINY_FACES, only=only, **TINY_LAYERS)
