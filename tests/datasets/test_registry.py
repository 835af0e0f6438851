"""Data sets by name, the list of them, and the cost of the import."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import published_copies
import pytest

from privjax.datasets import describe, load, names, reload
from privjax.datasets.registry import PUBLISHED

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "privjax" / "datasets"


def test_the_list_describes_every_set(tmp_path):
    rows = describe(data_dir=tmp_path)
    assert tuple(row.name for row in rows) == names()
    for row in rows:
        assert row.title
        assert row.size
        assert row.terms
        assert row.protocols
        assert "load(" in row.how or "manual_dir" in row.how
    assert {row.name for row in rows if not row.prepared} == set(PUBLISHED)
    by_name = {row.name: row for row in rows}
    assert "10299" in by_name["har"].size
    assert by_name["har"].protocols == ("per_user", "disjoint_users", "time_blocks")
    assert PUBLISHED["har"].url in by_name["har"].how
    assert "Accept the terms" in by_name["meglass"].how


def test_wrong_arguments_are_refused_before_any_download(tmp_path):
    with pytest.raises(ValueError, match="name must be one of digits, .*, got 'mnist'"):
        load("mnist")
    with pytest.raises(ValueError, match="protocol must be one of per_user, .* for har, got 'random'"):
        load("har", protocol="random", data_dir=tmp_path)
    with pytest.raises(ValueError, match="protocol must be one of per_label for digits, got 'per_user'"):
        load("digits", protocol="per_user")
    with pytest.raises(ValueError, match="private must be one of user for har, got 'activity'"):
        load("har", private="activity", data_dir=tmp_path)
    with pytest.raises(TypeError, match="has no option 'rows'"):
        load("har", rows=5, data_dir=tmp_path)
    with pytest.raises(ValueError, match="seed must not be negative"):
        load("digits", seed=-1)
    with pytest.raises(ValueError, match=r"validation must lie in \[0, 1\)"):
        load("digits", validation=1.0)
    assert len(load("digits", validation=0.0).split.validation) == 0


def test_a_load_spec_takes_another_seed(tmp_path):
    published_copies.write_folder(tmp_path, published_copies.cmu_faces())
    data = load("cmu_faces", data_dir=tmp_path, manual_dir=tmp_path, seed=3, validation=0.2)
    spec = data.origin.load_spec
    assert reload(spec).content_hash == data.content_hash
    other = load("cmu_faces", data_dir=tmp_path, seed=4, validation=0.2)
    assert reload(spec, seed=4).content_hash == other.content_hash
    assert reload(spec).origin == data.origin


def test_importing_the_package_imports_numpy_alone():
    code = (
        "import sys, numpy.random, numpy.lib.format, numpy.typing\n"
        "before = set(sys.modules)\n"
        "import socket; socket.socket.connect = None\n"
        "import privjax.datasets\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names)))\n"
    )
    # A stub of privjax: its own __init__ may import jax, this package may not.
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


def test_the_package_imports_no_other_room():
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


def test_an_unknown_option_is_named():
    for name in ("digits", "simulated_sensors", "har"):
        with pytest.raises(TypeError, match=f"load\\('{name}'\\) has no option 'colour'"):
            load(name, colour="red")
