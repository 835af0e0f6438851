"""Real published files where they are present, and one folder of prepared sets for the whole run."""

import os
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    given = os.environ.get("PRIVJAX_SHARED_DATA")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if not (folder / "UCI_HAR_Dataset.zip").exists():
        pytest.skip(f"the published files are not in {folder}; set PRIVJAX_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    """Folder that the workers of a parallel run share; the lock of `load` keeps them apart."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "prepared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def timed():
    """Call a function at most three times, until a call takes under two seconds.

    Process time: wall time on a shared machine depends on other processes.
    """

    def call(function, *arguments, **options):
        seconds = []
        while not seconds or (len(seconds) < 3 and min(seconds) >= 2.0):
            start = time.process_time()
            result = function(*arguments, **options)
            seconds.append(time.process_time() - start)
        return result, min(seconds)

    return call
