"""One BLAS thread while training on a CPU: two pools of threads on the same cores wait for each other."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_inside: list[Any] = []  # the limit, once for each context that is open


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keeps the BLAS under XLA's factorisations to one thread, until the last such context ends.

    XLA has a pool of its own for everything else. With both at work a step of the HAR configuration
    took about twice as long (7.8 against 4.1 ms with MMD, 19 against 9 ms with KDI, on two cores).
    """
    # JAX loads SciPy's BLAS with its first factorisation, and what is not loaded yet cannot be limited.
    import scipy.linalg  # noqa: F401

    with _lock:  # the limit is the process's: fits in two threads share one
        _inside.append(_inside[0] if _inside else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _inside.pop()
            if not _inside:
                limit.restore_original_limits()
