"""Shared parts of the sub-commands: option types, one-sentence errors, exit codes, tables."""

import contextlib
import csv
import errno
import functools
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

EXIT_CODES = (
    "Exit codes: 0 done; 1 not possible, with one sentence on stderr that says why; 2 wrong usage; "
    "70 an internal error of privjax; 130 stopped by Ctrl-C; 143 terminated."
)
STOPPED = (130, 143)
_INTERNAL_ERROR = 70

Json = Annotated[bool, typer.Option("--json", help="Print only the result, as JSON, on stdout.")]
Progress = Annotated[
    Literal["bar", "log", "off"] | None,
    typer.Option(help="Progress on stderr.", show_default="bar on a terminal, log elsewhere"),
]

_USER_ERRORS = (ValueError, OSError, RuntimeError, ImportError, MemoryError)
_ADVICE = {
    errno.ENOSPC: "make room, then run the same command again",
    errno.EDQUOT: "make room, then run the same command again",
    errno.EACCES: "choose a path that you may use",
    errno.EPERM: "choose a path that you may use",
    errno.EROFS: "choose a path that you may use",
    errno.EISDIR: "give a file",
    errno.ENOTDIR: "give a folder",
    errno.EEXIST: "give another path",
}


# ---- options ----------------------------------------------------------------------------------------


def parse_words(text: str, option: str) -> list[str]:
    """Parse a list such as a,b,c. Quotes keep a comma inside a word."""
    words = [word.strip() for word in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(words) or not words:
        raise typer.BadParameter(f"{text!r} is no list such as a,b,c.", param_hint=option)
    return words


def parse_numbers(text: str, option: str, *, least: int = 0) -> list[int]:
    """Parse whole numbers such as 0,3,5-7."""
    numbers = []
    for word in parse_words(text, option):
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word)
        if not found or int(found[1]) < least:
            raise typer.BadParameter(f"{word!r} is no whole number from {least} up.", param_hint=option)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise typer.BadParameter(f"{word!r} runs backwards: write {last}-{first}.", param_hint=option)
        numbers += range(first, last + 1)
    return numbers


def parse_weights(text: str) -> list[float]:
    """Parse privacy weights such as 0,1,2^4, or 2^-4:2^4:9 for nine in a geometric series."""
    try:
        if ":" in text:
            low, high, count = text.split(":")
            first, steps = _parse_power(low), int(count) - 1
            if steps < 1:
                raise ValueError
            step = math.log(_parse_power(high) / first) / steps
            # Twelve digits keep powers of two exact where the logarithm rounds.
            weights = [float(f"{first * math.exp(i * step):.12g}") for i in range(steps + 1)]
        else:
            weights = [_parse_power(word) for word in text.split(",")]
    except (ValueError, ArithmeticError):
        raise typer.BadParameter(
            f"{text!r} is neither 0,1,4 nor 2^-4:2^4:9.", param_hint="--weights"
        ) from None
    if any(not math.isfinite(weight) or weight < 0 for weight in weights):
        raise typer.BadParameter("weights must be finite and not negative.", param_hint="--weights")
    return weights


def _parse_power(word: str) -> float:
    base, _, power = word.partition("^")
    return math.pow(float(base), float(power) if power else 1.0)


def parse_kinds(pairs: Sequence[str]) -> dict[str, str]:
    """Parse pairs such as column=category."""
    kinds = {}
    for pair in pairs:
        name, equals, kind = pair.rpartition("=")
        if not equals or kind not in ("category", "continuous"):
            raise typer.BadParameter(
                f"{pair!r} is neither column=category nor column=continuous.", param_hint="--kinds"
            )
        kinds[name] = kind
    return kinds


def parse_image(text: str) -> tuple[int, ...]:
    """Parse a shape such as 32x32x1: height, width, channels."""
    words = text.split("x")
    if len(words) != 3 or not all(word.isdecimal() and int(word) for word in words):
        raise typer.BadParameter(
            f"{text!r} is not height x width x channels, as in 32x32x1.", param_hint="--image"
        )
    return tuple(int(word) for word in words)


