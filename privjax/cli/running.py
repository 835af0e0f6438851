"""What sub-commands share: errors of one sentence, exit codes, and how results are shown."""

import contextlib
import errno
import functools
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

EXIT_CODES = (
    "Exit codes: 0 done; 1 it could not be done, and one sentence on stderr says why; 2 wrong usage; "
    "70 a fault of privjax itself; 130 stopped by Ctrl-C; 143 terminated."
)
FAULT, STOPPED = 70, (130, 143)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")]
Progress = Annotated[
    Literal["bar", "log", "off"] | None,
    typer.Option(help="On stderr.", show_default="bar on a terminal, log elsewhere"),
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


class Terminated(KeyboardInterrupt):
    """SIGTERM: what is to be done is what Ctrl-C does."""


def terminate(number: int, frame: Any) -> NoReturn:
    """The handler of SIGTERM."""
    raise Terminated


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The same sub-command, which ends with an exit code and a sentence whatever happens."""

    @functools.wraps(command)
    def run(*args, **kwargs):
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except KeyboardInterrupt as stop:
            complain(str(stop) or "stopped.")
            raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
        except Exception as error:
            if os.environ.get("PRIVJAX_DEBUG", "0") not in ("", "0"):
                raise
            complain(sentence(error))
            raise typer.Exit(1 if isinstance(error, _USER_ERRORS) else FAULT) from None

    return run


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"privjax: {text}", file=sys.stderr, flush=True)


def sentence(error: Exception) -> str:
    """What went wrong and what to do, in one line."""
    said = " ".join(str(error).split())
    if not isinstance(error, _USER_ERRORS):
        return f"unexpected {type(error).__name__} ({said}): set PRIVJAX_DEBUG=1 to see where, and report it."
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{where}{error.strerror.lower()}: {_ADVICE.get(error.errno or 0, 'check the path')}."
    if isinstance(error, ModuleNotFoundError):
        return f"{said}: pip install 'privjax[all]' brings it."
    if isinstance(error, MemoryError):
        return f"out of memory ({said}): use fewer rows, or a smaller --batch-size."
    # The library speaks to those who call functions.
    said = re.sub(r"missing='(\w+)'", r"--missing \1", said)
    said = re.sub(r"kinds=\{'(.+?)': '(\w+)'\}", lambda m: f"--kinds {shlex.quote(f'{m[1]}={m[2]}')}", said)
    return said.replace("allow_private_features=True", "--private-features")


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Says how to go on where a job is stopped whose work so far is kept."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise type(stop)(f"stopped; what is done is kept. To go on, run: {_this_command()}") from None


def _this_command() -> str:
    """What was typed, ready to be typed again."""
    program = Path(sys.argv[0])
    found = shutil.which(program.name)
    if program.name == "__main__.py":
        words = ["python", "-m", "privjax.cli"]
    elif found is not None and Path(found).resolve() == program.resolve():
        words = [program.name]  # the shell finds it without its folder
    else:
        words = [str(program)]
    return shlex.join([*words, *sys.argv[1:]])


def chosen(progress: str | None) -> str:
    """How a job reports: as asked, or by where stderr goes."""
    return progress or ("bar" if sys.stderr.isatty() else "log")


def print_json(value: Any) -> None:
    """A result on stdout, for a program."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A result on stdout, for a person: numbers on the right; row by row where a table is too wide."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    for name, *cells in zip(columns, *rows, strict=True):
        words = any(isinstance(cell, str) for cell in cells)
        table.add_column(name, justify="left" if words else "right")
    for row in rows:
        table.add_row(*(shown(cell) for cell in row))
    # Names in the data may look like markup; lines in a file are not cut.
    console = Console(markup=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 160
    if console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print(table)
        return
    for row in rows:
        print(", ".join(f"{name} {shown(cell)}" for name, cell in zip(columns, row, strict=True)))


def shown(value: Any) -> str:
    """A cell of a table."""
    if isinstance(value, float):
        return f"{value:.3f}"
    return "-" if value is None else str(value)


def weight_of(member: dict[str, Any]) -> str:
    """A privacy weight as text."""
    weight = member["privacy_weight"]
    return f"{weight:g}" if isinstance(weight, float) else json.dumps(weight)


def quoted(path: Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))
