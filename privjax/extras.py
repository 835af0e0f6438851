"""Import of optional libraries."""

import importlib
from types import ModuleType


def import_optional(module: str, *, extra: str = "data") -> ModuleType:
    """Import a module such as `pyarrow.parquet`, or name the extra of privjax that installs its library."""
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A missing dependency of the library is an error of that library, not a missing extra.
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise ImportError(f"{library} is not installed: run pip install 'privjax[{extra}]'.") from error
