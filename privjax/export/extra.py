"""The import of what the extra `export` brings."""

import importlib
from types import ModuleType


def need(module: str) -> ModuleType:
    """Imports an optional library, or says in one sentence which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # a broken installation is no missing extra
            raise
        raise ImportError(f"{module} is not installed: pip install 'privjax[export]' brings it.") from error
