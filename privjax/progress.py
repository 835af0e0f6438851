"""What a person sees while a long job runs: a bar on a terminal, lines in a log, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

_SECONDS_BETWEEN_LINES = 10.0


class Standing(NamedTuple):
    """How far a job is.

    Attributes:
      total: things to do, such as members of a sweep.
      done: how many are done.
      words: what things are called, and whatever else there is to say.
      part: of the work on those that are not done, as things: 0.5 for one of them half way.
    """

    total: int
    done: int
    words: str
    part: float = 0.0

    def __str__(self) -> str:
        return f"{self.done}/{self.total} {self.words}"


class Reporter(NamedTuple):
    """Where to say things: `say` a sentence, `show` a standing."""

    say: Callable[[str], None]
    show: Callable[[Standing], None]


@contextmanager
def reporter(mode: str | None, job: str, waiting: str = "starting") -> Iterator[Reporter]:
    """Opens a place to report to.

    Args:
      mode: "bar", "log" (a line each ten seconds and each time things are done), "off", or None for a bar
        on a terminal and nothing elsewhere.
      job: what it is called.
      waiting: what a bar says before anything is known.
    """
    if mode not in (None, "bar", "log", "off"):
        raise ValueError(f"progress must be 'bar', 'log', 'off' or None, got {mode!r}.")
    if mode is None:
        mode = "bar" if sys.stderr.isatty() else "off"
    if mode == "off":
        yield Reporter(lambda sentence: None, lambda standing: None)
    elif mode == "log":
        yield _log(job)
    else:
        with _bar(job, waiting) as bar:
            yield bar


def _log(job: str) -> Reporter:
    began = time.monotonic()
    last = {"time": began, "done": 0}
    first: dict[str, float] = {}

    def say(sentence: str) -> None:
        print(f"{job}: {sentence}", file=sys.stderr, flush=True)

    def show(standing: Standing) -> None:
        now = time.monotonic()
        worked = standing.done + standing.part
        first.setdefault("worked", worked)  # a job that goes on has a head start
        if standing.done == last["done"] and now - last["time"] < _SECONDS_BETWEEN_LINES:
            return
        last.update(time=now, done=standing.done)
        gained = worked - first["worked"]
        left = (standing.total - worked) * (now - began) / gained if gained > 0 else 0.0
        say(f"{standing}" + (f", about {left:.0f} s left" if left > 0.5 else ""))

    return Reporter(say, show)


@contextmanager
def _bar(job: str, waiting: str) -> Iterator[Reporter]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn(f"[bold]{job}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(waiting, total=None)

        def show(standing: Standing) -> None:
            progress.update(
                task,
                total=standing.total,
                completed=standing.done + standing.part,
                description=str(standing),
            )

        # A sentence may hold a path, and a path brackets: they are no markup.
        yield Reporter(lambda sentence: console.print(f"{job}: {sentence}", markup=False), show)
