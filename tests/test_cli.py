"""The command, run as a user runs it."""

import builtins
import json
import subprocess
import sys

import pytest

from privjax import cli, datasets


def privjax_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "privjax.cli", *arguments], capture_output=True, text=True, check=False
    )


def test_datasets_as_json_is_what_describe_says(tmp_path):
    done = privjax_command("datasets", "--json", "--data-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert tuple(rows) == datasets.names()
    assert rows["digits"]["prepared"]
    assert not rows["har"]["prepared"]  # nothing lies in an empty folder
    assert rows["har"]["how"]


def test_datasets_as_a_table_names_every_set(tmp_path):
    done = privjax_command("datasets", "--data-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in ("digits", "diabetes", "har", "hapt", "yaleb"):
        assert name in done.stdout


def test_unknown_option_is_refused():
    done = privjax_command("datasets", "--nothing")
    assert done.returncode == 2
    assert "--nothing" in done.stderr


def test_a_missing_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without_typer(name, *rest, **more):
        if name == "typer":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_typer)
    with pytest.raises(SystemExit, match=r"privjax\[cli\]"):
        cli.main()
