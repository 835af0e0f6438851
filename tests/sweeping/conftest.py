"""What the sweep tests share."""

import pytest
from small import small_sweep


@pytest.fixture(scope="session")
def undisturbed():
    """The members as an uninterrupted sweep without a workdir gives them."""
    return small_sweep()
