"""`make demo`: the utility stays and the attack falls; without the privacy term it does not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import privjax
from privjax.cli import commands, demo

DEMO = Path(__file__).parents[2] / "experiments" / "demo.py"


@pytest.mark.slow
def test_the_demo_shows_a_trade_off():
    done = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, check=True)
    rows = {
        float(weight): (float(parity), float(digit))
        for weight, parity, digit in re.findall(
            r"weight ([\d.]+).*?\s([\d.]+)\s+([\d.]+)\s+[\d.]+\n", done.stdout
        )
    }
    assert len(rows) == 5, done.stdout
    parity, digit = rows[0.0]
    assert digit > 0.7  # without privacy the digit is easy to find
    assert any(p > parity - 0.05 and d < (digit + 0.2) / 2 for p, d in rows.values())


@pytest.mark.parametrize("kept", [False, True])
def test_the_command_prints_the_lines_or_the_rows_of_the_demo(monkeypatch, tmp_path, kept):
    """With a folder it writes a report as well."""
    rows = [demo.DemoRow(0.0, 0.9, 0.8, 0.002)]
    calls = []

    def run(*, say, **settings):
        calls.append(settings)
        say("a line")
        return rows

    monkeypatch.setattr(demo, "demo", run)
    monkeypatch.setattr(privjax, "report", lambda folder: folder / "page.html")
    arguments = ["demo", "--seed", "3", *(["--out", str(tmp_path)] if kept else [])]
    done = CliRunner().invoke(commands.app, arguments)
    assert done.exit_code == 0
    assert done.stdout.startswith("a line\n")
    assert ("page.html" in done.stdout) == kept
    printed = CliRunner().invoke(commands.app, [*arguments, "--json"]).stdout
    assert json.loads(printed) == [row._asdict() for row in rows]
    assert calls[0]["seed"] == 3
    assert calls[0].get("out") == (tmp_path if kept else None)
