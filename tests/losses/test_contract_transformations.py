"""The contract under jit, vmap, scan and shard_map: equal numbers, and one trace for all values."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import (
    CLASSES,
    NARROW,
    TRACES,
    compiled,
    every_function,
    every_objective,
    make_critic,
    members,
)

import privjax

pytestmark = pytest.mark.slow


@every_function
def test_vmap_scan_and_shard_map_equal_a_loop(objective):
    z, labels, weights = members(3)
    one = compiled(objective.name)
    loop = [one(*member) for member in zip(z, labels, weights, strict=True)]
    wanted = np.stack([v for v, _ in loop]), np.stack([g for _, g in loop])
    bare = jax.value_and_grad(objective.call)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("member",))
    spec = jax.sharding.PartitionSpec("member")

    def shard(z, labels, weights):
        value, gradient = bare(z[0], labels[0], weights[0])
        return value[None], gradient[None]

    forms = {
        "vmap": jax.vmap(bare),
        "scan": lambda *stacks: jax.lax.scan(lambda _, m: (None, bare(*m)), None, stacks)[1],
        "shard_map": jax.shard_map(shard, mesh=mesh, in_specs=spec, out_specs=spec),
    }
    for name, form in forms.items():
        kept = 1 if name == "shard_map" else 3
        got = jax.jit(form)(z[:kept], labels[:kept], weights[:kept])
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b[:kept], rtol=2e-5, atol=2e-6 * np.abs(b).max(), err_msg=name)


SHARDED = """
import numpy as np, jax
import contract as t
from contract import members
assert jax.device_count() == 4
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("member",))
spec = jax.sharding.PartitionSpec("member")
for name in ("mmd", "rff_mmd", "kdi", "wdn_discriminator"):
    bare = jax.value_and_grad(t.TABLE[name].call)
    def shard(z, p, w):
        value, gradient = bare(z[0], p[0], w[0])
        return value[None], gradient[None]
    stacks = members(4)
    got = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=spec, out_specs=spec))(*stacks)
    assert len(got[1].sharding.device_set) == 4
    for i, member in enumerate(zip(*stacks)):
        value, gradient = t.compiled(name)(*member)
        np.testing.assert_allclose(got[0][i], value, rtol=2e-5)
        np.testing.assert_allclose(got[1][i], gradient, rtol=2e-5, atol=2e-6 * np.abs(gradient).max())
    print(name)
"""


def test_shard_map_over_four_devices():
    tests = pathlib.Path(__file__).resolve().parents[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", SHARDED],
        cwd=tests / "support",
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(tests.parent)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.split()) == 4


@every_objective
def test_one_trace_serves_all_values(objective):
    z, labels, weights = members(4)
    first = compiled(objective.name)(z[0], labels[0], weights[0])[0]
    before = len(TRACES)
    rest = [
        compiled(objective.name)(*member)[0] for member in zip(z[1:], labels[1:], weights[1:], strict=True)
    ]
    assert len(TRACES) == before
    assert len({float(value) for value in (first, *rest)}) == 4
    if objective.name == "lsdn_privacy":  # the counter works: another shape is another trace
        compiled(objective.name)(z[0, 1:], labels[0, 1:], weights[0, 1:])
        assert len(TRACES) == before + 1


def test_settings_in_arrays_are_swept_in_one_trace(caplog):
    z, labels, weights = (a[0] for a in members(1))
    traces = []

    @jax.jit
    def step(bandwidth, rho, penalty):
        traces.append(1)
        kernel = privjax.mixture(privjax.gaussian(bandwidth), privjax.laplacian(bandwidth))
        critic = make_critic(NARROW)
        return (
            privjax.mmd_loss(z, labels, kernel=kernel, num_classes=CLASSES, weights=weights),
            privjax.kdi_loss(z, labels, kernel=kernel, rho=rho, num_classes=CLASSES),
            privjax.discriminant_information(z, labels, rho=rho, num_classes=CLASSES),
            privjax.wdn_discriminator_loss(z, labels, critic, penalty=penalty),
        )

    sweep = [(0.5, 0.1, 1.0), (1.0, 0.2, 2.0), (2.0, 0.4, 4.0)]
    got = np.array([step(*map(jnp.float32, point)) for point in sweep])
    assert len(traces) == 1
    assert all(len(set(column)) == 3 for column in got.T)
    # Outside of jit too: a bandwidth in an array is data, and a second value compiles nothing.
    kernels = [privjax.gaussian(jnp.float32(b)) for b in (0.5, 1.0, 2.0)]
    first = privjax.mmd_loss(z, labels, kernel=kernels[0], num_classes=CLASSES)
    with jax.log_compiles(), caplog.at_level("DEBUG"):
        rest = [privjax.mmd_loss(z, labels, kernel=k, num_classes=CLASSES) for k in kernels[1:]]
        recompiled = [r.getMessage() for r in caplog.records if "_mmd" in r.getMessage()]
        caplog.clear()
        privjax.mmd_loss(z[:5], labels[:5], kernel=kernels[0], num_classes=CLASSES)
        fresh = [r.getMessage() for r in caplog.records if "_mmd" in r.getMessage()]
    assert not recompiled
    assert fresh  # the log shows compilations
    assert len({float(v) for v in (first, *rest)}) == 3
