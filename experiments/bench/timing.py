"""Timing for ratios within one run: everything interleaved, the best of several repeats."""

import time
from collections.abc import Callable


def best_times(functions: dict[str, Callable[[], object]], *, repeats: int = 9) -> dict[str, float]:
    """Milliseconds of each function, the best of `repeats`, after a first call that may compile.

    One turn of every function, then the next: a busy moment of the machine then falls on all alike.
    """
    for function in functions.values():
        function()
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best
