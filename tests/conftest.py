"""Settings of the suite: the same cases on every machine; objectives that spell their broadcasts out."""

import jax
import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "privjax",
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # explaining a failure costs minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("privjax")

OBJECTIVES = ("test_contract", "test_independence", "test_kernels", "test_pairwise", "losses")


@pytest.fixture(autouse=True)
def _no_rank_promotion(request):
    """A user may run with rank promotion set to "raise": the objectives must not need it."""
    if not any(part in OBJECTIVES for part in (request.path.stem, request.path.parent.name)):
        yield
        return
    with jax.numpy_rank_promotion("raise"):
        yield
