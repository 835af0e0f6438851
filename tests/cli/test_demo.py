"""What `make demo` shows: utility stays, the attack falls, and without the privacy term it does not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privjax.cli import app, demo

DEMO = Path(__file__).parents[1] / "experiments" / "demo.py"


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
    assert digit > 0.7  # without privacy the digit is there to be found
    assert any(p > parity - 0.05 and d < (digit + 0.2) / 2 for p, d in rows.values())


@pytest.mark.parametrize("kept", [False, True])
def test_the_command_gives_what_the_demo_gives(monkeypatch, tmp_path, kept):
    """The same function, its lines or its rows; a report where the sweep is kept."""
    rows = [{"privacy_weight": 0.0, "utility": 0.9, "leakage": 0.8, "p_value": 0.002}]
    calls = []

    def run(*, say, **settings):
        calls.append(settings)
        say("a line")
        return rows

    monkeypatch.setattr(demo, "demo", run)
    monkeypatch.setattr(app, "_report", lambda folder: folder / "page.html")
    arguments = ["demo", "--seed", "3", *(["--out", str(tmp_path)] if kept else [])]
    done = CliRunner().invoke(app.app, arguments)
    assert done.exit_code == 0
    assert done.stdout.startswith("a line\n")
    assert ("page.html" in done.stdout) == kept
    assert json.loads(CliRunner().invoke(app.app, [*arguments, "--json"]).stdout) == rows
    assert calls[0]["seed"] == 3
    assert calls[0].get("out") == (tmp_path if kept else None)
