"""Every code block of the README runs as it stands, in order, in one folder."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def run_python(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})


def run_shell(block: str) -> None:
    """Runs the commands of privjax; make and pip would set this very test up again."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["privjax"]:
            command = [sys.executable, "-m", "privjax.cli", *words[1:]]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            assert done.stdout.strip(), line
        elif words[:1] == ["make"]:
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif words:
            assert words[:2] == ["pip", "install"], f"{line}: no test runs this"
            extras = set(re.findall(r"\w+", words[2].partition("[")[2]))
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert extras <= set(project["optional-dependencies"]), line


def test_the_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert {language for language, _ in BLOCKS} == {"python", "sh"}
    printed = []
    for language, block in BLOCKS:
        {"python": run_python, "sh": run_shell}[language](block)
        if language == "python":
            printed.append(capsys.readouterr().out.strip())
            assert printed[-1], block
    # The first example learns.
    losses, p_value = printed[0].splitlines()
    cross_entropy, mmd = map(float, re.findall(r"[\d.]+", losses))
    assert cross_entropy < 0.55  # below log 2: parity is being learned
    assert mmd < 0.2
    assert 0 < float(p_value) <= 1
    assert (tmp_path / "runs" / "people" / "report" / "report.html").stat().st_size > 100_000


def test_commands_that_no_test_runs_are_noticed():
    with pytest.raises(AssertionError, match="no test runs this"):
        run_shell("curl somewhere")
    with pytest.raises(AssertionError):
        run_shell("pip install '.[nothing]'")
    with pytest.raises(AssertionError):
        run_shell("privjax export nowhere --point 0 --to encoder.npz")


def test_pictures_and_files_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
