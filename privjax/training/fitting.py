"""Training of one encoder on arrays: checks, defaults, and a result that is ready to use."""

from __future__ import annotations  # signatures then show names instead of expanded unions

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from threadpoolctl import threadpool_limits

from privjax.encoder import Encoder, Rows, SampleWeights, apply_in_blocks, fit_scaling
from privjax.networks import Networks, nn_networks
from privjax.objectives import OBJECTIVES, Objective, make_objective
from privjax.release import ReleaseMechanism, exact
from privjax.training.data import (
    Hyperparameters,
    Labels,
    Rates,
    RowNumbers,
    Task,
    TrainConfig,
    TrainData,
    as_labels,
    check_positive_integer,
    hyperparameters,
    make_data,
)
from privjax.training.loop import STATUS_NAMES, History, TrainState, init_state, train_epochs
from privjax.training.monitor import measured_rows, utility_score


class FitResult(NamedTuple):
    """A trained encoder with its public network and the record of its training.

    Attributes:
      encoder: The encoder, a function of raw rows.
      state: The final `TrainState`; `state.params` are the parameters of all networks.
      history: `History` of the epochs that ran, as NumPy arrays.
      config: The static config of the training.
      baseline: Share of the largest utility class on the rows that measure utility; 0 for a continuous y.
    """

    encoder: Encoder
    state: TrainState
    history: History
    config: TrainConfig
    baseline: float

    @property
    def status(self) -> str:
        """One of converged, finished (at its last epoch), diverged, or running when `num_epochs` cut it."""
        return STATUS_NAMES[int(self.state.status)]

    @property
    def collapsed(self) -> bool:
        """Whether z carries no information: it is constant, or the utility is that of a constant."""
        measures = self.history.measures
        # A hundredth of the way from the utility of a constant to 1.
        no_better = measures.utility[-1] <= self.baseline + 0.01 * (1 - self.baseline) < 1
        return bool(measures.live_units[-1] == 0 or no_better)

    def predict(self, x: Rows, *, key: Array | None = None) -> np.ndarray:
        """Predict y from the releases of raw rows: class numbers, or values [n, k] of a continuous y."""
        outputs = self._outputs(x, key)
        return outputs.argmax(-1) if self.config.task.num_classes else outputs

    def score(self, x: Rows, y: Labels, *, key: Array | None = None) -> float:
        """Compute the accuracy on raw rows, or the R^2 of a continuous y."""
        outputs = self._outputs(x, key)
        y, classes = as_labels("y", y, len(outputs))
        if bool(classes) != bool(self.config.task.num_classes):
            kind = "labels" if self.config.task.num_classes else "reals"
            raise ValueError(f"y must be {kind}, as in training.")
        return float(utility_score(jnp.asarray(outputs), jnp.asarray(y), self.config.task))

    def _outputs(self, x: Rows, key: Array | None) -> np.ndarray:
        return apply_in_blocks(self.config.networks.public, self.state.params, self.encoder(x, key=key))

    def __repr__(self) -> str:
        """Summarise the training in one line."""
        epochs = len(self.history.ran)
        utility = f", utility {self.history.measures.utility[-1]:.3f}" if epochs else ""
        return f"FitResult({self.status} after {epochs} epochs{utility}, {self.encoder!r})"


