"""Run an experiment: one command per figure.

    python experiments/main.py --config=experiments/configs/har.py --config.seeds=3

Points that the results file already holds are not run again, and a killed run resumes. `privjax datasets`
says where data sets are looked for.
"""

import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "configs")]

from run import run  # noqa: E402

CONFIG = config_flags.DEFINE_config_file("config", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", "runs", "Folder of sweeps and checkpoints.")
RESULTS = flags.DEFINE_string("results", str(HERE / "results"), "Folder of the JSON and CSV files.")
ONLY = flags.DEFINE_list("only", [], "Names of methods; all when empty.")


def main(_) -> None:
    """Run the missing points."""
    logging.set_verbosity(logging.WARNING)
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
