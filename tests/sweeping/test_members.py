"""A sweep gives the numbers that its members would give alone, however it is laid out."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from comparisons import close
from small import NETWORKS, make_small, small_sweep

import privjax
from privjax import nn_networks
from privjax.training import make_objective, prepare


def test_points_are_weights_within_seeds(undisturbed):
    pairs = [(m["seed"], m["privacy_weight"]) for m in undisturbed.members]
    assert pairs == [(0, 0.0), (0, 2.0), (1, 0.0), (1, 2.0)]
    assert [m["point"] for m in undisturbed.members] == [0, 1, 2, 3]
    assert {m["status"] for m in undisturbed.members} == {"finished"}
    assert {m["epochs"] for m in undisturbed.members} == {6}
    # The seed picks the split too.
    assert undisturbed.members[0]["content_hash"] == make_small(0).content_hash
    assert undisturbed.members[2]["content_hash"] == make_small(1).content_hash


def test_members_are_what_fit_gives(undisturbed):
    for member in undisturbed.members:
        data = make_small(member["seed"])
        alone = privjax.fit(
            data.x,
            data.y,
            data.s,
            privacy_weight=member["privacy_weight"],
            networks=NETWORKS,
            train_rows=data.split.train,
            validation_rows=data.split.validation,
            batch_size=24,
            num_epochs=6,
            seed=member["seed"],
        )
        z = undisturbed.encoder(member["point"])(data.x)
        # The same program but for its place in a mesh: 1e-6 of the size of z, after 18 steps.
        np.testing.assert_allclose(z, alone.encoder(data.x), atol=1e-6 * np.abs(z).max())
        test = data.part("test")
        assert member["utility"]["test"] == pytest.approx(alone.score(test.x, test.y))
        assert member["losses"]["objective"] == pytest.approx(alone.history.losses.objective[-1], rel=1e-5)
        assert member["utility"]["validation"] == pytest.approx(alone.history.measures.utility[-1])


def test_numpy_numbers_are_numbers_like_others(undisturbed, tmp_path):
    result = small_sweep(
        privacy_weights=np.array([0, 2]),
        seeds=np.arange(2),
        batch_size=np.int64(24),
        num_epochs=np.int32(6),
        public_dropout=np.float32(0.5),
        workdir=tmp_path / "run",
    )
    assert result.members == undisturbed.members
    # The folder is that of the same sweep in Python's numbers.
    again = small_sweep(workdir=tmp_path / "run", seeds=range(2), public_dropout=0.5)
    assert again.members == undisturbed.members
    json.dumps(again.results, allow_nan=False)


def test_an_encoder_says_what_rows_it_takes(undisturbed):
    encoder = undisturbed.encoder(0)
    assert encoder(np.zeros((0, 6))).shape == (0, 4)
    for shape in [(3, 5), (6,)]:
        with pytest.raises(ValueError, match="rows of 6 features"):
            encoder(np.zeros(shape))


def test_the_weight_matters():
    free, private = small_sweep(seeds=[0], num_epochs=40, private_rate=1e-2).members
    assert private["losses"]["privacy"] < 0.9 * free["losses"]["privacy"]


def test_chunks_change_nothing(undisturbed):
    # Stated bound: 1e-4 of each number after 18 steps; a vmap adds in another order.
    chunked = small_sweep(chunk_size=3)  # two members and a padded place
    for a, b in zip(chunked.members, undisturbed.members, strict=True):
        assert close(a, b, bound=1e-4), (a, b)
    other = small_sweep(chunk_size=3, private_rate=1.1e-3)
    assert not close(other.members[0], undisturbed.members[0], bound=1e-4)


def test_another_interval_changes_no_bit(undisturbed):
    assert small_sweep(checkpoint_every=3).members == undisturbed.members


def test_a_second_sweep_compiles_nothing(undisturbed):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    small_sweep(privacy_weights=[0.3, 0.7, 5.0], seeds=[4, 5], private_rate=2e-3, public_dropout=0.1)
    assert not compiled
    # The count does see a compilation.
    small_sweep(batch_size=23, seeds=[0], privacy_weights=[0.0])
    assert compiled


@pytest.mark.parametrize("chunk_size", [None, 4])
def test_a_member_that_diverges_is_alone(chunk_size):
    def three(weight):
        weights = [0.0, weight, 1.0]
        return small_sweep(objective="kdi", seeds=[0], privacy_weights=weights, chunk_size=chunk_size)

    # KDI is about 2 here, so the sum of losses overflows in float32.
    usual, spoilt = three(2.0), three(3e38)
    assert [m["status"] for m in spoilt.members] == ["finished", "diverged", "finished"]
    assert spoilt.members[0] == usual.members[0]
    assert spoilt.members[2] == usual.members[2]
    json.dumps(spoilt.results, allow_nan=False)
    # What it leaves is the last that was finite.
    assert np.isfinite(spoilt.encoder(1)(make_small().x)).all()


def test_convergence_is_each_members_own():
    schedule = privjax.train.Schedule(max_epochs=60, patience=2, falls=1, threshold=0.05)
    objective = make_objective("mmd", schedule=schedule)
    result = small_sweep(objective=objective, num_epochs=None, seeds=[0, 1, 2])
    assert {m["status"] for m in result.members} == {"converged"}
    assert len({m["epochs"] for m in result.members}) > 1


@pytest.mark.parametrize("objective", ["kdi", "wdn", "lsdn", "rff_mmd"])
def test_every_objective_sweeps(objective):
    networks = privjax.nn_networks(
        6, num_outputs=2, num_private=3, private_widths=(4,), public_widths=(8,), discriminator_widths=(8,)
    )
    result = small_sweep(objective=objective, networks=networks, seeds=[0], num_epochs=2)
    assert [m["objective"] for m in result.members] == [objective] * 2
    assert all(m["utility"]["test"] is not None for m in result.members)
    assert result.encoder(1)(make_small().x).shape == (120, 4)


def test_data_by_name_and_as_one_set():
    by_name = privjax.sweep("digits", privacy_weights=[1.0], seeds=[3], num_epochs=1)
    loaded = privjax.datasets.load("digits", seed=3)
    as_set = privjax.sweep(loaded, privacy_weights=[1.0], seeds=[3], num_epochs=1)
    assert by_name.members == as_set.members
    assert "finished" in str(by_name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(privacy_weights=[]), "at least one"),
        (dict(privacy_weights=[-1.0]), "not negative"),
        (dict(privacy_weights=[float("nan")]), "finite"),
        (dict(privacy_weights=[1e39]), "finite"),
        (dict(seeds=[1, 1]), "differ"),
        (dict(privacy_weights=[0.5, 0.5]), "differ"),
        (dict(seeds=[-1]), "between 0"),
        (dict(chunk_size=0), "chunk_size"),
        (dict(checkpoint_every=0), "checkpoint_every"),
        (dict(num_epochs=0), "num_epochs"),
        (dict(progress="loud"), "progress"),
        (dict(objective="mdm"), "objective must be one of"),
    ],
)
def test_wrong_arguments_are_told(settings, message):
    with pytest.raises(ValueError, match=message):
        small_sweep(**settings)


@pytest.mark.parametrize(
    "settings", [dict(privacy_weights=2.0), dict(privacy_weights=[None]), dict(seeds=[0.5])]
)
def test_numbers_of_another_kind_are_told(settings):
    with pytest.raises(TypeError, match="privacy_weights must be a list of numbers"):
        small_sweep(**settings)


def test_data_of_another_kind_is_told():
    with pytest.raises(TypeError, match="from_table"):
        small_sweep(np.zeros((3, 3)))


def test_a_sweep_that_does_not_fit_says_what_would(monkeypatch):
    from privjax.sweeping import chunks

    data = make_small()
    arrays, config = prepare(data.x, data.y, data.s, networks=NETWORKS, batch_size=24)
    plan = chunks.make_plan(4, 4, None)
    shared = sum(a.nbytes for a in jax.tree.leaves(arrays))
    needed = shared + 4000  # four members of 1000 bytes
    monkeypatch.setattr(chunks, "free_bytes", lambda device: (shared + 2500) * plan.flights)
    with pytest.raises(MemoryError, match="chunk_size=2 would fit"):
        chunks.check_memory(plan, needed, arrays)
    monkeypatch.setattr(chunks, "free_bytes", lambda device: needed * plan.flights)
    chunks.check_memory(plan, needed, arrays)
    assert "4 members" in chunks.describe_memory(plan, needed, arrays, 4)
    monkeypatch.setattr(chunks, "free_bytes", lambda device: 1000)
    with pytest.raises(MemoryError, match="not even one"):
        small_sweep(privacy_weights=[0.0], seeds=[0])
    monkeypatch.undo()
    assert chunks.free_bytes(jax.devices()[0]) > 1e6


def test_a_chunk_of_its_own_choice_shrinks_until_it_fits(monkeypatch, undisturbed):
    from privjax.sweeping import chunks

    plan = chunks.Plan(chunks.make_plan(2, None, None).mesh, 2, 1)
    widths = []
    monkeypatch.setattr(chunks, "make_plan", lambda *_: plan)
    monkeypatch.setattr(chunks, "members_that_fit", lambda plan, *_: widths.append(plan.width) or 1)
    result = small_sweep(seeds=[0])
    assert widths[:2] == [2, 1]
    for a, b in zip(result.members, undisturbed.members[:2], strict=True):
        assert close(a, b, bound=1e-4)


def test_log_lines(capsys):
    small_sweep(progress="log")
    lines = capsys.readouterr().err.splitlines()
    assert "at a time" in lines[0]
    assert lines[-1].startswith("sweep: 4/4 members, epoch 6, utility loss")
    small_sweep()
    assert capsys.readouterr().err == ""  # no terminal, so nothing


def test_bar(capsys):
    small_sweep(progress="bar")
    assert "4/4 members" in capsys.readouterr().err


def test_the_unit_of_reals_does_not_matter():
    def found(unit, shift):
        data = make_small()
        y = (unit * data.x[:, 0] + shift).astype(np.float32)
        s = (unit * data.x[:, 1] - shift).astype(np.float32)
        data = dataclasses.replace(data, y=y, s=s, y_names=(), s_names=())
        networks = nn_networks(6, num_outputs=1, private_widths=(4,), public_widths=(8,))
        settings = dict(objective="kdi", privacy_weights=[0.01], seeds=[0], num_epochs=60)
        settings |= dict(private_rate=1e-2, public_rate=1e-2)
        return small_sweep(data, networks=networks, **settings).members[0]

    plain, other = found(1.0, 0.0), found(2.0**12, 2.0**13)
    assert plain["utility"]["test"] > 0.2  # in the large unit as it is, 60 epochs would not reach the mean
    np.testing.assert_allclose(other["utility"]["test"], plain["utility"]["test"], atol=1e-3)
    np.testing.assert_allclose(other["losses"]["privacy"], plain["losses"]["privacy"], rtol=1e-2)
