"""Train one member on arrays: the checks, the defaults, and a result that is ready to use."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from numpy.typing import ArrayLike

from privjax.networks import Networks, nn_networks
from privjax.training.data import Task, TrainData, as_labels, make_data
from privjax.training.loop import History, train_epochs
from privjax.training.monitor import measured_rows, utility_score
from privjax.training.objectives import Objective, make_objective
from privjax.training.state import (
    STATUS_NAMES,
    Hyperparameters,
    TrainConfig,
    TrainState,
    hyperparameters,
    init_state,
)
from privjax.training.threads import one_blas_thread


class FitResult(NamedTuple):
    """A trained member.

    Attributes:
      state: the final `TrainState`; `state.params` are the parameters.
      history: `History` of the epochs that ran, as NumPy arrays.
      config: what it was trained with.
      baseline: share of the largest utility class on the rows that measure utility; 0 when y is
        continuous.
    """

    state: TrainState
    history: History
    config: TrainConfig
    baseline: float

    @property
    def status(self) -> str:
        """One of converged, finished (at its last epoch), diverged, or running when cut short."""
        return STATUS_NAMES[int(self.state.status)]

    @property
    def collapsed(self) -> bool:
        """Whether z says nothing: it is constant, or the utility is no better than a constant's."""
        measures = self.history.measures
        # A hundredth of the way from a constant's utility to 1.
        no_better = measures.utility[-1] <= self.baseline + 0.01 * (1 - self.baseline) < 1
        return bool(measures.live_units[-1] == 0 or no_better)

    def encoder(self, x: ArrayLike) -> np.ndarray:
        """The private sphere on NumPy rows: what is released."""
        return apply_to_rows(self.config.networks.private, self.state.params, x)

    def predict(self, x: ArrayLike) -> np.ndarray:
        """What the public sphere says of rows: class numbers, or reals for a continuous y."""
        outputs = apply_to_rows(both_spheres(self.config.networks), self.state.params, x)
        return outputs.argmax(-1) if self.config.task.num_classes else outputs

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """Utility on other rows: accuracy, or R^2."""
        outputs = apply_to_rows(both_spheres(self.config.networks), self.state.params, x)
        y, classes = as_labels("y", y, len(outputs))
        if bool(classes) != bool(self.config.task.num_classes):
            kind = "labels" if self.config.task.num_classes else "reals"
            raise ValueError(f"y must be {kind}, as in training.")
        return float(utility_score(jnp.asarray(outputs), jnp.asarray(y), self.config.task))


def fit(
    x: ArrayLike,
    y: ArrayLike,
    p: ArrayLike | Mapping[str, ArrayLike],
    *,
    objective: str | Objective = "mmd",
    privacy_weight: Any = 1.0,
    networks: Networks | None = None,
    weights: ArrayLike | None = None,
    train_rows: ArrayLike | None = None,
    validation_rows: ArrayLike | None = None,
    batch_size: int = 500,
    num_epochs: int | None = None,
    seed: int = 0,
    mesh: jax.sharding.Mesh | None = None,
    **rates: float,
) -> FitResult:
    """Trains the private and public networks, and the discriminator if there is one (Algorithm 1).

    Args:
      x: inputs [n, ...].
      y: utility: integer labels [n], or reals for a squared error; best at spread 1, as weights depend on it.
      p: private variable: integer labels [n], or reals (kdi and lsdn; the same), or a dict of several.
      objective: "mmd", "rff_mmd", "kdi", "wdn", "lsdn", or an `Objective`.
      privacy_weight: lambda_P; a dict of one for each private variable when p is a dict.
      networks: the networks; those of `nn_networks` when None.
      weights: non-negative sample weights [n].
      train_rows: numbers of the rows to train on; all but the validation rows when None.
      validation_rows: numbers of the rows to validate on; some of the training rows when None.
      batch_size: rows a step, at most; a data set with fewer rows is one batch. Rows beyond the last whole
        batch sit out an epoch, others in each.
      num_epochs: stop after so many epochs; never after the schedule's `max_epochs`.
      seed: of the first parameters, the order of rows and the dropout.
      mesh: devices (of one axis) over which the rows of each batch are spread, for one large run: the
        privacy loss is that of the whole batch, not an average over devices.
      **rates: `private_rate`, `public_rate`, `discriminator_rate`, `private_dropout`,
        `public_dropout`.
    """
    data, config = prepare(
        x,
        y,
        p,
        objective=objective,
        networks=networks,
        weights=weights,
        train_rows=train_rows,
        validation_rows=validation_rows,
        batch_size=batch_size,
    )
    check_rates(rates)
    numbers = hyperparameters(
        config.objective, config.task, privacy_weight=privacy_weight, seed=seed, **rates
    )
    if num_epochs is not None:
        check_count("num_epochs", num_epochs)
    # All of the schedule, so that fewer epochs are not another compilation.
    most = config.objective.schedule.max_epochs
    start = init_state(numbers, data, config=config)
    until = jnp.asarray(most if num_epochs is None else num_epochs, jnp.int32)
    with one_blas_thread():
        if mesh is None:
            state, history = train_epochs(start, data, numbers, config=config, num_epochs=most, until=until)
        else:
            spread = _spread(config._replace(axis=_only_axis(mesh, data, batch_size)), most, mesh)
            arguments = (start, data, numbers, until)
            state, history = spread(*jax.device_put(arguments, NamedSharding(mesh, PartitionSpec())))
        jax.block_until_ready(state)
    ran = np.asarray(history.ran)
    history = jax.tree.map(lambda a: np.asarray(a)[ran], history)
    return FitResult(state, history, config, _baseline(data, config.task))


