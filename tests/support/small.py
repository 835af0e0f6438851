"""A small data set that trains in a blink, and sweeps of it."""

import jax
import numpy as np

from privjax import datasets, nn_networks
from privjax.sweeping import sweep
from privjax.training import TrainData, hyperparameters, init_state, prepare, total_loss

NETWORKS = nn_networks(6, num_outputs=2, private_widths=(4,), public_widths=(8,))


def make_small(seed: int = 0, rows: int = 120):
    """Two activities of three people; the seed picks the split."""
    rng = np.random.default_rng(7)
    y, s = rng.integers(0, 2, rows), rng.integers(0, 3, rows)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    x[:, 0] += 2 * y
    x[:, 1] += 2 * s
    order = np.random.default_rng(seed).permutation(rows)
    split = datasets.Split(*(np.sort(part) for part in np.split(order, [rows * 6 // 10, rows * 8 // 10])))
    return datasets.Dataset.from_arrays(
        x, y, s, split=split, y_names=("sit", "walk"), s_names="abc", feature_names="abcdef", name="small"
    )


def small_sweep(data=make_small, **settings):
    """Four members, a few epochs."""
    defaults = dict(
        privacy_weights=[0.0, 2.0],
        seeds=[0, 1],
        networks=NETWORKS,
        batch_size=24,
        num_epochs=6,
        checkpoint_every=2,
    )
    return sweep(data, **{**defaults, **settings})


def small_gradient(objective: str, networks=NETWORKS, weights=None):
    """A batch of all rows, and the function of it that gives total_loss's gradient and parts."""
    data = make_small()
    arrays, config = prepare(data.x, data.y, data.s, objective=objective, networks=networks)
    arrays = arrays._replace(weights=weights)
    numbers = hyperparameters(config.objective, config.task, privacy_weight=2.0)
    state = init_state(numbers, arrays, config=config)

    def gradient(batch, axis=None):
        return jax.grad(total_loss, has_aux=True)(
            state.params, batch, numbers, config=config._replace(axis=axis), constants=state.constants
        )

    return TrainData(arrays.x, arrays.y, arrays.p, arrays.weights), gradient
