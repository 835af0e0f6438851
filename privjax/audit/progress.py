"""What a person sees while points are audited: a bar on a terminal, lines in a log, or nothing."""

import sys
import time
from collections.abc import Callable

_WIDTH = 30


def counter(mode: str | None, total: int, done: int = 0) -> Callable[[str], None]:
    """A function to call with a few words each time a point is done.

    Args:
      mode: "bar", "log" (a line a point), "off", or None for a bar on a terminal and nothing elsewhere.
      total: points in all.
      done: points that were done before.
    """
    if mode not in (None, "bar", "log", "off"):
        raise ValueError(f"progress must be 'bar', 'log', 'off' or None, got {mode!r}.")
    if mode is None:
        mode = "bar" if sys.stderr.isatty() else "off"
    began, standing = time.monotonic(), {"done": done}

    def show(words: str) -> None:
        standing["done"] += 1
        now = standing["done"]
        left = (total - now) * (time.monotonic() - began) / max(now - done, 1)
        line = f"{now}/{total} points, {words}, about {left:.0f} s left"
        if mode == "log":
            print(f"audit: {line}", file=sys.stderr, flush=True)
        elif mode == "bar":
            full = "#" * (_WIDTH * now // max(total, 1))
            end = "\n" if now >= total else ""
            print(f"\raudit [{full:<{_WIDTH}}] {line:<60}", end=end, file=sys.stderr, flush=True)

    return show
