"""HAR, NN-MMD with larger batches, which memory linear in the rows allows.

python experiments/main.py --config=experiments/configs/batches.py --config.seeds=1
"""

from common import METHODS, TINY_NN, TINY_SENSORS, experiment, smaller, trained

SIZES = {"rows_500": 500, "rows_2000": 2000, "all_rows": 10_299}


def get_config(size: str = "full"):
    """Batches of 500 rows, 2000 and all of them, each for the same number of epochs."""
    config = experiment(
        "batches",
        "HAR: size of the batch",
        data={"name": "har", "scale": "standard"},
        networks={"kind": "nn", "private_widths": (50,), "public_widths": (500,)},
    )
    for name, rows in SIZES.items():
        label = f"batch of {rows}" if rows < 10_000 else "all rows"
        config.methods[name] = trained(
            "mmd", label=label, weights=(1.0, 4.0, 16.0), panels=(METHODS,), sweep={"batch_size": rows}
        )
    return smaller(config, size, TINY_SENSORS, only=("rows_500",), **TINY_NN)
