"""A sweep for a process that a test kills: python killed.py WORKDIR."""

import sys

from small import small_sweep

if __name__ == "__main__":
    small_sweep(workdir=sys.argv[1], checkpoint_every=1, num_epochs=30)
