"""Progress of a long job: a bar on a terminal, lines in a log, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

_SECONDS_BETWEEN_LINES = 10.0


class Progress(NamedTuple):
    """The state of a job.

    Attributes:
      total: The number of items, such as members of a sweep.
      done: The number of finished items.
      description: The name of the items, and details.
      partial: The work done on unfinished items, in items: 0.5 for one item half done.
    """

    total: int
    done: int
    description: str
    partial: float = 0.0

    def __str__(self) -> str:
        return f"{self.done}/{self.total} {self.description}"


Standing = Progress


class Reporter(NamedTuple):
    """Two functions: `say` prints a sentence, `show` displays a `Progress`."""

    say: Callable[[str], None]
    show: Callable[[Progress], None]


@contextmanager
def reporter(mode: str | None, job: str, waiting: str = "starting") -> Iterator[Reporter]:
    """Yield the `Reporter` of a job.

    Args:
      mode: "bar", "log" (a line every ten seconds and whenever an item finishes), "off", or None for a bar
        on a terminal and nothing elsewhere.
      job: The name of the job, printed in front of every line.
      waiting: The text of the bar before the first `Progress`.
    """
    if mode not in (None, "bar", "log", "off"):
        raise ValueError(f"progress must be 'bar', 'log', 'off' or None, got {mode!r}.")
    if mode is None:
        mode = "bar" if sys.stderr.isatty() else "off"
    if mode == "off":
        yield Reporter(lambda sentence: None, lambda progress: None)
    elif mode == "log":
        yield _make_log(job)
    else:
        with _open_bar(job, waiting) as bar:
            yield bar


def _make_log(job: str) -> Reporter:
    began = time.monotonic()
    last = {"time": began, "done": 0}
    first: dict[str, float] = {}

    def say(sentence: str) -> None:
        print(f"{job}: {sentence}", file=sys.stderr, flush=True)

    def show(progress: Progress) -> None:
        now = time.monotonic()
        worked = progress.done + progress.partial
        first.setdefault("worked", worked)  # a resumed job starts with finished items
        if progress.done == last["done"] and now - last["time"] < _SECONDS_BETWEEN_LINES:
            return
        last.update(time=now, done=progress.done)
        gained = worked - first["worked"]
        left = (progress.total - worked) * (now - began) / gained if gained > 0 else 0.0
        say(f"{progress}" + (f", about {left:.0f} s left" if left > 0.5 else ""))

    return Reporter(say, show)


@contextmanager
def _open_bar(job: str, waiting: str) -> Iterator[Reporter]:
    from rich import progress as rich_progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        rich_progress.TextColumn(f"[bold]{job}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.description}"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("left"),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console) as bar:
        task = bar.add_task(waiting, total=None)

        def show(progress: Progress) -> None:
            completed = progress.done + progress.partial
            bar.update(task, total=progress.total, completed=completed, description=str(progress))

        # Without markup, since a sentence may hold a path with brackets.
        yield Reporter(lambda sentence: console.print(f"{job}: {sentence}", markup=False), show)
