"""Small real data sets that scikit-learn brings along, without a download."""

import dataclasses

import numpy as np

from privjax.datasets.dataset import Dataset, Origin
from privjax.extras import import_optional


def digits(*, seed: int = 0, validation: float = 0.1) -> Dataset:
    """Load handwritten digits, 8 x 8: utility = parity, private = digit.

    Parity is a function of the digit, so some privacy always costs utility: five digits share a
    parity, and an attacker who knows it is right at least one time in five.

    Args:
      seed: Seed of the split, 80:20 with the same proportion of every digit.
      validation: Share of the training rows in the validation part.

    Returns:
      1797 rows of 64 features.
    """
    bunch = import_optional("sklearn.datasets").load_digits()
    data = Dataset.from_arrays(
        bunch.data,
        bunch.target % 2,
        bunch.target,
        seed=seed,
        validation=validation,
        y_names=("even", "odd"),
        feature_names=bunch.feature_names,
    )
    origin = Origin(
        name="digits",
        protocol="per_digit",
        seed=seed,
        utility="parity",
        private=("digit",),
        source="scikit-learn",
        terms="CC BY 4.0 at UCI",
        citation="Alpaydin, Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
    )
    return dataclasses.replace(data, origin=origin)


def diabetes(*, seed: int = 0, private: str = "age", validation: float = 0.1) -> Dataset:
    """Load diabetes: utility = progression after a year (continuous), private = age or sex.

    Args:
      seed: Seed of the split: 80:20, with private sex the same proportion of both.
      private: `"age"`, continuous in years, or `"sex"`, two classes. It is not a feature.
      validation: Share of the training rows in the validation part.

    Returns:
      442 rows of 9 features.
    """
    if private not in ("age", "sex"):
        raise ValueError(f"private must be 'age' or 'sex', got {private!r}.")
    bunch = import_optional("sklearn.datasets").load_diabetes(scaled=False)
    names = [str(name) for name in bunch.feature_names]
    column = names.index(private)
    s = bunch.data[:, column]
    data = Dataset.from_arrays(
        np.delete(bunch.data, column, axis=1),
        bunch.target,
        s if private == "age" else s - 1,
        seed=seed,
        validation=validation,
        s_names=() if private == "age" else ("sex 1", "sex 2"),
        feature_names=[name for name in names if name != private],
    )
    origin = Origin(
        name="diabetes",
        protocol="random" if private == "age" else "per_sex",
        seed=seed,
        utility="progression",
        private=(private,),
        source="scikit-learn",
        terms="free to use, with citation",
        citation="Efron, Hastie, Johnstone, Tibshirani, Annals of Statistics 2004",
    )
    return dataclasses.replace(data, origin=origin)
