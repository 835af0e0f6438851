"""Every Python block of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block, capsys):
    exec(compile(block, README.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


def test_the_first_example_learns(capsys):
    exec(compile(BLOCKS[0], README.name, "exec"), {"__name__": "__main__"})
    losses, p_value = capsys.readouterr().out.splitlines()
    cross_entropy, mmd = map(float, re.findall(r"[\d.]+", losses))
    assert cross_entropy < 0.55  # below log 2: parity is being learned
    assert mmd < 0.2
    assert 0 < float(p_value) <= 1
