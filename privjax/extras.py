"""Import of optional libraries."""

import importlib
from types import ModuleType


def import_optional(module: str, *, extra: str = "data") -> ModuleType:
    """Import an optional library, or name the extra that installs it.

    Args:
      module: The module to import, for instance `"pyarrow.parquet"`.
      extra: The extra of privjax that installs the library.

    Raises:
      ImportError: The library is not installed.

    Example:
      >>> import_optional("json").dumps([1])
      '[1]'
    """
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A missing dependency of the library is an error of that library, not a missing extra.
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise ImportError(f"{library} is not installed: run pip install 'privjax[{extra}]'.") from error
