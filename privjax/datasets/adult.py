"""Adult: census income of 1994; utility = income, private = sex or race."""

import io
from collections.abc import Sequence

import numpy as np

from privjax.datasets.published import Files, PublishedSet, Rows, refuse_damaged
from privjax.datasets.splits import DataError, fixed_test_split
from privjax.extras import import_optional

_NUMBERS = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
_COLUMNS = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country income"
).split()
_INCOME = ("<=50K", ">50K")


def _read(files: Files) -> Rows:
    """Read the people, the official training rows first; every category is one column of x per class."""
    pandas = import_optional("pandas")
    parts = [_read_part(files, name) for name in ("adult.data", "adult.test")]
    table = pandas.concat(parts, ignore_index=True)
    x = pandas.get_dummies(table.drop(columns="income"), prefix_sep="=", dtype=np.float32)
    arrays = {"x": x.to_numpy(np.float32), "income": (table["income"] == _INCOME[1]).to_numpy(np.int32)}
    arrays["is_test"] = np.repeat([False, True], [len(part) for part in parts])
    names: dict[str, Sequence[str]] = {"features": list(x.columns), "income": _INCOME}
    for variable in ("sex", "race"):
        classes, arrays[variable] = np.unique(table[variable].to_list(), return_inverse=True)
        names[variable] = classes.tolist()
    return Rows(arrays, names)


def _read_part(files: Files, ending: str):
    name = files.find(ending)
    data, label = io.BytesIO(files.read(name)), files.label(name)
    with refuse_damaged(label):
        table = import_optional("pandas").read_csv(
            data, names=_COLUMNS, index_col=False, skipinitialspace=True, comment="|", keep_default_na=False
        )
        table = table[table["age"] != "age"]  # some copies have a line of names
        table = table.astype(dict.fromkeys(_NUMBERS, np.float32)).assign(
            income=table["income"].str.rstrip(".")
        )
    if not len(table) or table.isna().any(axis=None) or not table["income"].isin(_INCOME).all():
        raise DataError(f"{label}: every line must have {len(_COLUMNS)} cells and end with <=50K or >50K.")
    return table


SET = PublishedSet(
    name="adult",
    title="Adult: census income of 1994",
    size="48842 x 106 (103 without race), income above 50K or not (utility), sex or race (private)",
    terms="CC BY 4.0 at UCI",
    citation="Becker, Kohavi, Adult, UCI Machine Learning Repository, 1996",
    homepage="https://archive.ics.uci.edu/dataset/2",
    url="https://archive.ics.uci.edu/static/public/2/adult.zip",
    bytes=620237,
    sha256="7537312dd56c2b98035880805ce99e68183a30ee468aa5329d6df0fbb3cc21bb",
    needs=((),),
    read=_read,
    utility="income",
    private=("sex", "race"),
    protocols={
        "official": lambda arrays, **how: fixed_test_split(arrays["income"], arrays["is_test"], **how)
    },
    num_rows=48842,
)
