"""Sweeps and one spread run on many devices, in a process of its own.

python on_devices.py WORKDIR DEVICES [PORT PROCESSES PROCESS [CHECKPOINTS]]

With CHECKPOINTS the process dies after so many of them; with `sweep` instead it runs the sweep alone.
"""

import json
import os
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from small import NETWORKS, make_small, small_gradient, small_sweep

import privjax
from privjax.sweeping import store


def main(folder, devices, port=None, processes=1, process=0, only=None):
    """Print members, gradients and losses as JSON."""
    jax.config.update("jax_num_cpu_devices", int(devices))
    if port is not None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", int(processes), int(process))
    if only is not None and only != "sweep":
        _die_together_after(int(only), Path(folder), int(processes))
    loads = []
    result = small_sweep(lambda seed: loads.append(seed) or make_small(seed), workdir=f"{folder}/run")
    assert len(loads) == len(set(loads)), loads
    # Every process has the results of all, and so has the workdir.
    assert privjax.load_results(f"{folder}/run").members == result.members
    printed = {"devices": jax.device_count(), "members": [member.to_dict() for member in result.members]}
    if only is None:
        printed |= _spread()
    if jax.process_index() == 0:
        print()  # the collectives may have begun a line of their own
        print(json.dumps(printed))


def _die_together_after(checkpoints, folder, processes):
    save, saved = store.save_checkpoint, []

    def save_and_die(*args):
        save(*args)
        saved.append(args)
        if len(saved) == checkpoints:
            (folder / f"dying-{jax.process_index()}").touch()
            while len(list(folder.glob("dying-*"))) < processes:
                time.sleep(0.01)
            os._exit(3)

    store.save_checkpoint = save_and_die


def _spread():
    """Return gradients and losses of one run whose batches are spread over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("rows",))
    everywhere, rows = PartitionSpec(), PartitionSpec("rows")
    gradients = {}
    for objective in ("mmd", "kdi"):
        batch, gradient = small_gradient(objective)
        spread = jax.shard_map(
            lambda batch, gradient=gradient: jax.lax.psum(gradient(batch, "rows")[0], "rows"),
            mesh=mesh,
            in_specs=rows,
            out_specs=everywhere,
            check_vma=False,
        )
        batch = jax.device_put(jax.tree.map(np.asarray, batch), NamedSharding(mesh, rows))
        leaves = jax.tree.leaves(jax.jit(spread)(batch)["private"])
        gradients[objective] = [np.asarray(a).tolist() for a in leaves]
    data = make_small()
    settings = dict(networks=NETWORKS, batch_size=24, num_epochs=2, private_dropout=0.0, public_dropout=0.0)
    losses = privjax.fit(data.x, data.y, data.s, mesh=mesh, **settings).history.losses.objective
    return {"gradients": gradients, "losses": losses.tolist()}


if __name__ == "__main__":
    main(*sys.argv[1:])
