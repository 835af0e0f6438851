"""Runs an experiment: one command per figure.

    python experiments/main.py --config=experiments/configs/har.py --config.seeds=3

What is already in the results file is not run again, and a killed run goes on where it was. Data sets are
looked for as `privjax datasets` says.
"""

import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "configs")]

from run import run  # noqa: E402

CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", "runs", "Where sweeps and checkpoints go.")
RESULTS = flags.DEFINE_string("results", str(HERE / "results"), "Where the JSON and CSV go.")
ONLY = flags.DEFINE_list("only", [], "Names of methods; all when empty.")


def main(_) -> None:
    """Runs what is missing."""
    logging.set_verbosity(logging.WARNING)  # checkpoints have much to say
    run(
        CONFIG.value,
        workdir=pathlib.Path(WORKDIR.value),
        results=pathlib.Path(RESULTS.value),
        only=tuple(ONLY.value),
        say=lambda line: print(line, flush=True),
    )


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    app.run(main)
