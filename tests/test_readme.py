"""Every code block of the README runs unchanged, in order, in one folder."""

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
    """Run the commands of privjax; make and pip would run this test again."""
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


@pytest.mark.slow
def test_the_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert {language for language, _ in BLOCKS} == {"python", "sh"}
    printed = []
    for language, block in BLOCKS:
        {"python": run_python, "sh": run_shell}[language](block)
        if language == "python":
            printed.append(capsys.readouterr().out.strip())
            assert printed[-1], block
    # The first example shows success: the utility stays and the attack falls.
    parity, before, after = (float(line.rpartition(": ")[2]) for line in printed[0].splitlines())
    assert parity > 0.93
    assert after < 0.45 < 0.9 < before
    # So does the trade-off curve, from its first point to its last.
    points = re.findall(r"weight [\d.]+: ([\d.]+) / ([\d.]+)", printed[2])
    assert float(points[-1][1]) < float(points[0][1]) - 0.3
    assert (tmp_path / "runs" / "people" / "report" / "report.html").stat().st_size > 100_000


def test_untested_commands_are_noticed():
    with pytest.raises(AssertionError, match="no test runs this"):
        run_shell("curl somewhere")
    with pytest.raises(AssertionError):
        run_shell("pip install '.[nothing]'")
    with pytest.raises(AssertionError):
        run_shell("privjax export nowhere --point 0 --to encoder.npz")


def test_linked_pictures_and_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
