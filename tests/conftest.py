"""Settings of the suite: the same cases on every machine; objectives that spell their broadcasts out."""

import itertools
from pathlib import Path

import jax
import pytest
import shapes
from hypothesis import HealthCheck, Phase, settings

# Before the package is imported: from here on array annotations are checked, see tests/support/shapes.py.
shapes.install("privjax")

settings.register_profile(
    "privjax",
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # explaining a failure costs minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("privjax")

OBJECTIVES = ("test_independence", "test_kernels", "losses", "numerics")


@pytest.fixture(autouse=True)
def _no_rank_promotion(request):
    """A user may run with rank promotion set to "raise": the objectives must not need it."""
    if not any(part in OBJECTIVES for part in (request.path.stem, request.path.parent.name)):
        yield
        return
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module")
def quick_to_compile():
    """For modules in which much is compiled and little is run: half of the time by not optimising it.

    What was set before is put back: a child process of a later test has it from its environment.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # Linux allows a process 65530, and XLA crashes where it gets no more
_tests_done = itertools.count(1)


@pytest.fixture(autouse=True)
def _few_compiled_programs():
    """Every compiled program holds some memory maps: the suite has more programs than a process may hold."""
    yield
    # To count them takes as long as a small test.
    if next(_tests_done) % 10 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
