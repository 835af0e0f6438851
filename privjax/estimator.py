"""`PrivacyTransformer`: a scikit-learn estimator that trains with `privjax.fit` and applies with NumPy."""

import dataclasses
import json
import math
import numbers
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, check_array, check_random_state, check_scalar
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from privjax.encoder import Encoder
from privjax.exporting import Header
from privjax.exporting.device import write_encoder
from privjax.files import read_arrays, write_arrays
from privjax.networks import Layer, apply_numpy, dense_layers, nn_networks
from privjax.objectives import Objective, make_objective
from privjax.training import FitResult, fit

_FLOATS: Any = (np.float64, np.float32)
_BLOCK = 4096  # rows per forward pass: bounds the memory
_VECTOR = "sensitive_features"  # name of a private variable passed as a vector
_FORMAT = "privjax-transformer-2"
_ATTRIBUTES = ("n_features_in_", "n_iter_", "status_", "history_")


@dataclasses.dataclass(eq=False, repr=False)
class PrivacyTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transformer that keeps the information about y in X and removes that about `sensitive_features`.

    `transform` gives the release z of the private network; `predict` applies the public network to z.
    Numbers with fractions are continuous labels, standardised internally; all other labels are classes.

    A row of weight 2 equals two rows on average only, because batches and dropout are drawn per row. Rows of
    weight 0 are dropped. All other checks of `check_estimator` pass for `privacy_weight=0.0`.

    Args:
      objective: A key of `privjax.objectives.OBJECTIVES`, or an `Objective`. Continuous private variables
        need an objective for them, such as "kdi".
      privacy_weight: Strength of the privacy loss; a dict gives one weight per column of
        `sensitive_features`. `fit` needs no `sensitive_features` if the weight is 0.0.
      n_components: Width of z.
      private_widths: Hidden layer widths of the private network, z excluded.
      public_widths: Hidden layer widths of the public network.
      batch_size: Maximum number of rows in a batch.
      max_epochs: Maximum number of epochs; None for that of the objective's schedule.
      scaling: "standard", "minmax" or "none": the scaling of the columns of X.
      kinds: "category" or "continuous" by the name of a label, where the values suggest the wrong kind. Names
        are "y", a column of `sensitive_features`, or "sensitive_features" for a vector.
      random_state: Seed of the initial parameters, the order of rows and the dropout.

    Attributes:
      classes_: Sorted classes of y; absent if y is continuous.
      n_iter_: Number of trained epochs.
      status_: "converged", "finished" (reached its last epoch) or "diverged".
      history_: `losses`, `measures` and `rate_scale` per epoch; `privacy` and `probe` by private variable.
      encoder_: The `Encoder` of the private network.

    Example:
      >>> import numpy as np
      >>> from privjax import PrivacyTransformer
      >>> X = np.random.default_rng(0).normal(size=(20, 3))
      >>> transformer = PrivacyTransformer(n_components=2, public_widths=(), max_epochs=1)
      >>> transformer.fit(X, X[:, 0] > 0, sensitive_features=X[:, 1] > 0).transform(X).shape
      (20, 2)
    """

    objective: str | Objective = "mmd"
    _: dataclasses.KW_ONLY
    privacy_weight: float | dict[str, float] = 4.0
    n_components: int = 50
    private_widths: tuple[int, ...] = ()
    public_widths: tuple[int, ...] = (500,)
    batch_size: int = 500
    max_epochs: int | None = None
    scaling: str = "standard"
    kinds: dict[str, str] | None = None
    random_state: int | np.random.RandomState | None = 0
    n_features_in_: int = dataclasses.field(init=False)
    feature_names_in_: np.ndarray = dataclasses.field(init=False)
    # Metadata routing passes sensitive_features to fit without a set_fit_request.
    __metadata_request__fit = {"sensitive_features": True}

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None) -> "PrivacyTransformer":
        """Train the private and public networks.

        Args:
          X: Numbers [n, features].
          y: Utility labels [n]: classes or a quantity.
          sensitive_features: Private labels [n], or a data frame, matrix or dict of several columns.
          sample_weight: Non-negative weights [n] of the rows.

        Returns:
          The fitted transformer.
        """
        X, y = self._validate(X, y, ensure_min_samples=2)
        if sensitive_features is None and self.privacy_weight != 0:
            raise ValueError("fit needs sensitive_features=, or privacy_weight=0.0 to hide nothing.")
        private = {} if sensitive_features is None else _private_columns(sensitive_features, len(X))
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            rows = weights > 0  # a row of weight 0 must not take a place in a batch
            if not rows.any():  # scikit-learn checks this only in newer versions
                raise ValueError("sample_weight must hold at least one non-zero weight.")
            X, y, weights = X[rows], y[rows], weights[rows]
            private = {name: values[rows] for name, values in private.items()}
            weights = None if (weights == weights[0]).all() else weights / weights.mean()
        kinds = {str(name): kind for name, kind in (self.kinds or {}).items()}
        for name, kind in kinds.items():
            if name not in ("y", *private) or kind not in ("category", "continuous"):
                known = ", ".join(["y", *private])
                raise ValueError(
                    f"kinds must map {known} to 'category' or 'continuous', got {name!r}: {kind!r}."
                )
        target = _encode("y", y, kinds.get("y"), weights)
        hidden = {name: _encode(_quote(name), v, kinds.get(name), weights) for name, v in private.items()}
        result = self._train(X, target, hidden, weights)
        if result.status == "diverged":
            message = "training diverged, so the last finite parameters are kept: lower privacy_weight."
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        self.encoder_ = result.encoder
        self._public = dense_layers(jax.tree.map(np.asarray, result.state.params["public"]), last="dense")
        self._target = target._replace(values=np.empty(0))  # without the rows
        self.n_iter_ = len(result.history.ran)
        self.status_ = result.status
        self.history_ = _history(result, hides=bool(private))
        return self

    def _train(self, X, y: "_Label", private: dict[str, "_Label"], weights: np.ndarray | None) -> FitResult:
        if np.abs(X).max() > np.finfo(np.float32).max:
            raise ValueError("X holds values too large for float32, the type of the networks: divide them.")
        objective = self._objective
        if self.max_epochs is not None:
            objective = objective._replace(schedule=objective.schedule._replace(max_epochs=self.max_epochs))
        if not private:
            no_loss = {"privacy_loss": _no_loss, "discriminator_loss": None, "draw": None}
            objective = objective._replace(**no_loss, continuous=True)
        check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1)
        for name in ("private_widths", "public_widths"):
            for width in check_scalar(getattr(self, name), name, (tuple, list)):
                check_scalar(width, name, numbers.Integral, min_val=1)
        networks = nn_networks(
            X.shape[1],
            num_outputs=y.width,
            num_private=sum(label.width for label in private.values()) if objective.discriminator_loss else 0,
            private_widths=(*self.private_widths, self.n_components),
            public_widths=tuple(self.public_widths),
        )
        return fit(
            X,
            y.values,
            {name: label.values for name, label in private.items()} or np.zeros((len(X), 1)),
            objective=objective,
            privacy_weight=self._plain_weight(),
            networks=networks,
            scaling=self.scaling,
            weights=weights,
            batch_size=self.batch_size,
            seed=check_random_state(self.random_state).randint(np.iinfo(np.int32).max),
        )

    def _plain_weight(self) -> float | dict[str, float]:
        """Return Python numbers, by text: a grid search sets NumPy numbers, and a column may be a number."""
        weight = self.privacy_weight
        return {str(k): float(v) for k, v in weight.items()} if isinstance(weight, dict) else float(weight)

    @property
    def _objective(self) -> Objective:
        return make_objective(self.objective) if isinstance(self.objective, str) else self.objective

    def transform(self, X) -> np.ndarray:
        """Release z [n, n_components] for the rows of X, in the type of X."""
        X = self._validate(X)
        return _apply(self.encoder_.layers, X).astype(X.dtype, copy=False)

    def predict(self, X) -> np.ndarray:
        """Predict y from the release of X: classes in the type of y, or reals."""
        outputs = self._outputs(X)
        if self._target.classes is None:
            return outputs[:, 0] * self._target.spread + self._target.mean
        return self._target.classes[outputs.argmax(1)]

    @available_if(lambda self: self._kind_of_y() != "continuous")
    def predict_proba(self, X) -> np.ndarray:
        """Predict probabilities [n, classes] in the order of `classes_`; absent if y is continuous."""
        return softmax(self._outputs(X), axis=1)

    def score(self, X, y, sample_weight=None) -> float:
        """Compute the utility of the release: accuracy, or R^2 if y is continuous."""
        score = r2_score if self._kind_of_y() == "continuous" else accuracy_score
        return float(score(y, self.predict(X), sample_weight=sample_weight))

    def export(self, to: str | os.PathLike[str]) -> Header:
        """Write the encoder alone to a file for the device; see `privjax.export`."""
        check_is_fitted(self)
        names = tuple(getattr(self, "feature_names_in_", ())) or None
        origin = {"objective": self._objective.name, "privacy_weight": self._plain_weight()}
        return write_encoder(self.encoder_, to, names=names, **origin)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted transformer to an npz file, without pickle.

        An `Objective` is saved as its name, and a random generator as None.
        """
        check_is_fitted(self)
        params = self.get_params(deep=False) | {"objective": self._objective.name}
        if isinstance(self.random_state, np.random.RandomState):
            params["random_state"] = None
        header, arrays = self.encoder_.to_arrays()
        header |= {
            "format": _FORMAT,
            "params": params,
            "attributes": {name: getattr(self, name) for name in _ATTRIBUTES},
            "feature_names": list(getattr(self, "feature_names_in_", ())),
            "y": [self._target.mean, self._target.spread],
        }
        for i, layer in enumerate(self._public):
            arrays |= {f"public/{i}/kernel": layer.arrays[0], f"public/{i}/bias": layer.arrays[1]}
        if self._target.classes is not None:
            arrays["classes"] = self._target.classes
        write_arrays(Path(path), json.loads(json.dumps(header, default=lambda value: value.tolist())), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PrivacyTransformer":
        """Read a transformer that `save` wrote; a damaged or changed file raises ValueError."""
        header, arrays = read_arrays(Path(path))
        try:
            if header["format"] != _FORMAT:
                raise ValueError(f"its format is {header['format']!r}")
            params: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in header["params"].items()}
            fitted = cls(**params)
            for name in _ATTRIBUTES:
                setattr(fitted, name, header["attributes"][name])
            width, names = fitted.n_features_in_, header["feature_names"]
            if names:
                fitted.feature_names_in_ = np.asarray(names, dtype=object)
            fitted.encoder_ = Encoder.from_arrays(header, arrays)
            depth = (1 + sum(name.startswith("public/") for name in arrays)) // 2
            public = [{key: arrays[f"public/{i}/{key}"] for key in ("kernel", "bias")} for i in range(depth)]
            fitted._public = dense_layers({f"Dense_{i}": a for i, a in enumerate(public)}, last="dense")
            fitted._target = _Label(np.empty(0), arrays.get("classes"), *map(float, header["y"]))
            # One row of zeros shows whether everything fits together.
            outputs = _apply((*fitted.encoder_.layers, *fitted._public), np.zeros((1, width)))
            if outputs.shape != (1, fitted._target.width) or (names and len(names) != width):
                raise ValueError("its names or classes do not fit its networks")
        except Exception as error:  # a forged file may raise any error
            raise ValueError(f"{path} is not a valid {_FORMAT} file ({error}): save it again.") from None
        return fitted

    def _outputs(self, X) -> np.ndarray:
        X = self._validate(X)
        return _apply((*self.encoder_.layers, *self._public), X)

    @property
    def classes_(self) -> np.ndarray:
        """Sorted classes of y."""
        check_is_fitted(self)
        if self._target.classes is None:
            raise AttributeError("classes_ is absent, because y is continuous.")
        return self._target.classes

    @property
    def _n_features_out(self) -> int:
        return self.encoder_.width

    def _kind_of_y(self) -> str | None:
        """Return "category" or "continuous"; None before `fit` if `kinds` does not name y."""
        if not self.__sklearn_is_fitted__():
            return (self.kinds or {}).get("y")
        return "continuous" if self._target.classes is None else "category"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_target")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]  # pyright: ignore
        kind = self._kind_of_y()
        if kind == "category":
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        elif kind == "continuous":
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    def _validate(self, X, *y, **options) -> Any:
        if not y:
            check_is_fitted(self)
            options["reset"] = False
        try:
            # C order: sums over rows in another memory layout round differently.
            return validate_data(self, X, *y, dtype=_FLOATS, order="C", **options)
        except (TypeError, ValueError):
            for name in getattr(X, "columns", ()):
                try:
                    np.result_type(np.asarray(X[name]).dtype, np.float64)  # dates would pass as numbers below
                    check_array(X[[name]], dtype=_FLOATS, ensure_all_finite=False, ensure_min_samples=0)
                except (TypeError, ValueError):
                    remedy = "encode it first, for instance with OneHotEncoder"
                    raise ValueError(f"X column {name!r} does not hold numbers: {remedy}.") from None
            raise


