"""HAR, what the objectives owe to their parts.

python experiments/main.py --config=experiments/configs/ablations_har.py --config.seeds=1
"""

from common import METHODS, TINY_NN, TINY_SENSORS, experiment, smaller, trained

WEIGHTS = (1.0, 4.0, 16.0)


def get_config(size: str = "full"):
    """A linear critic, a polynomial kernel, one Gaussian, no ReLU: each beside the method it changes."""
    config = experiment(
        "ablations_har",
        "HAR: ablations",
        data={"name": "har", "scale": "standard"},
        networks={"kind": "nn", "private_widths": (50,), "public_widths": (500,)},
    )
    own = {"weights": WEIGHTS, "panels": (METHODS,)}
    methods = config.methods
    methods.mmd = trained("mmd", **own)
    methods.polynomial = trained(
        "mmd",
        label="NN-MMD, 4th-order polynomial",
        objective_settings={"kernel": {"name": "polynomial", "order": 4, "gamma": 0.02}},  # 1 / width of z
        **own,
    )
    methods.gaussian = trained(
        "mmd",
        label="NN-MMD, one Gaussian",
        objective_settings={"kernel": {"name": "gaussian", "bandwidth": 4.0}},
        **own,
    )
    methods.no_relu = trained("mmd", label="NN-MMD, no ReLU", variant="linear_funnel", **own)
    methods.wdn = trained("wdn", **own)
    methods.linear_critic = trained(
        "wdn", label="NN-WDN, linear discriminator", replace={"discriminator_widths": ()}, **own
    )
    return smaller(config, size, TINY_SENSORS, only=("mmd",), **TINY_NN)
