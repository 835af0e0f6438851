"""The one door, the list of data sets, and what importing the package costs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from privjax.datasets import describe, load, names
from privjax.datasets.registry import _EMBEDDED
from privjax.datasets.sources import SOURCES

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "privjax" / "datasets"


def test_the_list(tmp_path):
    rows = describe(data_dir=tmp_path)
    assert tuple(row.name for row in rows) == names()
    assert len(rows) == 9
    for row in rows:
        assert row.size
        assert row.terms
        assert row.protocols
        assert "load(" in row.how or "manual_dir" in row.how
    assert {row.name for row in rows if row.prepared} == set(_EMBEDDED)
    by_name = {row.name: row for row in rows}
    assert "10299" in by_name["har"].size
    assert by_name["har"].protocols == ("per_user", "disjoint_users", "time_blocks")
    assert SOURCES["har"].url in by_name["har"].how
    assert "Accept the terms" in by_name["meglass"].how


def test_arguments(tmp_path):
    with pytest.raises(ValueError, match="name must be one of digits, .*, got 'mnist'"):
        load("mnist")
    with pytest.raises(ValueError, match="protocol must be one of per_user, .* got 'random'"):
        load("har", protocol="random", data_dir=tmp_path)
    with pytest.raises(ValueError, match="protocol must be left out for digits"):
        load("digits", protocol="per_user")
    with pytest.raises(TypeError, match="has no option 'private'"):
        load("har", private="user", data_dir=tmp_path)
    with pytest.raises(ValueError, match="seed must not be negative"):
        load("digits", seed=-1)
    with pytest.raises(ValueError, match=r"validation must lie in \[0, 1\)"):
        load("digits", validation=1.0)
    assert len(load("digits", validation=0.0).split.validation) == 0


def test_only_numpy_is_imported_and_nothing_of_the_rest():
    code = (
        "import sys, numpy.random, numpy.lib.format, numpy.typing\n"
        "before = set(sys.modules)\n"
        "import socket; socket.socket.connect = None\n"
        "import privjax.datasets\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names)))\n"
    )
    # The package's own __init__ may import jax; this package must not ask for it.
    probe = (
        "import sys, types\n"
        f"package = types.ModuleType('privjax'); package.__path__ = [{str(PACKAGE.parent)!r}]\n"
        "sys.modules['privjax'] = package\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(
        [sys.executable, "-c", probe + code],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert ran.stdout.split() == ["privjax"]


def test_the_sources_import_no_other_part_of_the_package():
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            for name in imported:
                assert not name.startswith(("jax", "flax", "optax")), path.name
                if name.startswith("privjax"):
                    assert name.startswith(("privjax.datasets", "privjax.extras", "privjax.files")), path.name


def test_importing_costs_less_than_numpy_does():
    code = (
        "import sys, types, time\n"
        f"package = types.ModuleType('privjax'); package.__path__ = [{str(PACKAGE.parent)!r}]\n"
        "sys.modules['privjax'] = package\n"
        "a = time.perf_counter(); import numpy; b = time.perf_counter()\n"
        "import privjax.datasets; c = time.perf_counter()\n"
        "print(b - a, c - b)\n"
    )
    ratios = []
    while len(ratios) < 5 and not any(ratio < 1.0 for ratio in ratios):
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        numpy_time, own_time = map(float, ran.stdout.split())
        ratios.append(own_time / numpy_time)
    assert min(ratios) < 1.0
