"""What `make demo` shows: utility stays, the attack falls, and without the privacy term it does not."""

import re
import subprocess
import sys
from pathlib import Path

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
