"""A continuous private attribute: progression of diabetes is the utility, age is private.

python experiments/main.py --config=experiments/configs/diabetes.py
"""

from common import METHODS, encoder, experiment, smaller, trained


def get_config(size: str = "full"):
    """KDI and LSDN, which need no classes. Scores are R^2."""
    config = experiment(
        "diabetes",
        "Diabetes: progression against age",
        data={"name": "diabetes", "private": "age"},
        networks={"kind": "nn", "private_widths": (6,), "public_widths": (50,)},
        sweep={"batch_size": 100, "checkpoint_every": 50},
    )
    config.methods.raw = encoder("full-dimensional", "raw")
    config.methods.kdi = trained("kdi", panels=(METHODS,))
    config.methods.lsdn = trained("lsdn", panels=(METHODS,))
    tiny = {"name": "diabetes", "private": "age"}
    return smaller(config, size, tiny, only=("raw", "kdi"), adversary="ridge", public_widths=(8,))
