"""Progress of a long job: a bar on a terminal, lines in a log, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

_SECONDS_BETWEEN_LINES = 10.0


class Progress(NamedTuple):
    """The state of a job: finished items of a total, and the work done on other items, in items."""

    total: int
    done: int
    description: str
    partial: float = 0.0

    def __str__(self) -> str:
        return f"{self.done}/{self.total} {self.description}"


class Reporter(NamedTuple):
    """Two functions: `say` prints a sentence, `show` displays a `Progress`."""

    say: Callable[[str], None]
    show: Callable[[Progress], None]


@contextmanager
def reporter(mode: str | None, job: str, waiting: str = "starting") -> Iterator[Reporter]:
    """Yield the `Reporter` of a job; `waiting` is the text of a bar before the first `Progress`.

    The mode is "bar", "log" (a line every ten seconds and whenever an item finishes), "off", or None for a
    bar on a terminal and nothing elsewhere.
    """
    if mode not in (None, "bar", "log", "off"):
        raise ValueError(f"progress must be 'bar', 'log', 'off' or None, got {mode!r}.")
    if mode == "log":
        yield _make_log(job)
    elif mode == "bar" or (mode is None and sys.stderr.isatty()):
        with _open_bar(job, waiting) as bar:
            yield bar
    else:
        yield Reporter(lambda sentence: None, lambda progress: None)


def _make_log(job: str) -> Reporter:
    began = last_time = time.monotonic()
    last_done, first_worked = 0, None

    def say(sentence: str) -> None:
        print(f"{job}: {sentence}", file=sys.stderr, flush=True)

    def show(progress: Progress) -> None:
        nonlocal last_time, last_done, first_worked
        now, worked = time.monotonic(), progress.done + progress.partial
        first_worked = worked if first_worked is None else first_worked  # a resumed job has finished items
        if progress.done == last_done and now - last_time < _SECONDS_BETWEEN_LINES:
            return
        last_time, last_done, gained = now, progress.done, worked - first_worked
        left = (progress.total - worked) * (now - began) / gained if gained > 0 else 0.0
        say(f"{progress}" + (f", about {left:.0f} s left" if left > 0.5 else ""))

    return Reporter(say, show)


@contextmanager
def _open_bar(job: str, waiting: str) -> Iterator[Reporter]:
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    columns = ("{task.description}", rich.TimeElapsedColumn(), "left", rich.TimeRemainingColumn())
    with rich.Progress(f"[bold]{job}", rich.BarColumn(), *columns, console=console) as bar:
        task = bar.add_task(waiting, total=None)

        def show(progress: Progress) -> None:
            completed = progress.done + progress.partial
            bar.update(task, total=progress.total, completed=completed, description=str(progress))

        # Without markup, since a sentence may hold a path with brackets.
        yield Reporter(lambda sentence: console.print(f"{job}: {sentence}", markup=False), show)
