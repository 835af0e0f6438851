"""A finished sweep for the tests to compare with, or to damage."""

import shutil

import pytest
from small import small_sweep


@pytest.fixture(scope="session")
def uninterrupted():
    """An uninterrupted sweep without a workdir."""
    return small_sweep()


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished sweep with a workdir, which no test changes."""
    return small_sweep(workdir=tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished workdir."""
    shutil.copytree(finished.workdir, tmp_path / "run")
    return tmp_path / "run"
