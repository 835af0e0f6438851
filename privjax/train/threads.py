"""One BLAS thread while training on a CPU: two pools of threads on the same cores wait for each other."""

import contextlib

from threadpoolctl import threadpool_limits


def one_blas_thread() -> contextlib.AbstractContextManager:
    """Keeps the BLAS under XLA's factorisations to one thread, until the context ends.

    XLA has a pool of its own for everything else. With both at work a step of the HAR configuration
    took about twice as long (7.8 against 4.1 ms with MMD, 19 against 9 ms with KDI, on two cores).
    """
    return threadpool_limits(1, user_api="blas")
