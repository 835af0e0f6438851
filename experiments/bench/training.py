"""Time of one training step: privjax against eager PyTorch and torch.compile, on the same data in one run.

    python experiments/bench/training.py

The configuration is HAR's (8239 x 561, z of 50 columns, batch 500, MMD over 30 users, dropout 0.5) on random
numbers. SCNN at 32 x 32 is compared with XLA's own convolutions and pooling of every image W z. Contenders
take turns, and the best of each counts.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from timing import best_times

from privjax.losses import mmd_loss
from privjax.networks import Networks, apply_jax, dense_layers, scnn_networks
from privjax.networks import dropout as drop
from privjax.numerics.convolution import convolve_and_pool
from privjax.training import (
    TrainData,
    hyperparameters,
    init_state,
    measure,
    one_blas_thread,
    prepare,
    total_loss,
    train_epochs,
)

ROWS, FEATURES, FUNNEL, HIDDEN, ACTIVITIES, USERS, BATCH = 8239, 561, 50, 500, 6, 30, 500
WEIGHT = 4.0


def best_of(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of some rounds, in which the runs take turns."""
    return {name: ms / 1e3 for name, ms in best_times(runs, repeats=rounds).items()}


def har_sized(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random x, y, s of HAR's sizes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return x, rng.integers(0, ACTIVITIES, ROWS), rng.integers(0, USERS, ROWS)


def ours(x, y, s, epochs: int) -> tuple[Callable[[], Any], int]:
    """A call that trains for some epochs, all monitoring included, and its number of steps."""
    data, config = prepare(x, y, s, batch_size=BATCH)
    data = jax.device_put(data)
    numbers = hyperparameters(config.objective, config.task, privacy_weight=WEIGHT)
    state = init_state(numbers, data, config=config)

    def run():
        with one_blas_thread():  # as `fit` and `sweep` do
            jax.block_until_ready(train_epochs(state, data, numbers, config=config, num_epochs=epochs)[0])

    return run, epochs * (ROWS // BATCH)


def torch_runs(x, y, s, steps: int) -> dict[str, Callable[[], Any]]:
    """The same model, loss and optimizer in PyTorch, eager and compiled."""
    import torch  # pyright: ignore[reportMissingImports]  (in the bench extra only)

    torch.set_num_threads(2)
    torch.manual_seed(0)
    xs, ys = torch.from_numpy(x), torch.from_numpy(y)
    ps = torch.nn.functional.one_hot(torch.from_numpy(s), USERS).float()

    def mmd(z, p):
        squares = (z * z).sum(1)
        distances = (squares[:, None] + squares[None] - 2 * z @ z.T).clamp(min=0)
        k = sum(torch.exp(-distances / (2 * b * b)) for b in (1, 2, 4, 8, 16)) / 5
        size = p.sum(0)
        contrast = p / size - (1 - p) / (len(z) - size)
        squared = (contrast * (k @ contrast)).sum(0)
        return (size / len(z) * torch.sqrt(squared.clamp(min=1e-12))).sum()

    def stepper(compiled: bool):
        private = torch.nn.Sequential(torch.nn.Linear(FEATURES, FUNNEL), torch.nn.ReLU())
        public = torch.nn.Sequential(
            torch.nn.Linear(FUNNEL, HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(HIDDEN, ACTIVITIES),
        )
        optimizer = torch.optim.Adam([*private.parameters(), *public.parameters()], lr=1e-3)

        def loss(x, y, p):
            z = private(x)
            return torch.nn.functional.cross_entropy(public(z), y) + WEIGHT * mmd(z, p)

        if compiled:
            loss = torch.compile(loss)

        def run():
            order = torch.randperm(ROWS)
            for i in range(steps):
                start = i * BATCH % (ROWS - BATCH)
                rows = order[start : start + BATCH]
                optimizer.zero_grad()
                loss(xs[rows], ys[rows], ps[rows]).backward()
                optimizer.step()

        return run

    return {"PyTorch eager": stepper(False), "torch.compile": stepper(True)}


def parts_of_a_step(x, y, s) -> dict[str, Callable[[], Any]]:
    """Each part of our step alone, to see where its time goes; a hundred at a time in one scan."""
    data, config = prepare(x, y, s, batch_size=BATCH)
    data = jax.device_put(data)
    networks = config.networks
    numbers = hyperparameters(config.objective, config.task, privacy_weight=WEIGHT)
    params = init_state(numbers, data, config=config).params
    key = jax.random.key(0)
    rows = jax.random.permutation(key, ROWS)[:BATCH]
    batch = TrainData(data.x[rows], data.y[rows], data.p)._replace(p=jnp.asarray(s)[rows])
    z = networks.private(params, batch.x)
    adam = optax.adam(1e-3)
    objective = config.objective._replace(privacy_loss=lambda z, p, **_: jnp.zeros(()))

    def gather(c):
        moved = (rows + c.astype(jnp.int32)) % ROWS
        return jnp.take(data.x, moved, axis=0, mode="clip").sum()

    def privacy(c):
        value, g = jax.value_and_grad(mmd_loss)(z + c, batch.p, num_classes=USERS)
        return value + g[0, 0]

    def nets(key):
        def apply(c):
            (total, _), g = jax.value_and_grad(total_loss, has_aux=True)(
                jax.tree.map(lambda a: a + c, params),
                batch,
                numbers,
                config=config._replace(objective=objective),
                key=key,
            )
            return total + sum(jnp.sum(a) for a in jax.tree.leaves(g))

        return apply

    def update(c):
        state = adam.init(params)
        updated = adam.update(jax.tree.map(lambda a: a + c, params), state)
        return sum(jnp.sum(a) for a in jax.tree.leaves(updated))

    def bits(c):
        hidden = jnp.ones((BATCH, HIDDEN)) + c
        return drop(hidden, key=jax.random.fold_in(key, c.astype(jnp.int32)), rate=0.5)[0].sum()

    def epoch_end(c):
        shifted = jax.tree.map(lambda a: a + c, params)
        return measure(shifted, data, config=config).utility_loss

    def repeated(f, times=100):
        # A carry that depends on the last result, so that nothing is hoisted out of the loop.
        body = lambda c, _: (1e-9 * f(c), None)  # noqa: E731
        run = jax.jit(lambda c: jax.lax.scan(body, c, length=times)[0])
        return lambda: jax.block_until_ready(run(jnp.zeros(())))

    return {
        "gather the batch": repeated(gather),
        "MMD value and gradient": repeated(privacy),
        "networks, without dropout": repeated(nets(None)),
        "dropout of 500 x 500": repeated(bits),
        "Adam": repeated(update),
        "monitoring, an epoch's": repeated(epoch_end, 10),
    }


def scnn_as_printed(image_shape: tuple[int, int, int]) -> Networks:
    """SCNN with XLA's own convolutions and pooling, of the images W z."""
    networks = scnn_networks(image_shape, num_outputs=4)
    hidden_shape = (image_shape[0] // 2, image_shape[1] // 2, 32)

    def convolve(images, layer):
        pooled = convolve_and_pool(images, layer["kernel"], implementation="native")
        return jax.nn.relu(pooled + layer["bias"])

    def private(params, x, *, key=None, dropout=0.0):
        h = convolve(x.reshape(-1, *image_shape), params["private"]["convolution"])
        projection = params["private"]["projection"]
        h = drop(h, key=key, rate=dropout).reshape(len(h), -1)
        return jax.nn.relu(h @ projection["w"] + projection["b"])

    def public(params, z, *, key=None, dropout=0.0):
        images = (z @ params["private"]["projection"]["w"].T).reshape(-1, *hidden_shape)
        keys = (None, None) if key is None else jax.random.split(key)
        h = drop(convolve(images, params["public"]["_ConvolutionPool_0"]), key=keys[0], rate=dropout)
        dense = dense_layers(params["public"]["_Dense_0"], last="dense")
        return apply_jax(dense, h.reshape(len(h), -1), key=keys[1], rate=dropout)

    return networks._replace(private=private, public=public, settings=None, private_layers=None)


def scnn_runs(seed: int = 0) -> dict[str, Callable[[], Any]]:
    """One step of SCNN-MMD at 32 x 32, batch 500: as printed, and as it is."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(BATCH, 32 * 32)).astype(np.float32)
    y, s = rng.integers(0, 4, BATCH), rng.integers(0, 38, BATCH)
    runs = {}
    ours = scnn_networks((32, 32, 1), num_outputs=4)
    for name, networks in (("XLA's convolutions of W z", scnn_as_printed((32, 32, 1))), ("privjax", ours)):
        data, config = prepare(x, y, s, networks=networks, batch_size=BATCH)
        numbers = hyperparameters(config.objective, config.task, privacy_weight=WEIGHT)
        state = init_state(numbers, data, config=config)
        batch = TrainData(data.x, data.y, data.p)

        @jax.jit
        def step(params, optimizer_state, numbers=numbers, config=config, batch=batch):
            gradient = jax.grad(total_loss, has_aux=True)(
                params, batch, numbers, config=config, key=jax.random.key(0)
            )[0]
            updates, optimizer_state = optax.adam(1e-3).update(gradient, optimizer_state)
            return optax.apply_updates(params, updates), optimizer_state

        start = (state.params, optax.adam(1e-3).init(state.params))
        runs[name] = lambda step=step, start=start: jax.block_until_ready(step(*start))
    return runs


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Time of one training step.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--no-torch", action="store_true")
    args = parser.parse_args()
    x, y, s = har_sized()
    run, steps = ours(x, y, s, epochs=4)
    runs = {"privjax": run}
    if not args.no_torch:
        runs |= torch_runs(x, y, s, steps)
    seconds = best_of(runs, args.rounds)
    print(f"HAR sizes, NN-MMD, {steps} steps, ms a step (monitoring of each epoch included in ours)")
    for name, value in seconds.items():
        ratio = value / seconds["privjax"]
        print(f"  {name:28s} {1e3 * value / steps:8.2f}   {ratio:5.2f}x ours")
    print("parts of our step, each alone, ms")
    for name, value in best_of(parts_of_a_step(x, y, s), args.rounds).items():
        times = 10 if name.startswith("monitoring") else 100
        print(f"  {name:28s} {1e3 * value / times:8.2f}")
    seconds = best_of(scnn_runs(), 3)
    print("SCNN-MMD at 32 x 32, batch 500, ms a step")
    for name, value in seconds.items():
        print(f"  {name:28s} {1e3 * value:8.0f}   {value / seconds['privjax']:5.2f}x ours")


if __name__ == "__main__":
    main()
