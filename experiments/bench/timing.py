"""Timing for ratios within one run: the best of several interleaved repeats; peak memory of a call."""

import time
from collections.abc import Callable
from pathlib import Path


def best_times(functions: dict[str, Callable[[], object]], *, repeats: int = 9) -> dict[str, float]:
    """Return the milliseconds of each function, the best of `repeats`, after a first call that may compile.

    The functions take turns, so a busy moment of the machine affects all of them.
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


def peak_megabytes(function: Callable[[], object]) -> int | None:
    """Return the peak memory of a call above the memory before it; None where it is not reported."""
    peaks = Path("/proc/self/clear_refs")
    if not peaks.exists():
        function()
        return None
    peaks.write_text("5")  # forget earlier peaks, also of the parent process
    before = _resident("VmRSS")
    function()
    return (_resident("VmHWM") - before) // 1024


def _resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)))