def fit(
    x: Rows,
    y: Labels,
    p: Labels | Mapping[str, Labels],
    *,
    objective: str | Objective = "mmd",
    privacy_weight: float | Mapping[str, float] = 1.0,
    networks: Networks | None = None,
    scaling: str = "standard",
    release: ReleaseMechanism | None = None,
    weights: SampleWeights | None = None,
    train_rows: RowNumbers | None = None,
    validation_rows: RowNumbers | None = None,
    batch_size: int = 500,
    num_epochs: int | None = None,
    seed: int = 0,
    mesh: Mesh | None = None,
    **rates: Unpack[Rates],
) -> FitResult:
    """Train the private and public networks, and the discriminator if there is one (Algorithm 1).

    Args:
      x: Raw inputs [n, ...]; the scaling is learnt on the training rows.
      y: Utility: integer labels [n], or continuous values, which are fitted by the squared error. Privacy
        weights assume that continuous values have standard deviation 1.
      p: Private variable: integer labels [n], or continuous values for kdi and lsdn; or a dict of several.
      objective: A key of `privjax.objectives.OBJECTIVES`, or an `Objective`.
      privacy_weight: lambda_P; a dict with one for each private variable when p is a dict.
      networks: The networks; `nn_networks` with default widths when None.
      scaling: "standard", "minmax" or "none".
      release: The release mechanism; `exact()` when None.
      weights: Non-negative sample weights [n].
      train_rows: Numbers of the training rows; all but the validation rows when None.
      validation_rows: Numbers of the validation rows; some of the training rows when None.
      batch_size: Largest number of rows in a step. Rows beyond the last whole batch are left out of an
        epoch, other rows in each epoch. A smaller data set is one batch.
      num_epochs: Stop after this number of epochs; training never exceeds the schedule's `max_epochs`.
      seed: Seed of the initial parameters, the order of rows, the dropout and the release mechanism.
      mesh: Devices of one axis over which the rows of each batch are spread, for one large run. The privacy
        loss is that of the whole batch, not an average over devices.
      **rates: `private_rate`, `public_rate`, `discriminator_rate`, `private_dropout`, `public_dropout`.

    Returns:
      The result, with the trained `encoder`.

    Example:
      >>> x = np.random.default_rng(0).normal(size=(60, 4))
      >>> result = fit(x, x[:, 0] > 0, x[:, 1] > 0, num_epochs=2)
      >>> result.encoder(x).shape
      (60, 50)
    """
    if num_epochs is not None:
        check_positive_integer("num_epochs", num_epochs)
    data, task = make_data(x, y, p, weights=weights, train_rows=train_rows, validation_rows=validation_rows)
    config = make_config(
        data, task, objective=objective, networks=networks, release=release, batch_size=batch_size
    )
    numbers = hyperparameters(config.objective, task, privacy_weight=privacy_weight, seed=seed, **rates)
    x = np.asarray(x)
    rows = slice(None) if data.train_rows is None else data.train_rows
    row_weights = None if data.weights is None else data.weights[rows]
    learnt = fit_scaling(x[rows], method=scaling, weights=row_weights)
    data = jax.device_put(data._replace(x=learnt.apply(x)))
    state, history = _train(data, numbers, config, num_epochs, mesh)
    encoder = Encoder(config.networks, state.params["private"], learnt, x.shape[1:], config.release)
    return FitResult(encoder, state, history, config, _baseline(data, task))


def _train(
    data: TrainData, numbers: Hyperparameters, config: TrainConfig, num_epochs: int | None, mesh: Mesh | None
) -> tuple[TrainState, History]:
    """Train one member on one device or on a mesh; return its state and the epochs that ran."""
    # Always the epochs of the whole schedule, so that fewer epochs are not another compilation.
    most = config.objective.schedule.max_epochs
    until = jnp.asarray(most if num_epochs is None else num_epochs, jnp.int32)
    start = init_state(numbers, data, config=config)
    arguments = (start, data, numbers, until)
    if mesh is not None:
        if len(mesh.axis_names) != 1:
            raise ValueError(f"mesh must have one axis, got {mesh.axis_names}.")
        batch = min(config.batch_size, len(data.x) if data.train_rows is None else len(data.train_rows))
        if batch < mesh.size:
            raise ValueError(f"a batch of {batch} rows cannot be spread over the {mesh.size} devices.")
        config = config._replace(axis=mesh.axis_names[0])
        arguments = jax.device_put(arguments, NamedSharding(mesh, PartitionSpec()))
    with one_blas_thread():
        state, history = jax.block_until_ready(_trainer(config, most, mesh)(*arguments))
    ran = np.asarray(history.ran)
    return state, jax.tree.map(lambda a: np.asarray(a)[ran], history)


def prepare(
    x: Rows, y: Labels, p: Labels | Mapping[str, Labels], **options: Any
) -> tuple[TrainData, TrainConfig]:
    """Check scaled arrays; return them in NumPy, and `make_config` with the options."""
    data, task = make_data(x, y, p)
    return data, make_config(data, task, **options)


def make_config(
    data: TrainData,
    task: Task,
    *,
    objective: str | Objective = "mmd",
    networks: Networks | None = None,
    release: ReleaseMechanism | None = None,
    batch_size: int = 500,
) -> TrainConfig:
    """Return the static config, checked against the data; the arguments are those of `fit`."""
    check_positive_integer("batch_size", batch_size)
    objective = make_objective(objective) if isinstance(objective, str) else objective
    if not isinstance(objective, Objective):
        raise TypeError(f"objective must be a name or an Objective, got {type(objective).__name__}.")
    if release is not None and not isinstance(release, ReleaseMechanism):
        raise TypeError(f"release must be a ReleaseMechanism, got {type(release).__name__}.")
    _check_objective(objective, task)
    outputs = task.num_classes or data.y.shape[1]
    if networks is None:
        num_private = task.num_private if objective.discriminator_loss else 0
        networks = nn_networks(data.x.shape[1:], num_outputs=outputs, num_private=num_private)
    config = TrainConfig(networks, objective, task, batch_size, release or exact())
    _check_shapes(data.x[:2], outputs, config)
    return config


