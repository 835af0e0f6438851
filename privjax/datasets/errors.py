"""The one error of this package, and the import of optional libraries."""

import importlib
from types import ModuleType


class DataError(ValueError):
    """Data that cannot be trusted or found; the message names the file, and the line."""


def need(module: str) -> ModuleType:
    """Imports an optional library, or says in one sentence which extra brings it.

    Args:
      module: The name to import, for instance ``"pyarrow.parquet"``.

    Returns:
      The imported module.

    Raises:
      ImportError: The library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A broken installation of the library itself must not be blamed on a missing extra.
        if error.name is None or not module.startswith(error.name):
            raise
        raise ImportError(
            f"{module.partition('.')[0]} is not installed: pip install 'privjax[data]' brings it."
        ) from error
