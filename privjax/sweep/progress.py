"""What a person sees while a sweep runs: a bar on a terminal, lines in a log, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

_SECONDS_BETWEEN_LINES = 10.0


class Standing(NamedTuple):
    """How far a sweep is.

    Attributes:
      members: how many there are.
      done: how many have ended.
      part: of the work of those that have not, as members: 0.5 for one member half way.
      epoch: of the chunk just seen.
      utility: its mean utility loss.
      privacy: its mean privacy loss.
    """

    members: int
    done: int
    part: float
    epoch: int
    utility: float
    privacy: float

    def __str__(self) -> str:
        losses = f"utility loss {self.utility:.3g}, privacy loss {self.privacy:.3g}"
        return f"{self.done}/{self.members} members, epoch {self.epoch}, {losses}"


class Reporter(NamedTuple):
    """Where to say things: `say` a sentence, `show` a standing."""

    say: Callable[[str], None]
    show: Callable[[Standing], None]


@contextmanager
def reporter(mode: str | None) -> Iterator[Reporter]:
    """Opens a place to report to.

    Args:
      mode: "bar", "log" (a line each ten seconds and each time members end), "off", or None for a bar
        on a terminal and nothing elsewhere.
    """
    if mode not in (None, "bar", "log", "off"):
        raise ValueError(f"progress must be 'bar', 'log', 'off' or None, got {mode!r}.")
    if mode is None:
        mode = "bar" if sys.stderr.isatty() else "off"
    if mode == "off":
        yield Reporter(lambda sentence: None, lambda standing: None)
    elif mode == "log":
        yield _log()
    else:
        with _bar() as bar:
            yield bar


def _log() -> Reporter:
    began = time.monotonic()
    last = {"time": began, "done": 0}
    first: dict[str, float] = {}

    def say(sentence: str) -> None:
        print(f"sweep: {sentence}", file=sys.stderr, flush=True)

    def show(standing: Standing) -> None:
        now = time.monotonic()
        worked = standing.done + standing.part
        first.setdefault("worked", worked)  # a sweep that goes on has a head start
        if standing.done == last["done"] and now - last["time"] < _SECONDS_BETWEEN_LINES:
            return
        last.update(time=now, done=standing.done)
        gained = worked - first["worked"]
        left = (standing.members - worked) * (now - began) / gained if gained > 0 else float("nan")
        say(f"{standing}" + (f", about {left:.0f} s left" if left == left and left > 0.5 else ""))

    return Reporter(say, show)


@contextmanager
def _bar() -> Iterator[Reporter]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]sweep"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=None)

        def show(standing: Standing) -> None:
            progress.update(
                task,
                total=standing.members,
                completed=standing.done + standing.part,
                description=str(standing),
            )

        yield Reporter(lambda sentence: console.print(f"sweep: {sentence}"), show)
