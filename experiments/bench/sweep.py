"""Cost of a sweep: sixteen members at once, against the same sixteen one after another in PyTorch.

    python experiments/bench/sweep.py               # needs torch and a quiet machine
    python experiments/bench/sweep.py --no-torch

The configuration is HAR's (8239 training rows x 561, z of 50 columns, batch 500, MMD over 30 users) on random
numbers. privjax runs `privjax.sweep`, monitoring and scores included; PyTorch runs bare steps. The contenders
take turns, and the best of each counts. A second table has the cost of a step and the peak memory of a fresh
process for 1 to 64 members.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
from timing import best_times, peak_megabytes
from training import ACTIVITIES, BATCH, FEATURES, ROWS, USERS, torch_runs

import privjax

EPOCHS, MEMBERS, TEST_ROWS = 2, 16, 2060
STEPS = EPOCHS * (ROWS // BATCH)


def har_sized() -> privjax.Dataset:
    """Return random rows of HAR's sizes, in its 80:20 split."""
    rng = np.random.default_rng(0)
    rows = ROWS + TEST_ROWS
    numbers = np.arange(rows)
    return privjax.Dataset.from_arrays(
        rng.normal(size=(rows, FEATURES)).astype(np.float32),
        rng.integers(0, ACTIVITIES, rows),
        rng.integers(0, USERS, rows),
        split=(numbers[:ROWS], numbers[:0], numbers[ROWS:]),
        y_names=[str(i) for i in range(ACTIVITIES)],
        s_names=[str(i) for i in range(USERS)],
        name="random rows of HAR's sizes",
    )


def ours(data: privjax.Dataset, members: int, **settings):
    """A call of `sweep` for some members."""
    weights = np.linspace(0.0, 8.0, members).tolist()
    return lambda: privjax.sweep(
        data, privacy_weights=weights, num_epochs=EPOCHS, checkpoint_every=EPOCHS, **settings
    )


def one_count(members: int, repeats: int) -> None:
    """Prints the cost and the peak memory of this process for some members."""
    data = har_sized()
    run = ours(data, members)
    megabytes = peak_megabytes(run)
    best = best_times({"sweep": run}, repeats=repeats)["sweep"]
    print(json.dumps({"ms": best / (members * STEPS), "megabytes": megabytes}))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Cost of a sweep.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--count", type=int, help="measure so many members alone, and print JSON")
    args = parser.parse_args()
    if args.count:
        one_count(args.count, args.repeats)
        return
    data = har_sized()
    runs: dict[str, Callable[[], object]] = {
        "privjax.sweep": ours(data, MEMBERS),
        "privjax.sweep, chunks of 16 (vmap)": ours(data, 16, chunk_size=16),
    }
    if not args.no_torch:
        x, y, s = data.part("train")
        for name, run in torch_runs(x, y.astype(np.int64), s.astype(np.int64), STEPS).items():
            runs[name] = lambda run=run: [run() for _ in range(MEMBERS)]
    times = best_times(runs, repeats=args.repeats)
    print(f"{MEMBERS} members of {STEPS} steps at HAR's sizes, ms a member-step")
    for name, milliseconds in times.items():
        ratio = milliseconds / times["privjax.sweep"]
        print(f"  {name:36s} {milliseconds / (MEMBERS * STEPS):8.2f}   {ratio:5.2f}x ours")
    print("members   ms a member-step   peak memory above the data, compiling included, MB")
    for members in (1, 2, 4, 8, 16, 32, 64):
        command = [sys.executable, __file__, "--count", str(members), "--repeats", "2"]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{members:7d}   {row['ms']:16.2f}   {row['megabytes']:50d}")


if __name__ == "__main__":
    main()
