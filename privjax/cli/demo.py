"""Sweep, attack and print encoders of handwritten digits, without the cli extra.

The service needs to know whether a digit is odd or even. It must not learn which digit it is. Knowing the
parity alone names one digit in five, so 0.2 is the floor of any useful release.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_WEIGHTS = (0.0, 0.5, 1.0, 1.5, 4.0)
_ATTACKER = "random_forest"


class DemoRow(NamedTuple):
    """One release: its privacy weight (None for x itself), utility, leakage and p-value."""

    privacy_weight: float | None
    utility: float
    leakage: float
    p_value: float | None


def demo(
    *,
    seed: int = 0,
    out: Path | None = None,
    progress: str | None = None,
    say: Callable[[str], None] = print,
) -> list[DemoRow]:
    """Sweep and attack, and say one line for each privacy weight.

    Args:
      seed: Seed of the split, the training and the attacks.
      out: Folder of the sweep; a temporary one when None.
      progress: As for `privjax.sweep`.
      say: Takes the lines.
    """
    import privjax

    began = time.perf_counter()
    data = privjax.datasets.load("digits", seed=seed)
    train, test = data.train, data.test
    say(f"digits: {len(train.x)} training and {len(test.x)} test rows; utility: parity, private: digit\n")
    say("release                        parity   digit (attacked)   p-value of independence")
    rows = []

    def add(name: str, weight: float | None, utility: float, report: privjax.AuditReport) -> None:
        (found,) = report.attributes.values()
        row = DemoRow(weight, utility, found.leakage() or 0.0, found.confidence.p_value)
        rows.append(row)
        p_value = "-" if row.p_value is None else f"{row.p_value:.3f}"
        say(f"{name:30s} {utility:6.3f} {row.leakage:18.3f} {p_value:>25s}")

    raw = [
        privjax.audit(train.x, labels, test.x, held_out, attackers=_ATTACKER, seed=seed)
        for labels, held_out in ((train.y, test.y), (train.s, test.s))
    ]
    (parity,) = raw[0].attributes.values()
    add("x itself", None, parity.leakage() or 0.0, raw[1])
    # One hidden layer: a linear map cannot remove the digit from raw pixels.
    networks = privjax.nn_networks(64, num_outputs=2, private_widths=(200, 20))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if out is None else out
        result = privjax.sweep(
            "digits",
            privacy_weights=_WEIGHTS,
            seeds=[seed],
            networks=networks,
            workdir=folder,
            batch_size=125,
            progress=progress,
        )
        reports = privjax.audit_sweep(folder, attackers=_ATTACKER, seed=seed, progress=progress)
    for record in result.members:
        weight = float(record.privacy_weight)  # pyright: ignore[reportArgumentType]
        add(f"NN-MMD, weight {weight:g}", weight, record.utility.test or 0.0, reports[record.member])
    say(f"\nswept and attacked in {time.perf_counter() - began:.0f} s")
    say("chance 0.100, given the parity 0.200. An attack is a lower bound on leakage.")
    return rows
