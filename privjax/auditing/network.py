"""Network attackers in JAX: many releases trained in one vmapped call, each alone in its lane."""

import functools
from typing import Any

import numpy as np

from privjax.auditing.model import Model, Task

WIDTHS = (1024,)  # the discriminator of the dense networks
DEEP_WIDTHS = (256, 256, 256)
BATCH = 256
STEPS = 1000  # at least
EPOCHS = 10  # at least
WEIGHT_DECAY = 1e-2
LANES_ON_CPU, LANES_ELSEWHERE = 1, 64  # releases of a sweep in one call: a CPU gains nothing from more
WHOLE = 16  # columns are filled up with zeros to a multiple: releases with other dead units compile once
PIECE = 8192


def fit_networks(
    tasks: list[Task], *, seeds: list[int], widths: tuple[int, ...], lanes: int = 1
) -> list[Model]:
    """Trains the same network on every task; tasks of one shape share compilation and calls.

    Softmax cross-entropy for classes, squared error for reals (scaled to spread 1). Adam with
    decoupled weight decay, its rate falling to zero along a cosine; nothing is dropped or normalised, and
    every training row is trained on, so that nothing has to be chosen.

    A call always has the same number of lanes, the last filled up, so that the numbers of one release
    depend neither on its neighbours nor on what was left to do.

    Args:
      tasks: what to attack.
      seeds: one for each task.
      widths: hidden widths.
      lanes: tasks a call.
    """
    models: list[Model | None] = [None] * len(tasks)
    shapes: dict[tuple, list[int]] = {}
    for i, task in enumerate(tasks):
        shapes.setdefault((task.z.shape, task.num_classes), []).append(i)
    for members in shapes.values():
        for start in range(0, len(members), lanes):
            group = members[start : start + lanes]
            filled = (group * lanes)[:lanes]
            found = _train([tasks[i] for i in filled], [seeds[i] for i in filled], widths)
            for i, model in zip(group, found, strict=False):
                models[i] = model
    return [model for model in models if model is not None]


def sweep_lanes(num_points: int) -> int:
    """Releases in one call for a sweep of so many points, the same however few are left to do."""
    import jax

    most = LANES_ON_CPU if jax.default_backend() == "cpu" else LANES_ELSEWHERE
    return max(1, min(most, num_points))


def network_plan(n: int) -> tuple[int, int]:
    """Rows a batch and epochs for n training rows."""
    batch = max(1, min(BATCH, n // 4 or n))
    return batch, max(EPOCHS, -(-STEPS // (n // batch)))


def _train(tasks: list[Task], seeds: list[int], widths: tuple[int, ...]) -> list[Model]:
    import jax
    import jax.numpy as jnp

    task = tasks[0]
    n, d = task.z.shape
    k = task.num_classes
    batch, epochs = network_plan(n)
    # The steeper a deep network, the smaller the step it bears.
    rate = 3e-3 if len(widths) == 1 else 1e-3
    padding = -d % WHOLE
    z = jnp.asarray(np.pad(np.stack([t.z for t in tasks]), ((0, 0), (0, 0), (0, padding))), jnp.float32)
    levels = np.zeros((len(tasks), 2)) + [0.0, 1.0]
    if k:
        target = jnp.asarray(np.stack([t.target for t in tasks]), jnp.int32)
    else:
        levels = np.array([[t.target.mean(), max(t.target.std(), 1e-300)] for t in tasks])
        scaled = [(t.target - m) / s for t, (m, s) in zip(tasks, levels, strict=True)]
        target = jnp.asarray(np.stack(scaled), jnp.float32)
    keys = jnp.stack([jax.random.key_data(jax.random.key(seed)) for seed in seeds])
    params = _trainer((d + padding, *widths, k or 1), batch, epochs, bool(k))(keys, z, target, rate)
    first, *others = params
    params = [(first[0][:, :d], first[1]), *others]  # whatever weighs a zero does nothing
    settings = {"widths": list(widths), "epochs": epochs, "batch": batch, "rate": rate}
    return [
        Model(
            functools.partial(
                _predict, jax.tree.map(lambda a, i=i: np.asarray(a[i]), params), level, bool(k)
            ),
            settings,
        )
        for i, level in enumerate(levels)
    ]


@functools.cache
def _trainer(sizes: tuple[int, ...], batch: int, epochs: int, discrete: bool) -> Any:
    import jax
    import jax.numpy as jnp
    import optax

    def loss(params, z, target):
        scores = _forward(jax.nn.relu, params, z)
        if discrete:
            return optax.softmax_cross_entropy_with_integer_labels(scores, target).mean()
        return jnp.mean((scores[:, 0] - target) ** 2)

    def train(key, z, target, rate):
        key = jax.random.wrap_key_data(key)
        *layers, order = jax.random.split(key, len(sizes))
        params = [
            (jax.random.normal(k, (a, b)) * jnp.sqrt(2.0 / a), jnp.zeros((b,)))
            for k, a, b in zip(layers, sizes[:-1], sizes[1:], strict=True)
        ]
        batches = len(z) // batch
        schedule = optax.cosine_decay_schedule(1.0, epochs * batches)
        adam = optax.chain(
            optax.scale_by_adam(),
            optax.add_decayed_weights(WEIGHT_DECAY),
            optax.scale_by_learning_rate(schedule),
        )

        def step(carry, rows):
            params, state = carry
            gradient = jax.grad(loss)(params, z[rows], target[rows])
            updates, state = adam.update(gradient, state, params)
            updates = jax.tree.map(lambda u: rate * u, updates)
            return (optax.apply_updates(params, updates), state), None

        def epoch(carry, key):
            rows = jnp.argsort(jax.random.bits(key, (len(z),)))[: batches * batch]
            return jax.lax.scan(step, carry, rows.reshape(batches, batch))

        carry = (params, adam.init(params))
        (params, _), _ = jax.lax.scan(epoch, carry, jax.random.split(order, epochs))
        return params

    return jax.jit(jax.vmap(train, in_axes=(0, 0, 0, None)))


def _forward(relu: Any, params: Any, z: Any) -> Any:
    for w, b in params[:-1]:
        z = relu(z @ w + b)
    return z @ params[-1][0] + params[-1][1]


def _predict(params: Any, level: np.ndarray, discrete: bool, rows: np.ndarray) -> np.ndarray:
    """The network in NumPy: rows come in any number, and a compilation for each would cost more."""
    pieces = [rows[i : i + PIECE].astype(np.float32) for i in range(0, max(len(rows), 1), PIECE)]
    scores = np.concatenate([_forward(lambda a: np.maximum(a, 0), params, piece) for piece in pieces])
    return scores if discrete else scores[:, 0].astype(float) * level[1] + level[0]
