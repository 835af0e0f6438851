"""HAR, people the encoder never saw: does it hide them too?

    python experiments/main.py --config=experiments/configs/unseen_users.py --config.seeds=2

The set's original split by users, so seeds are of the training alone. The encoder learns on 21 users. Nine
others release their rows through it; an attacker who has four fifths of those rows with names tells who the
rest belong to. Half a minute a point on one core.

Only in part: MMD brings their names from 0.77 (2^-10) down to 0.25 (4) and 0.23 (16), KDI to 0.24 (2^-10),
two layers with a scale-free kernel to 0.20 (4), in the mean of two trainings, where the largest of the nine
is 0.13; people that the encoder saw are hidden down to guessing.
"""

from common import CONVERGED, METHODS, TINY_NN, TINY_SENSORS, experiment, smaller, trained
from har import deep_scale_free


def get_config(size: str = "full"):
    """MMD and KDI on the disjoint-user split."""
    config = experiment(
        "unseen_users",
        "HAR: activity against users never seen",
        data={"name": "har", "scale": "standard", "protocol": "disjoint_users"},
        networks={"kind": "nn", "private_widths": (50,), "public_widths": (500,)},
        attack_unseen_users=True,
    )
    config.methods.mmd = trained(
        "mmd", weights=(2.0**-10, 1.0, 4.0, 16.0), panels=(METHODS,), objective_settings=CONVERGED
    )
    config.methods.kdi = trained(
        "kdi",
        weights=(2.0**-10, 2.0**-9),
        panels=(METHODS,),
        data={"scale": "none"},
        objective_settings=CONVERGED,
    )
    config.methods.scale_free = deep_scale_free()
    return smaller(config, size, TINY_SENSORS, only=("mmd",), **TINY_NN)
