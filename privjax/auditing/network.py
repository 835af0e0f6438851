"""Network attackers, in JAX."""

import functools
from typing import Any

import numpy as np

from privjax.auditing.inputs import AttackTask, FittedAttack

_BATCH = 256
_STEPS = 1000  # at least
_EPOCHS = 10  # at least
_WEIGHT_DECAY = 1e-2
_COLUMN_MULTIPLE = (
    16  # columns are padded with zeros, so that releases with other dead units share a compilation
)


def fit_network(task: AttackTask, *, seed: int, threads: int = 1, widths: tuple[int, ...]) -> FittedAttack:
    """Train a network on all rows of the task, so that no setting has to be chosen.

    The loss is softmax cross-entropy for classes, and the squared error of the standardised target for reals.
    The optimiser is AdamW with a cosine schedule.

    Args:
      task: The training rows.
      seed: Seed of parameters and batches.
      threads: Not used.
      widths: Hidden widths.
    """
    import jax
    import jax.numpy as jnp

    (n, d), k = task.z.shape, task.num_classes
    batch = max(1, min(_BATCH, n // 4 or n))
    epochs = max(_EPOCHS, -(-_STEPS // (n // batch)))
    rate = 3e-3 if len(widths) == 1 else 1e-3  # deep networks diverge at larger steps
    z = np.pad(task.z, ((0, 0), (0, -d % _COLUMN_MULTIPLE)))
    shift, spread = (0.0, 1.0) if k else (task.target.mean(), max(task.target.std(), 1e-300))
    target = task.target if k else (task.target - shift) / spread
    train = _trainer((z.shape[1], *widths, k or 1), batch, epochs, bool(k))
    params = train(
        jax.random.key(seed),
        jnp.asarray(z, jnp.float32),
        jnp.asarray(target, jnp.int32 if k else jnp.float32),
        rate,
    )
    (first, bias), *others = jax.tree.map(np.asarray, params)
    layers = [(first[:d], bias), *others]  # the weights of padded columns have no effect

    def predict(rows: np.ndarray) -> np.ndarray:
        scores = _forward(layers, rows.astype(np.float32), np.maximum)
        return scores if k else scores[:, 0].astype(float) * spread + shift

    return FittedAttack(predict, {"widths": list(widths), "epochs": epochs, "batch": batch, "rate": rate})


@functools.cache
def _trainer(sizes: tuple[int, ...], batch: int, epochs: int, discrete: bool) -> Any:
    """Return the compiled training of a network: (key, z, target, rate) to parameters."""
    import jax
    import jax.numpy as jnp
    import optax

    def loss(params, z, target):
        scores = _forward(params, z, jnp.maximum)
        if discrete:
            return optax.softmax_cross_entropy_with_integer_labels(scores, target).mean()
        return jnp.mean((scores[:, 0] - target) ** 2)

    def train(key, z, target, rate):
        *keys, order = jax.random.split(key, len(sizes))
        params = [
            (jax.random.normal(key, (a, b)) * jnp.sqrt(2.0 / a), jnp.zeros((b,)))
            for key, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]
        batches = len(z) // batch
        schedule = optax.cosine_decay_schedule(1.0, epochs * batches)
        optimiser = optax.chain(optax.adamw(schedule, weight_decay=_WEIGHT_DECAY), optax.scale(rate))

        def step(carry, rows):
            params, state = carry
            updates, state = optimiser.update(jax.grad(loss)(params, z[rows], target[rows]), state, params)
            return (optax.apply_updates(params, updates), state), None

        def epoch(carry, key):
            rows = jnp.argsort(jax.random.bits(key, (len(z),)))[: batches * batch]
            return jax.lax.scan(step, carry, rows.reshape(batches, batch))

        (params, _), _ = jax.lax.scan(
            epoch, (params, optimiser.init(params)), jax.random.split(order, epochs)
        )
        return params

    return jax.jit(train)


def _forward(params: Any, z: Any, maximum: Any) -> Any:
    """Apply the network with the array library of `maximum`: JAX to train, NumPy for any number of rows."""
    for w, b in params[:-1]:
        z = maximum(z @ w + b, 0.0)
    return z @ params[-1][0] + params[-1][1]