def _check_objective(objective: Objective, task: Task) -> None:
    kind = objective.schedule.kind
    if kind not in ("plateau", "fixed"):
        raise ValueError(f"the schedule's kind must be 'plateau' or 'fixed', got {kind!r}.")
    check_positive_integer("the schedule's max_epochs", objective.schedule.max_epochs)
    for attribute in task.private:
        if not attribute.num_classes and not objective.continuous:
            where = "p" if attribute.name is None else f"p[{attribute.name!r}]"
            others = " or ".join(entry.name for entry in OBJECTIVES.values() if entry.continuous)
            raise ValueError(
                f"{where} is continuous, but {objective.name} compares classes: use {others}, or integer "
                "labels."
            )
    if objective.within_utility and not task.num_classes:
        raise ValueError("y is continuous, but within_utility compares rows of the same class of y.")


def _check_shapes(x: Array, outputs: int, config: TrainConfig) -> None:
    """Compare the widths of the networks with the labels, without computing anything."""
    networks, task, key = config.networks, config.task, jax.random.key(0)

    def output(name: str, function: Callable[..., Array], *arguments: Any) -> jax.ShapeDtypeStruct:
        found = jax.eval_shape(function, *arguments)
        if len(found.shape) != 2 or found.shape[0] != len(x):
            raise ValueError(
                f"{name} must give a matrix with a row for each row of x, got shape {found.shape} for "
                f"{len(x)} rows."
            )
        return found

    params = jax.eval_shape(networks.init, key)
    h = output("networks.private", networks.private, params, x)
    z = output("release", config.release.apply, h, key)
    width = output("networks.public", networks.public, params, z).shape[1]
    # With classes, spare outputs do no harm.
    if width < outputs or (width > outputs and not task.num_classes):
        found = (
            f"holds the label {outputs - 1}" if task.num_classes else f"is continuous with {outputs} columns"
        )
        raise ValueError(
            f"y {found}, but networks.public has {width} outputs: build it with num_outputs={outputs}."
        )
    if config.objective.discriminator_loss is not None:
        width = output("networks.discriminator", networks.discriminator, params, z).shape[1]
        if width != task.num_private:
            raise ValueError(
                f"p needs a discriminator with {task.num_private} outputs, networks.discriminator has "
                f"{width}: build it with num_private={task.num_private}."
            )


@functools.cache
def _trainer(config: TrainConfig, num_epochs: int, mesh: Mesh | None) -> Callable[..., Any]:
    """Return the training of one member, on every device of a mesh with its share of every batch."""

    def train(state, data, numbers, until):
        return train_epochs(state, data, numbers, config=config, num_epochs=num_epochs, until=until)

    if mesh is None:
        return train
    # Everything is replicated except the rows of a batch, which a device picks by its index.
    replicated = PartitionSpec()
    return jax.jit(
        jax.shard_map(train, mesh=mesh, in_specs=replicated, out_specs=replicated, check_vma=False)
    )


def _baseline(data: TrainData, task: Task) -> float:
    if not task.num_classes:
        return 0.0
    rows = measured_rows(data)
    weights = np.ones(len(rows)) if data.weights is None else np.asarray(data.weights[rows])
    shares = np.bincount(np.asarray(data.y[rows]), weights)
    return float(shares.max() / max(shares.sum(), np.finfo(np.float32).tiny))


_lock = threading.Lock()
_open_limits: list[Any] = []  # the limit, once for each open context


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the BLAS under XLA's factorisations to one thread until the last such context ends.

    XLA has its own threads for everything else, and two pools on the same cores wait for each other: a step
    of the HAR configuration took about twice as long with both (MMD: 7.8 against 4.1 ms on two cores).
    """
    # JAX loads SciPy's BLAS with its first factorisation, and only a loaded library can be limited.
    import scipy.linalg  # noqa: F401

    with _lock:  # the limit belongs to the process, so fits in two threads share one
        _open_limits.append(_open_limits[0] if _open_limits else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _open_limits.pop()
            if not _open_limits:
                limit.restore_original_limits()
