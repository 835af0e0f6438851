"""A table as blocks of rows: what every reader of a user's file gives."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from privjax.datasets.cells import Cells
from privjax.datasets.errors import DataError


class Block(NamedTuple):
    """Some rows: cells by column, and a function that names the place of a row in errors."""

    cells: dict[str, Cells]
    where: Callable[[int], str]
    rows: int


class Table(NamedTuple):
    """A table that can be read more than once.

    Attributes:
      label: How errors name it.
      columns: Their names.
      blocks: Gives the rows from the first on.
      coded: Columns of whole numbers that the table itself calls classes.
    """

    label: str
    columns: tuple[str, ...]
    blocks: Callable[[], Iterator[Block]]
    coded: tuple[str, ...] = ()


def check_names(label: str, columns: Sequence[str]) -> None:
    """Refuses a column without a name, and two of one name."""
    seen: set[str] = set()
    for name in columns:
        if not name:
            raise DataError(f"{label}: a column has no name.")
        if name in seen:
            raise DataError(f"{label}: two columns are named {name!r}.")
        seen.add(name)


def row_namer(label: str, start: int) -> Callable[[int], str]:
    """Names rows by number, for tables that have no lines."""
    return lambda place: f"{label}, row {start + place}"
