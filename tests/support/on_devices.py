"""Sweeps and one spread run on many devices, in a process of its own.

python on_devices.py WORKDIR DEVICES [PORT PROCESSES PROCESS]
"""

import json
import sys

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from small import NETWORKS, make_small, small_gradient, small_sweep

import privjax


def main(folder, devices, *distributed):
    """Prints what the members and the spread run gave."""
    jax.config.update("jax_num_cpu_devices", int(devices))
    if distributed:
        port, processes, process = map(int, distributed)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
    members = small_sweep(workdir=f"{folder}/run").members
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
    result = {"devices": jax.device_count(), "members": members, "gradients": gradients}
    if jax.process_index() == 0:
        print()  # the collectives may have begun a line of their own
        print(json.dumps({**result, "losses": losses.tolist()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
