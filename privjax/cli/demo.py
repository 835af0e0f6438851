"""Encoders that keep a digit's parity and lose the digit: swept, attacked and shown, without the cli extra.

Scikit-learn's handwritten digits: the service needs to know odd or even, and must not learn which digit.
Whoever knows the parity guesses one digit in five, so 0.2 is as private as a useful release can be.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WEIGHTS = (0.0, 0.5, 1.0, 1.5, 4.0)
_ATTACKER = "random_forest"


def demo(
    *,
    seed: int = 0,
    out: Path | None = None,
    progress: str | None = None,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Sweeps and attacks; says a line for each privacy weight.

    Args:
      seed: of the split, the training and the attacks.
      out: where the sweep is kept; nothing is when None.
      progress: as for `privjax.sweep`.
      say: takes the lines.

    Returns:
      For each release its `privacy_weight` (None for the data as they are), `utility`, `leakage` and
      `p_value`.
    """
    import privjax

    began = time.perf_counter()
    data = privjax.datasets.load("digits", seed=seed)
    train, test = len(data.split.train), len(data.split.test)
    say(f"digits: {train} training and {test} test rows; utility parity, private digit\n")
    say("what is released               parity   digit (attacked)   p-value of independence")
    rows = []

    def line(name: str, weight: float | None, utility: float, attribute: dict[str, Any]) -> None:
        row = {
            "privacy_weight": weight,
            "utility": utility,
            "leakage": attribute["strongest"]["accuracy"],
            "p_value": attribute["privacy_confidence"]["p_value"],
        }
        rows.append(row)
        say(f"{name:30s} {utility:6.3f} {row['leakage']:18.3f} {row['p_value']:25.3f}")

    def attacked(train: Any, test: Any) -> dict[str, Any]:
        report = privjax.audit(data.train.x, train, data.test.x, test, adversaries=_ATTACKER, seed=seed)
        (attribute,) = report.to_dict()["attributes"].values()
        return attribute

    as_they_are = attacked(data.train.y, data.test.y)["strongest"]["accuracy"]
    line("the data as they are", None, as_they_are, attacked(data.train.s, data.test.s))
    # A hidden layer before the funnel: which digit it is cannot be projected away from raw pixels.
    networks = privjax.nn_networks(64, num_outputs=2, private_widths=(200, 20))
    with tempfile.TemporaryDirectory() as elsewhere:
        folder = Path(elsewhere) if out is None else out
        privjax.sweep(
            "digits",
            privacy_weights=_WEIGHTS,
            seeds=[seed],
            networks=networks,
            workdir=folder,
            batch_size=125,
            progress=progress,
        )
        results = privjax.audit_sweep(folder, adversaries=_ATTACKER, seed=seed, progress=progress)
    for member in results["members"]:
        weight = member["privacy_weight"]
        (attribute,) = member["audit"]["attributes"].values()
        line(f"NN-MMD, weight {weight:g}", weight, member["utility"]["test"], attribute)
    say(f"\nswept and attacked in {time.perf_counter() - began:.0f} s")
    say("chance 0.100, the parity alone 0.200. An attack is a lower bound on what leaks.")
    return rows
