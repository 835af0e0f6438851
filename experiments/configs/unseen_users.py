"""HAR, people the encoder never saw.

    python experiments/main.py --config=experiments/configs/unseen_users.py --config.seeds=2

This is the set's original split by users, so seeds vary the training only. The encoder learns on 21 users.
Nine others release their rows through it. An attacker has names for four fifths of those rows and names the
rest. A point takes half a minute on one core.
"""

from common import CONVERGED, METHODS, TINY_NN, TINY_SENSORS, experiment, smaller, trained
from har import deep_scale_free


def get_config(size: str = "full"):
    """Return MMD and KDI on the disjoint-user split."""
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