class _Label(NamedTuple):
    """A label: class numbers [n], or reals [n, 1] standardised by their mean and spread."""

    values: np.ndarray
    classes: np.ndarray | None
    mean: float = 0.0
    spread: float = 1.0

    @property
    def width(self) -> int:
        return 1 if self.classes is None else len(self.classes)


def _encode(name: str, values: Any, kind: str | None, weights: np.ndarray | None) -> _Label:
    """Encode a label; without a kind, numbers with fractions are continuous and all else is classes.

    Continuous labels are standardised, so that a privacy weight has one meaning in all units.
    """
    values = _plain(name, values)
    classes, codes = np.unique(values, return_inverse=True)
    if len(classes) == 1:
        raise ValueError(f"{name} has one class only, {classes[0]!s}: at least two are needed.")
    fractions = values.dtype.kind == "f" and bool((values != np.floor(values)).any())
    if kind == "category" and fractions:
        raise ValueError(f"{name} holds fractions, so it is continuous and not a category.")
    if kind == "continuous" and values.dtype.kind not in "biuf":
        raise ValueError(f"{name} does not hold numbers, so it is a category and not continuous.")
    if kind == "continuous" or fractions:
        values = values.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(values, weights=weights)
            spread = np.sqrt(np.average((values - mean) ** 2, weights=weights))
        if not 0 < spread < np.inf:
            raise ValueError(f"{name} has a standard deviation of {spread:g}: give it in another unit.")
        return _Label(((values - mean) / spread)[:, None], None, float(mean), float(spread))
    if kind is None and len(classes) > max(len(values) // 2, 2):
        raise ValueError(
            f"{name} has {len(classes)} classes in {len(values)} rows: say in kinds whether it is "
            "'continuous' or a 'category'."
        )
    return _Label(codes.astype(np.int32), classes)


def _plain(name: str, values: Any) -> np.ndarray:
    """Return text, numbers, booleans or dates [n], none of them missing."""
    values = np.asarray(values)
    try:
        missing = (values != values).any()  # NaN and not-a-time differ from themselves
        values = np.asarray(values.tolist()) if np.sort(values).dtype == object else values
    except TypeError:  # from comparing None or pandas.NA, or text with numbers
        raise TypeError(f"{name} has missing values or mixes text and others: fill or convert.") from None
    if missing or (values.dtype.kind == "f" and np.isinf(values).any()):
        raise ValueError(f"{name} has missing or infinite values: drop or fill those rows.")
    if values.ndim != 1 or values.dtype.kind not in "biufSUM":
        raise TypeError(f"{name} must hold text, numbers, booleans or dates, one in a row.")
    return values


def _private_columns(sensitive_features: Any, num_rows: int) -> dict[str, np.ndarray]:
    """Return the private variables by name: the columns of a table, or a vector."""
    if isinstance(sensitive_features, Mapping) or hasattr(sensitive_features, "columns"):
        names = getattr(sensitive_features, "columns", sensitive_features)
        columns = [(name, sensitive_features[name]) for name in names]
    else:
        values = np.asarray(sensitive_features)
        columns = list(enumerate(values.T)) if values.ndim == 2 else [(_VECTOR, values)]
    named = {str(name): np.asarray(values) for name, values in columns}
    if not 0 < len(named) == len(columns):
        raise ValueError("sensitive_features must have columns with distinct names.")
    for name, values in named.items():
        if values.shape != (num_rows,):
            raise ValueError(
                f"{_quote(name)} must be one value for each of the {num_rows} rows of X, "
                f"got shape {values.shape}."
            )
    return named


def _quote(name: str) -> str:
    """Return the name of a private variable in messages."""
    return _VECTOR if name == _VECTOR else f"sensitive_features[{name!r}]"


def _no_loss(z, p, **_):
    return jnp.zeros(())


def _history(result: FitResult, *, hides: bool) -> dict[str, Any]:
    """Return the history as JSON values, without privacy if nothing is hidden."""
    history = jax.tree.map(lambda a: [v if math.isfinite(v) else None for v in a.tolist()], result.history)
    losses, measures = history.losses._asdict(), history.measures._asdict()
    if not hides:
        del losses["privacy"], measures["probe"]
    return {"rate_scale": history.rate_scale, "losses": losses, "measures": measures}


def _apply(layers: Sequence[Layer], x: np.ndarray) -> np.ndarray:
    """Apply layers in float64, in which a row gives the same z alone and among others."""
    blocks = (x[i : i + _BLOCK].astype(np.float64) for i in range(0, max(len(x), 1), _BLOCK))
    return np.concatenate([apply_numpy(layers, block) for block in blocks])
