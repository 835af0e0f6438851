"""`PrivacyTransformer`: rows in, released rows out, as scikit-learn's pipelines and searches expect."""

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from privjax.estimator import device, saving
from privjax.estimator.labels import check_kinds, describe, encode, private_columns
from privjax.estimator.training import make_history, train

_FLOATS: Any = (np.float64, np.float32)


class PrivacyTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns to release z instead of X: keeps what predicts y, loses what tells `sensitive_features`.

    `transform` is the private sphere, what is released; `predict` is the public sphere after it. Labels are
    classes of any type, but for numbers with a fraction, which are continuous, and standardised inside.

    `check_estimator(PrivacyTransformer(privacy_weight=0.0))` passes but for one check,
    `check_sample_weight_equivalence_on_dense_data`: a row of weight 2 is as good as two rows on average, not
    to the last digit, since batches and dropout are drawn by rows. A row of weight 0 is as good as none.

    Args:
      objective: "mmd", "rff_mmd", "kdi", "wdn" or "lsdn"; only kdi and lsdn hide continuous variables.
      privacy_weight: a larger one hides more; a dict of one for each column of `sensitive_features`. With
        0.0, and only then, `fit` does without `sensitive_features`: nothing is hidden.
      n_components: width of z.
      private_widths: hidden layers of the private sphere, before z.
      public_widths: hidden layers of the public sphere.
      batch_size: rows a step, at most.
      max_epochs: epochs to train for, at most; None for as many as the objective's schedule has.
      scale: whether to standardise the columns of X.
      kinds: labels that are not what they look like, "category" or "continuous", by name: "y", a column of
        `sensitive_features`, or "sensitive_features" where that is a vector.
      random_state: of the first parameters, the order of rows and the dropout.

    Attributes:
      classes_: classes of y, sorted; not there when y is continuous.
      n_iter_: epochs trained.
      status_: "converged", "finished" (at its last epoch) or "diverged".
      history_: epoch by epoch `losses`, `measures` and `rate_scale`; `privacy` and `probe` in them by name.
      n_features_in_: columns of X.
      feature_names_in_: their names, where all are strings.
    """

    # With metadata routing on, what is to be hidden reaches `fit` without a `set_fit_request`.
    __metadata_request__fit = {"sensitive_features": True}

    def __init__(
        self,
        objective: str = "mmd",
        *,
        privacy_weight: float | dict[str, float] = 4.0,
        n_components: int = 50,
        private_widths: tuple[int, ...] = (),
        public_widths: tuple[int, ...] = (500,),
        batch_size: int = 500,
        max_epochs: int | None = None,
        scale: bool = True,
        kinds: dict[str, str] | None = None,
        random_state: Any = 0,
    ):
        self.objective = objective
        self.privacy_weight = privacy_weight
        self.n_components = n_components
        self.private_widths = private_widths
        self.public_widths = public_widths
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.scale = scale
        self.kinds = kinds
        self.random_state = random_state

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None) -> "PrivacyTransformer":
        """Trains both spheres.

        Args:
          X: numbers [n, features].
          y: what to keep [n]: classes, or a quantity.
          sensitive_features: what to hide: one value for each row; or a data frame, a matrix or a dict, each
            of whose columns is hidden by itself.
          sample_weight: non-negative weights [n] of the rows.
        """
        X, y = self._checked(X, y, ensure_min_samples=2)
        private, weights = {}, None
        if sensitive_features is not None:
            private = private_columns(sensitive_features, len(X))
        elif self.privacy_weight != 0:
            raise ValueError(
                "fit needs sensitive_features=, the labels to hide; to hide nothing, set privacy_weight=0.0."
            )
        if sample_weight is not None:
            weights = _checked_weights(sample_weight, len(X))
            # A row of weight 0 is no row: it has no place in a batch either.
            rows = weights > 0
            X, y, weights = X[rows], y[rows], weights[rows]
            private = {name: values[rows] for name, values in private.items()}
            weights = None if (weights == weights[0]).all() else weights / weights.mean()
        kinds = check_kinds(self.kinds, private)
        y = encode("y", y, kinds.get("y"), weights)
        private = {
            name: encode(describe(name), values, kinds.get(name), weights) for name, values in private.items()
        }
        self._model, result = train(X, y, private, weights, self.get_params(deep=False))
        self.n_iter_ = len(result.history.ran)
        self.status_ = result.status
        self.history_ = make_history(result, bool(private))
        return self

    def transform(self, X):
        """Releases z [n, n_components] for rows X: what leaves the device."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        return self._model.release(X).astype(X.dtype, copy=False)

    def predict(self, X) -> np.ndarray:
        """What the public sphere says of rows: classes as they were in y, or reals."""
        check_is_fitted(self)
        outputs, model = self._model.outputs(self._checked(X, reset=False)), self._model
        if model.classes is None:
            return outputs[:, 0] * model.y_spread + model.y_mean
        return model.classes[outputs.argmax(1)]

    @available_if(lambda self: self._kind_of_y() != "continuous")
    def predict_proba(self, X) -> np.ndarray:
        """Probabilities [n, classes], in the order of `classes_`; not there when y is continuous."""
        check_is_fitted(self)
        outputs = self._model.outputs(self._checked(X, reset=False))
        odds = np.exp(outputs - outputs.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    def score(self, X, y, sample_weight=None) -> float:
        """Utility of what is released: accuracy, or R^2 when y is continuous."""
        score = r2_score if self._kind_of_y() == "continuous" else accuracy_score
        return float(score(y, self.predict(X), sample_weight=sample_weight))

    def save(self, path: str | os.PathLike) -> None:
        """Writes the fitted transformer, both spheres, to one file, without pickle.

        A `random_state` that is a generator is saved as None. What goes on a device is what `export` writes.
        """
        check_is_fitted(self)
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "PrivacyTransformer":
        """Reads what `save` wrote; a file that was cut short or changed is refused."""
        return saving.load(cls, path)

    def export(self, to: str | os.PathLike) -> dict[str, Any]:
        """Writes the private sphere alone, with its scaling, to an `.npz` file for the device.

        `privjax.release_file` and the runner that `privjax.export` describes read it; rows go in as they
        are in X.

        Returns:
          The file's header: input, output, parameters, bytes, multiply_adds of a row, sha256.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        weight = self.privacy_weight  # a search may have made it a number of NumPy's
        weight = {k: float(v) for k, v in weight.items()} if isinstance(weight, dict) else float(weight)
        about = {"objective": self.objective, "privacy_weight": weight}
        return device.export(self._model, to, None if names is None else list(names), about)

    @property
    def classes_(self) -> np.ndarray:
        """Classes of y, sorted."""
        check_is_fitted(self)
        if self._model.classes is None:
            raise AttributeError("there are no classes_, since y is continuous.")
        return self._model.classes

    @property
    def _n_features_out(self) -> int:
        return self._model.private[-1][1].size

    def _kind_of_y(self) -> str | None:
        """What y is, or None as long as nobody has said."""
        if not self.__sklearn_is_fitted__():
            return (self.kinds or {}).get("y")
        return "continuous" if self._model.classes is None else "category"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

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

    def _checked(self, X, *y, **options) -> Any:
        try:
            # In one order, as sums over rows that lie otherwise in memory round otherwise.
            return validate_data(self, X, *y, dtype=_FLOATS, order="C", **options)
        except (TypeError, ValueError):
            for name in getattr(X, "columns", ()):
                _check_column(X, name)
            raise


def _check_column(X: Any, name: Any) -> None:
    try:
        np.result_type(np.asarray(X[name]).dtype, np.float64)  # dates would pass for numbers below
        check_array(X[[name]], dtype=_FLOATS, ensure_all_finite=False, ensure_min_samples=0)
    except (TypeError, ValueError):
        raise ValueError(
            f"X column {name!r} does not hold numbers: encode it first, as OneHotEncoder does."
        ) from None


def _checked_weights(weights: Any, num_rows: int) -> np.ndarray:
    weights = np.asarray(weights, np.float64)
    if weights.shape != (num_rows,):
        raise ValueError(f"sample_weight must be one number for each of the {num_rows} rows of X.")
    if not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise ValueError("sample_weight must be finite, not negative, and not all zero.")
    return weights
