"""The memory plan: refuse or shrink a layout that does not fit."""

import jax
import pytest
from comparisons import close
from small import NETWORKS, make_small, small_sweep

from privjax.sweeping import members as planning
from privjax.training import prepare


def test_a_layout_that_does_not_fit_names_one_that_does(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(planning, "free_bytes", lambda device: 1000)
        with pytest.raises(MemoryError, match="not even one"):
            small_sweep(privacy_weights=[0.0], seeds=[0])
        found = []
        shared = sum(array.nbytes for array in jax.tree.leaves(_small_data()))
        patch.setattr(planning, "_compile", lambda *_: found.append(1) or _program(shared + 4000))
        patch.setattr(planning, "free_bytes", lambda device: shared + 2500)
        with pytest.raises(MemoryError, match="chunk_size=4 would need .* chunk_size=2 would fit"):
            small_sweep(chunk_size=4, seeds=[0])
        assert found
    assert planning.free_bytes(jax.devices()[0]) > 1e6


def _program(num_bytes):
    return planning.Program(lambda: None, lambda: None, num_bytes)


def _small_data():
    data = make_small()
    return prepare(data.x, data.y, data.s, networks=NETWORKS, batch_size=24)[0]


@pytest.mark.slow
def test_a_layout_chosen_by_the_sweep_shrinks_until_it_fits(monkeypatch, uninterrupted):
    widths = []
    plan = planning.make_plan(4, chunk_size=None, devices=None)._replace(width=2)
    monkeypatch.setattr(planning, "make_plan", lambda *_, **__: plan)
    compiled = planning._compile

    def compile_as_if_large(mesh, width, *rest):
        widths.append(width)
        return compiled(mesh, width, *rest)._replace(num_bytes=10**9 if width == 2 else 0)

    monkeypatch.setattr(planning, "_compile", compile_as_if_large)
    monkeypatch.setattr(planning, "free_bytes", lambda device: 10**8)
    result = small_sweep(seeds=[0])
    assert widths[-1] == 1
    assert set(widths) == {2, 1}
    for a, b in zip(result.members, uninterrupted.members[:2], strict=True):
        assert close(a.to_dict(), b.to_dict(), bound=1e-4)
