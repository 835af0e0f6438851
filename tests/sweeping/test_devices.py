"""Several devices and several processes on loopback give the numbers of a single device."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from comparisons import close
from small import NETWORKS, make_small, small_gradient, small_sweep

import privjax
from privjax import load_encoder, load_history, load_results

SUPPORT = Path(__file__).parents[1] / "support"
pytestmark = pytest.mark.slow


def launch(folder: Path, *arguments) -> subprocess.Popen:
    command = [sys.executable, "on_devices.py", str(folder), *map(str, arguments)]
    return subprocess.Popen(command, cwd=SUPPORT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def launch_together(folder: Path, processes: int, devices: int, *only) -> list[tuple[int, str, str]]:
    """Run processes that know each other; return exit code, output and errors of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [launch(folder, devices, port, processes, number, *only) for number in range(processes)]
    outputs = [process.communicate(timeout=600) for process in started]
    return [(process.returncode, *output) for process, output in zip(started, outputs, strict=True)]


def printed(results: list[tuple[int, str, str]]) -> dict:
    # All errors: where one process fails, the others only say that it is gone.
    assert [code for code, _, _ in results] == [0] * len(results), "\n".join(e[-3000:] for *_, e in results)
    return json.loads(results[0][1].splitlines()[-1])


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    process = launch(folder, 8)
    output, errors = process.communicate(timeout=600)
    return printed([(process.returncode, output, errors)]), folder / "run"


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return printed(launch_together(folder, 2, 2)), folder / "run"


@pytest.fixture(params=["eight", "two_processes"])
def many(request):
    return request.getfixturevalue(request.param)


def assert_same_sweep(folder: Path, expected) -> None:
    """Compare a workdir, read by this process, with a sweep of one process. Stated bound: 1e-5."""
    run = load_results(folder)
    assert run.complete
    x = make_small().x
    for record, other in zip(run.members, expected.members, strict=True):
        assert close(record.to_dict(), other.to_dict(), bound=1e-5), (record, other)
        z, expected_z = load_encoder(folder, record.member)(x), expected.encoder(record.member)(x)
        np.testing.assert_allclose(z, expected_z, atol=1e-5 * np.abs(expected_z).max())
        assert len(load_history(folder, record.member).ran) == record.epochs
    assert not list((folder / "checkpoints").iterdir())


def test_many_devices_train_the_same_members(many, uninterrupted):
    # Two members for each seed on 8 or 4 devices: uneven.
    output, folder = many
    assert output["devices"] in (8, 4)
    assert output["members"] == [member.to_dict() for member in load_results(folder).members]
    assert_same_sweep(folder, uninterrupted)


def test_three_processes_train_the_same_members(tmp_path, uninterrupted):
    printed(launch_together(tmp_path, 3, 1, "sweep"))
    assert_same_sweep(tmp_path / "run", uninterrupted)


def test_one_process_resumes_the_sweep_of_two(tmp_path, uninterrupted):
    # Both processes die in their second member.
    results = launch_together(tmp_path, 2, 1, 3)
    assert all(code != 0 for code, *_ in results)
    folder = tmp_path / "run"
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"0002.npz", "0003.npz"}
    assert {path.name for path in (folder / "members").iterdir()} == {"0000.npz", "0001.npz"}
    small_sweep(workdir=folder)
    assert_same_sweep(folder, uninterrupted)


def test_two_processes_resume_the_sweep_of_one(tmp_path, uninterrupted, finished):
    folder = tmp_path / "run"
    (folder / "members").mkdir(parents=True)
    (folder / "config.json").write_bytes((finished.workdir / "config.json").read_bytes())
    (folder / "members" / "0002.npz").write_bytes((finished.workdir / "members" / "0002.npz").read_bytes())
    before = (folder / "members" / "0002.npz").stat().st_mtime_ns
    printed(launch_together(tmp_path, 2, 1, "sweep"))
    assert (folder / "members" / "0002.npz").stat().st_mtime_ns == before
    assert_same_sweep(folder, uninterrupted)


def test_the_gradient_over_a_mesh_is_that_of_the_whole_batch(many):
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
def test_the_gradient_of_shares_is_that_of_the_whole_batch(objective, weighted):
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


def test_a_mesh_with_two_axes_is_refused():
    data = make_small()
    mesh = jax.make_mesh((1, 1), ("rows", "columns"))
    with pytest.raises(ValueError, match="one axis"):
        privjax.fit(data.x, data.y, data.s, mesh=mesh)
