"""A continuous private variable: progression of diabetes is the utility, age is private.

    python experiments/main.py --config=experiments/configs/diabetes.py --config.seeds=10

A split takes a quarter of a minute for KDI on one core, and a minute for LSDN.
"""

from common import METHODS, encoder, experiment, smaller, trained


def get_config(size: str = "full"):
    """Return the config: KDI and LSDN, scored by R^2."""
    config = experiment(
        "diabetes",
        "Diabetes: progression against age",
        data={"name": "diabetes", "private": "age"},
        networks={"kind": "nn", "private_widths": (6,), "public_widths": (50,)},
        sweep={"batch_size": 100, "checkpoint_every": 50},
    )
    config.methods.raw = encoder("full-dimensional", "raw")
    # An epoch has three steps, so 250 epochs would have fewer steps than 50 on HAR.
    config.methods.kdi = trained(
        "kdi",
        weights=(2.0**-10, 2.0**-8, 2.0**-6, 2.0**-4, 2.0**-3, 2.0**-2),
        panels=(METHODS,),
        objective_settings={"schedule": {"max_epochs": 1000}},
    )
    config.methods.lsdn = trained(
        "lsdn",
        weights=(2.0**-4, 1.0, 4.0, 64.0),
        panels=(METHODS,),
        objective_settings={"schedule": {"kind": "fixed", "max_epochs": 4000}},
    )
    tiny = {"name": "diabetes", "private": "age"}
    return smaller(config, size, tiny, only=("raw", "kdi"), adversary="ridge", public_widths=(8,))
