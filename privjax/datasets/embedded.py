"""Small real sets that come with scikit-learn: no download."""

import numpy as np

from privjax.datasets.dataset import Dataset, assemble
from privjax.datasets.protocols import per_label_split
from privjax.extras import need

_PARITY = ("even", "odd")
_DIABETES_PRIVATE = ("age", "sex")


def digits(*, seed: int = 0, validation: float = 0.1, scale: str = "standard") -> Dataset:
    """Handwritten digits, 8 x 8: utility = parity, private = digit.

    Parity is a function of the digit, so some privacy always costs utility: with parity kept,
    five digits remain possible and an attacker is right at least one time in five.

    Args:
      seed: Picks the split (80:20 with the same proportion of every digit).
      validation: Share of the training rows set aside.
      scale: ``"standard"``, ``"minmax"`` or ``"none"``.

    Returns:
      1797 rows of 64 features.
    """
    bunch = need("sklearn.datasets").load_digits()
    return assemble(
        bunch.data,
        bunch.target % 2,
        bunch.target,
        per_label_split(bunch.target, seed=seed, validation=validation),
        y_names=_PARITY,
        s_names=tuple(str(digit) for digit in range(10)),
        feature_names=tuple(bunch.feature_names),
        scale=scale,
        provenance={
            "name": "digits",
            "protocol": "per_digit",
            "seed": seed,
            "origin": "scikit-learn",
            "terms": "CC BY 4.0 at UCI",
            "citation": "Alpaydin, Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
            "complete": True,
        },
    )


def diabetes(
    *, seed: int = 0, private: str = "age", validation: float = 0.1, scale: str = "standard"
) -> Dataset:
    """Diabetes: utility = progression after a year (continuous), private = age or sex.

    Args:
      seed: Picks the split (80:20; with private sex, the same proportion of both).
      private: ``"age"``, continuous in years, or ``"sex"``, two classes. It is not a feature.
      validation: Share of the training rows set aside.
      scale: ``"standard"``, ``"minmax"`` or ``"none"``.

    Returns:
      442 rows of 9 features.
    """
    if private not in _DIABETES_PRIVATE:
        raise ValueError(f"private must be 'age' or 'sex', got {private!r}.")
    bunch = need("sklearn.datasets").load_diabetes(scaled=False)
    names = [str(name) for name in bunch.feature_names]
    column = names.index(private)
    values = bunch.data[:, column]
    s_names = () if private == "age" else ("sex 1", "sex 2")
    s = values if private == "age" else values - 1
    strata = np.zeros(len(values)) if private == "age" else values
    return assemble(
        np.delete(bunch.data, column, axis=1),
        bunch.target,
        s,
        per_label_split(strata, seed=seed, validation=validation),
        y_names=(),
        s_names=s_names,
        feature_names=tuple(name for name in names if name != private),
        scale=scale,
        provenance={
            "name": "diabetes",
            "protocol": "random" if private == "age" else "per_sex",
            "private": private,
            "seed": seed,
            "origin": "scikit-learn",
            "terms": "free to use, with citation",
            "citation": "Efron, Hastie, Johnstone, Tibshirani, Annals of Statistics 2004",
            "complete": True,
        },
    )
