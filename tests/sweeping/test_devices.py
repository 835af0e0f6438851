"""Eight devices in one process, and two processes on loopback, give a single device's numbers."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from comparisons import close
from small import NETWORKS, make_small, small_gradient

import privjax
from privjax import load_results

HERE = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    return _start(folder, 8), folder


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [_launch(folder, 2, port, 2, process) for process in range(2)]
    outputs = [process.communicate(timeout=600) for process in processes]
    # All of them: where one process fails, the others only say that it is gone.
    codes = [process.returncode for process in processes]
    assert codes == [0, 0], "\n".join(errors[-3000:] for _, errors in outputs)
    return json.loads(outputs[0][0].splitlines()[-1]), folder


def _launch(folder: Path, *arguments: int) -> subprocess.Popen:
    command = [sys.executable, "on_devices.py", str(folder), *map(str, arguments)]
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _start(folder: Path, *arguments: int) -> dict:
    process = _launch(folder, *arguments)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(output.splitlines()[-1])


@pytest.fixture(params=["eight", "two_processes"])
def many(request):
    return request.getfixturevalue(request.param)


def test_members_are_a_single_devices(many, undisturbed):
    # Two members for each seed on 8 or 4 devices: uneven. Stated bound: 1e-5 of each number.
    given, folder = many
    assert given["devices"] in (8, 4)
    for a, b in zip(given["members"], undisturbed.members, strict=True):
        assert close(a, b, bound=1e-5), (a, b)
    assert load_results(folder / "run")["members"] == given["members"]


def test_each_process_writes_its_share(two_processes):
    names = [path.name for path in (two_processes[1] / "run" / "checkpoints").iterdir()]
    assert {name.rpartition("-")[2] for name in names} == {"0", "1"}


def test_the_gradient_over_a_mesh_is_the_whole_batchs(many):
    # KDI's ridge of 1e-4 amplifies rounding: three digits are what float32 leaves of its gradient.
    for objective, bound in (("mmd", 1e-5), ("kdi", 3e-3)):
        batch, gradient = small_gradient(objective)
        expected = jax.tree.leaves(gradient(batch)[0]["private"])
        for a, b in zip(many[0]["gradients"][objective], expected, strict=True):
            np.testing.assert_allclose(a, b, atol=bound * np.abs(b).max())


def test_one_run_spread_over_devices_is_the_same_run(many):
    data = make_small()
    settings = dict(networks=NETWORKS, batch_size=24, num_epochs=2, private_dropout=0.0, public_dropout=0.0)
    alone = privjax.fit(data.x, data.y, data.s, **settings)
    np.testing.assert_allclose(many[0]["losses"], alone.history.losses.objective, rtol=1e-4)


@pytest.mark.parametrize(
    ("objective", "weighted"),
    [("mmd", False), ("mmd", True), ("rff_mmd", True), ("kdi", True), ("wdn", True), ("lsdn", True)],
)
def test_the_gradient_is_the_whole_batchs(objective, weighted):
    """Four shares of a batch as a vmapped axis: their gradients add up to the batch's own."""
    rng = np.random.default_rng(0)
    weights = rng.uniform(0, 2, 120) * (rng.uniform(size=120) > 0.2) if weighted else None
    networks = privjax.nn_networks(
        6, num_outputs=2, num_private=3, private_widths=(4,), public_widths=(8,), discriminator_widths=(8,)
    )
    batch, gradient = small_gradient(objective, networks, weights)
    whole, parts = jax.jit(gradient)(batch)
    shares = jax.tree.map(lambda a: a.reshape(4, -1, *a.shape[1:]), batch)
    spread = jax.jit(jax.vmap(lambda share: gradient(share, "rows"), axis_name="rows"))
    split, split_parts = spread(shares)
    for a, b in zip(jax.tree.leaves(split), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a.sum(0), b, atol=1e-5 * max(1e-3, np.abs(b).max()))
    for a, b in zip(jax.tree.leaves(split_parts), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=1e-5, atol=1e-7)
    # An average of shards is something else.
    averaged = jax.jit(jax.vmap(gradient))(shares)[0]["private"]
    kernel = jax.tree.leaves(averaged)[-1].mean(0)
    assert np.abs(kernel - jax.tree.leaves(whole["private"])[-1]).max() > 1e-3 * np.abs(kernel).max()


def test_a_mesh_that_does_not_fit_is_told():
    data = make_small()
    mesh = jax.make_mesh((1, 1), ("rows", "columns"))
    with pytest.raises(ValueError, match="one axis"):
        privjax.fit(data.x, data.y, data.s, mesh=mesh)
