"""Small real data sets that scikit-learn brings along: digits, and diabetes with continuous labels."""

from privjax.datasets.published import PublishedSet, Rows
from privjax.extras import import_optional


def _read_digits(*, seed: int) -> Rows:
    found = import_optional("sklearn.datasets").load_digits()
    arrays = {"x": found.data, "parity": found.target % 2, "digit": found.target}
    names = {"features": found.feature_names, "parity": ("even", "odd"), "digit": list(map(str, range(10)))}
    return Rows(arrays, names, source="scikit-learn")


def _read_diabetes(*, seed: int) -> Rows:
    found = import_optional("sklearn.datasets").load_diabetes(scaled=False)
    columns = dict(zip(found.feature_names, found.data.T, strict=True))
    arrays = {"x": found.data, "progression": found.target, "age": columns["age"], "sex": columns["sex"] - 1}
    names = {"features": list(columns), "progression": (), "age": (), "sex": ("sex 1", "sex 2")}
    return Rows(arrays, names, source="scikit-learn")


# Parity is a function of the digit, so some privacy always costs utility: five digits share a
# parity, and an attacker who knows it is right at least one time in five.
DIGITS = PublishedSet(
    name="digits",
    title="handwritten digits, 8 x 8",
    size="1797 x 64, parity (utility), 10 digits (private)",
    terms="CC BY 4.0 at UCI",
    citation="Alpaydin, Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
    read=_read_digits,
    utility="parity",
    private=("digit",),
    protocols={"per_label": None},
)
DIABETES = PublishedSet(
    name="diabetes",
    title="diabetes progression; a continuous utility",
    size="442 x 9, progression (utility), age or sex (private)",
    terms="free to use, with citation",
    citation="Efron, Hastie, Johnstone, Tibshirani, Annals of Statistics 2004",
    read=_read_diabetes,
    utility="progression",
    private=("age", "sex"),
    protocols={"per_label": None},
)