# ---- running ----------------------------------------------------------------------------------------


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C."""


def terminate(number: int, frame: Any) -> NoReturn:
    """Handle SIGTERM."""
    raise Terminated


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Make a sub-command end with an exit code and one sentence, also on errors."""

    @functools.wraps(command)
    def run(*args, **kwargs):
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except KeyboardInterrupt as stop:
            _complain(str(stop) or "stopped.")
            raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
        except Exception as error:
            if os.environ.get("PRIVJAX_DEBUG", "0") not in ("", "0"):
                raise
            _complain(sentence(error))
            raise typer.Exit(1 if isinstance(error, _USER_ERRORS) else _INTERNAL_ERROR) from None

    return run


def _complain(text: str) -> None:
    print(f"privjax: {text}", file=sys.stderr, flush=True)


def sentence(error: Exception) -> str:
    """Return the error and its remedy in one line."""
    text = " ".join(str(error).split())
    if not isinstance(error, _USER_ERRORS):
        return f"unexpected {type(error).__name__} ({text}): set PRIVJAX_DEBUG=1 to see where, and report it."
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{where}{error.strerror.lower()}: {_ADVICE.get(error.errno or 0, 'check the path')}."
    if isinstance(error, ModuleNotFoundError):
        return f"{text}: install it with pip install 'privjax[all]'."
    if isinstance(error, MemoryError):
        return f"out of memory ({text}): use fewer rows, or a smaller --batch-size."
    # The library names arguments of functions; the user typed options.
    text = re.sub(r"missing='(\w+)'", r"--missing \1", text)
    text = re.sub(r"kinds=\{'(.+?)': '(\w+)'\}", lambda m: f"--kinds {shlex.quote(f'{m[1]}={m[2]}')}", text)
    return text.replace("allow_private_features=True", "--private-features")


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Say how to resume a stopped job whose finished work is kept."""
    try:
        yield
    except KeyboardInterrupt as stop:
        message = f"stopped; finished work is kept. To resume, run: {_this_command()}"
        raise type(stop)(message) from None


def _this_command() -> str:
    program = Path(sys.argv[0])
    found = shutil.which(program.name)
    if program.name == "__main__.py":
        words = ["python", "-m", "privjax.cli"]
    elif found is not None and Path(found).resolve() == program.resolve():
        words = [program.name]  # the shell finds it without its folder
    else:
        words = [str(program)]
    return shlex.join([*words, *sys.argv[1:]])


def progress_mode(progress: str | None) -> str:
    """Return the mode asked for, or one that suits stderr."""
    return progress or ("bar" if sys.stderr.isatty() else "log")


# ---- output -----------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """Print a result for a program."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table with numbers on the right; one line per row where the table is too wide."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    for name, *cells in zip(columns, *rows, strict=True):
        text = any(isinstance(cell, str) for cell in cells)
        table.add_column(name, justify="left" if text else "right")
    for row in rows:
        table.add_row(*(format_cell(cell) for cell in row))
    # Names in the data may look like markup. Lines of a file are not cut.
    console = Console(markup=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 160
    if console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print(table)
        return
    for row in rows:
        print(", ".join(f"{name} {format_cell(cell)}" for name, cell in zip(columns, row, strict=True)))


def format_cell(value: Any) -> str:
    """Format one cell of a table."""
    if isinstance(value, float):
        return f"{value:.3f}"
    return "-" if value is None else str(value)


def format_weight(weight: float | Mapping[str, float]) -> str:
    """Format a privacy weight."""
    return f"{weight:g}" if isinstance(weight, float) else json.dumps(weight)


def quoted(path: Path) -> str:
    """Quote a path for the shell."""
    return shlex.quote(str(path))