def prepare(
    x: ArrayLike,
    y: ArrayLike,
    p: ArrayLike | Mapping[str, ArrayLike],
    *,
    objective: str | Objective = "mmd",
    networks: Networks | None = None,
    batch_size: int = 500,
    **rows: ArrayLike | None,
) -> tuple[TrainData, TrainConfig]:
    """Data on the device and the static config for them, all checked; arguments as `fit`'s."""
    check_count("batch_size", batch_size)
    objective = make_objective(objective) if isinstance(objective, str) else objective
    if not isinstance(objective, Objective):
        raise TypeError(f"objective must be a name or an Objective, got {type(objective).__name__}.")
    kind, most = objective.schedule.kind, objective.schedule.max_epochs
    if kind not in ("plateau", "fixed"):
        raise ValueError(f"the schedule's kind must be 'plateau' or 'fixed', got {kind!r}.")
    check_count("the schedule's max_epochs", most)
    data, task = make_data(x, y, p, **rows)
    for attribute in task.private:
        if not attribute.num_classes and not objective.continuous:
            where = "p" if attribute.name is None else f"p[{attribute.name!r}]"
            raise ValueError(
                f"{where} is continuous, but {objective.name} compares classes: use kdi or "
                "lsdn, or integer labels."
            )
    if objective.within_utility and not task.num_classes:
        raise ValueError("y is continuous, but within_utility compares rows of the same class of y.")
    if networks is None:
        networks = nn_networks(
            data.x.shape[1:],
            num_outputs=task.num_classes or data.y.shape[1],
            num_private=task.num_private if objective.discriminator_loss else 0,
        )
    config = TrainConfig(networks, objective, task, batch_size)
    _check_shapes(data, config)
    return data, config


def check_count(name: str, value: Any) -> None:
    """A whole number, at least 1."""
    if not hasattr(value, "__index__") or value < 1:
        raise ValueError(f"{name} must be at least 1, a whole number, got {value!r}.")


def check_rates(rates: Mapping[str, Any]) -> None:
    """Names among the numbers of a member that have defaults."""
    known = [name for name in Hyperparameters._fields if name.endswith(("_rate", "_dropout"))]
    for name in rates:
        if name not in known:
            raise TypeError(f"{name} is not known: beside the named arguments there are {', '.join(known)}.")


def _only_axis(mesh: jax.sharding.Mesh, data: TrainData, batch_size: int) -> str:
    if len(mesh.axis_names) != 1:
        raise ValueError(f"mesh must have one axis, got {mesh.axis_names}.")
    rows = min(batch_size, len(data.x) if data.train_rows is None else len(data.train_rows))
    if rows < mesh.size:
        raise ValueError(f"a batch of {rows} rows cannot be spread over the {mesh.size} devices of mesh.")
    return mesh.axis_names[0]


@functools.cache
def _spread(config: TrainConfig, num_epochs: int, mesh: jax.sharding.Mesh):
    """`train_epochs` on every device of a mesh, each working on its share of every batch."""

    def train(state, data, numbers, until):
        return train_epochs(state, data, numbers, config=config, num_epochs=num_epochs, until=until)

    # All is replicated but the rows of a batch, which each device picks by its place on the axis.
    everywhere = PartitionSpec()
    return jax.jit(
        jax.shard_map(train, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    )


def _check_shapes(data: TrainData, config: TrainConfig) -> None:
    """Compares what the networks give with what the labels need, without computing anything."""
    networks, task = config.networks, config.task

    def outputs(x):
        params = networks.init(jax.random.key(0))
        z = checked("private", networks.private(params, x), x)
        public = checked("public", networks.public(params, z), x)
        if config.objective.discriminator_loss is None:
            return public, None
        return public, checked("discriminator", networks.discriminator(params, z), x)

    def checked(name, values, x):
        if values.ndim != 2 or len(values) != len(x):
            raise ValueError(
                f"networks.{name} must give a matrix with a row for each row of x, got shape "
                f"{values.shape} for {len(x)} rows."
            )
        return values

    public, scores = jax.eval_shape(outputs, data.x[:2])
    if task.num_classes > public.shape[-1]:
        raise ValueError(
            f"y holds the label {task.num_classes - 1}, but networks.public has "
            f"{public.shape[-1]} outputs: build it with num_outputs={task.num_classes}."
        )
    if not task.num_classes and data.y.shape[1] != public.shape[-1]:
        raise ValueError(
            f"y is continuous with {data.y.shape[1]} columns, but networks.public has "
            f"{public.shape[-1]} outputs."
        )
    if scores is not None and scores.shape[-1] != task.num_private:
        raise ValueError(
            f"p needs a discriminator with {task.num_private} outputs, networks.discriminator has "
            f"{scores.shape[-1]}: build it with num_private={task.num_private}."
        )


def _baseline(data: TrainData, task: Task) -> float:
    if not task.num_classes:
        return 0.0
    rows = measured_rows(data)
    weights = np.ones(len(rows)) if data.weights is None else np.asarray(data.weights[rows])
    shares = np.bincount(np.asarray(data.y[rows]), weights)
    return float(shares.max() / max(shares.sum(), np.finfo(np.float32).tiny))


@functools.cache
def both_spheres(networks: Networks):
    """The public sphere after the private one, as one function of the parameters and x."""
    return lambda params, x: networks.public(params, networks.private(params, x))


def apply_to_rows(apply, params, x: ArrayLike, rows: int = 4096) -> np.ndarray:
    """Applies a network to many rows with the memory of a few."""
    x = np.asarray(x, np.float32)
    # jit remembers by function: the same network compiles once, whatever its parameters.
    apply = jax.jit(apply)
    pieces = [np.asarray(apply(params, x[i : i + rows])) for i in range(0, max(len(x), 1), rows)]
    return np.concatenate(pieces)
