"""Shape checks for the whole suite: jaxtyping annotations are checked after each successful call.

`tests/conftest.py` calls `install("privjax")` before the package is imported. From then on every plain
function and method of the package whose annotations mention a jaxtyping type (`Float[Array, "n d"]`, also
inside a union) is replaced by `checked(function)`:

- The function runs first. Its own exceptions pass through untouched and nothing is checked, so tests of bad
  input still see the sentence that the library raises.
- Then beartype compares arguments and result with their annotations. Within one call a letter is one size:
  `Float[Array, "n d"]` and `Integer[Array, " n"]` must agree on n.
- A mismatch raises `WrongAnnotation`: the annotation promises something that the function does not keep.

To take part, annotate a function: `def scale(x: Float[ArrayLike, "n d"]) -> Float[Array, "n d"]`. A single
size takes a leading space, `Float[Array, " n"]`, which keeps ruff quiet. Functions that `jax.jit` or
`jax.custom_vjp` wrap are left alone: annotate the function that users call.
"""

import functools
import importlib.abc
import inspect
import sys
import types
import typing

import jax
import numpy as np
from beartype import BeartypeConf
from beartype.door import is_bearable
from jaxtyping import AbstractArray, jaxtyped

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NUMBERS = BeartypeConf(is_pep484_tower=True)  # an int is a float, as for type checkers


class WrongAnnotation(Exception):
    """An argument or a result does not have the shape or dtype of its annotation.

    It is neither a ValueError nor an AssertionError, which tests expect from the code under test.
    """


def checked(function):
    """Wrap a function so that its arguments and its result are checked once it has returned."""
    signature = inspect.signature(function)
    variadic = {name for name, parameter in signature.parameters.items() if parameter.kind in VARIADIC}
    hints = {
        name: hint
        for name, hint in _annotations(function).items()
        if name not in variadic and _mentions_arrays(hint)
    }
    if not hints:
        return function

    @functools.wraps(function)
    def call(*args, **kwargs):
        result = function(*args, **kwargs)
        values = {**signature.bind(*args, **kwargs).arguments, "return": result}
        with jaxtyped("context"):
            for name, hint in hints.items():
                value = _as_array(values.get(name))
                if name in values and not is_bearable(value, hint, conf=NUMBERS):
                    raise WrongAnnotation(
                        f"{function.__module__}.{function.__qualname__}: {name} is annotated {hint}, got "
                        f"{type(value).__name__} {getattr(value, 'dtype', '')}{getattr(value, 'shape', '')}."
                    )
        return result

    return call


def check_module(module) -> None:
    """Replace the functions and methods that a module defines by their checked forms."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, types.FunctionType):
            setattr(module, name, checked(value))
        elif isinstance(value, type):
            for method, function in list(vars(value).items()):
                if isinstance(function, types.FunctionType):
                    setattr(value, method, checked(function))


def install(package: str) -> None:
    """Check every module of a package from the moment it is imported."""
    sys.meta_path.insert(0, _Finder(package))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, package: str):
        self.package = package

    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] != self.package:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in finders)), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_check(module):
            execute(module)
            check_module(module)

        spec.loader.exec_module = execute_and_check  # pyright: ignore[reportAttributeAccessIssue]
        return spec


def _annotations(function) -> dict:
    """Annotations with strings evaluated; names that exist for type checkers only are left out."""
    hints = {}
    for name, hint in function.__annotations__.items():
        try:
            hints[name] = eval(hint, function.__globals__) if isinstance(hint, str) else hint
        except NameError:
            continue
    return hints


def _mentions_arrays(hint) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_mentions_arrays(part) for part in typing.get_args(hint))


def _as_array(value):
    """A column of a table or a tensor of another library counts as the array that it converts to."""
    if hasattr(value, "__array__") and not isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return np.asarray(value)
    return value
