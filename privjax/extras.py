"""The import of optional libraries."""

import importlib
from types import ModuleType


def need(module: str, *, extra: str = "data") -> ModuleType:
    """Imports an optional library, or says in one sentence which extra brings it.

    Args:
      module: The name to import, for instance ``"pyarrow.parquet"``.
      extra: That of privjax which installs it.

    Returns:
      The imported module.

    Raises:
      ImportError: The library is not installed.
    """
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A broken installation of the library itself must not be blamed on a missing extra.
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise ImportError(f"{library} is not installed: pip install 'privjax[{extra}]' brings it.") from error
