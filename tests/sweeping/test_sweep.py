"""A sweep gives the numbers of its members trained alone, in any layout."""

import dataclasses
import gc
import json
import weakref

import jax
import numpy as np
import pytest
from comparisons import close
from small import NETWORKS, make_small, small_sweep

import privjax
from privjax import nn_networks
from privjax.objectives import Schedule, make_objective
from privjax.release import ReleaseMechanism


def all_close(records, others, *, bound):
    return all(close(a.to_dict(), b.to_dict(), bound=bound) for a, b in zip(records, others, strict=True))


def test_members_are_weights_within_seeds(uninterrupted):
    pairs = [(m.seed, m.privacy_weight) for m in uninterrupted.members]
    assert pairs == [(0, 0.0), (0, 2.0), (1, 0.0), (1, 2.0)]
    assert [m.member for m in uninterrupted.members] == [0, 1, 2, 3]
    assert {m.status for m in uninterrupted.members} == {"finished"}
    assert {m.epochs for m in uninterrupted.members} == {6}
    # The seed selects the split too.
    assert uninterrupted.members[0].content_hash == make_small(0).content_hash
    assert uninterrupted.members[2].content_hash == make_small(1).content_hash


def test_weights_keep_their_order(uninterrupted):
    reversed_ = small_sweep(privacy_weights=[2.0, 0.0], seeds=[0])
    assert [m.privacy_weight for m in reversed_.members] == [2.0, 0.0]
    x = make_small().x
    for number, member in enumerate(reversed_.members):
        other = next(m for m in uninterrupted.members[:2] if m.privacy_weight == member.privacy_weight)
        assert dataclasses.replace(member, member=other.member) == other
        np.testing.assert_array_equal(reversed_.encoder(number)(x), uninterrupted.encoder(other.member)(x))


@pytest.mark.slow
def test_a_member_equals_fit_with_its_seed_and_split(uninterrupted):
    for member in uninterrupted.members:
        data = make_small(member.seed)
        alone = privjax.fit(
            data.x,
            data.y,
            data.s,
            privacy_weight=member.privacy_weight,
            networks=NETWORKS,
            train_rows=data.split.train,
            validation_rows=data.split.validation,
            batch_size=24,
            num_epochs=6,
            seed=member.seed,
        )
        z = uninterrupted.encoder(member.member)(data.x)
        # The same program in another mesh: 1e-6 of the size of z, after 18 steps.
        np.testing.assert_allclose(z, alone.encoder(data.x), atol=1e-6 * np.abs(z).max())
        test = data.part("test")
        assert member.utility.test == pytest.approx(alone.score(test.x, test.y))
        assert member.losses.objective == pytest.approx(alone.history.losses.objective[-1], rel=1e-5)
        assert member.utility.validation == pytest.approx(alone.history.measures.utility[-1])


def test_encoders_take_raw_rows(uninterrupted):
    encoder, data = uninterrupted.encoder(0), make_small()
    np.testing.assert_allclose(encoder.scaling.shift, data.train.x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(encoder.scaling.spread, data.train.x.std(0), rtol=1e-5)
    assert encoder(np.zeros((0, 6))).shape == (0, 4)
    for shape in [(3, 5), (6,)]:
        with pytest.raises(ValueError, match="x must hold rows"):
            encoder(np.zeros(shape))


def test_scaling_is_a_setting(uninterrupted):
    data = make_small()
    minmax = small_sweep(scaling="minmax", seeds=[0], num_epochs=1).encoder(1)
    np.testing.assert_allclose(minmax.scaling.shift, data.train.x.min(0))
    unscaled = small_sweep(scaling="none", seeds=[0], num_epochs=1).encoder(1)
    np.testing.assert_array_equal(unscaled.scaling.spread, np.ones(6))
    with pytest.raises(ValueError, match="scaling must be one of"):
        small_sweep(scaling="robust")


def test_the_unit_of_a_column_changes_nothing(uninterrupted):
    def in_another_unit(seed):
        data = make_small(seed)
        return dataclasses.replace(data, x=data.x * np.float32([1, 2**10, 1, 1, 1, 2**-10]))

    other = small_sweep(in_another_unit)
    for a, b in zip(other.members, uninterrupted.members, strict=True):
        a = dataclasses.replace(a, content_hash=b.content_hash)
        assert close(a.to_dict(), b.to_dict(), bound=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_each_seed_is_loaded_once(chunk_size):
    loads, loaded = [], []

    def load(seed):
        loads.append(seed)
        gc.collect()
        if chunk_size is None:  # one data set in memory at a time
            assert not any(reference() is not None for reference in loaded)
        data = make_small(seed)
        loaded.append(weakref.ref(data))
        return data

    result = small_sweep(load, seeds=[3, 1, 2], num_epochs=1, chunk_size=chunk_size)
    assert loads == [3, 1, 2]
    assert [m.content_hash for m in result.members[::2]] == [make_small(s).content_hash for s in (3, 1, 2)]


def test_numpy_numbers_are_accepted(uninterrupted, tmp_path):
    result = small_sweep(
        privacy_weights=np.array([0, 2]),
        seeds=np.arange(2),
        batch_size=np.int64(24),
        num_epochs=np.int32(6),
        public_dropout=np.float32(0.5),
        workdir=tmp_path / "run",
    )
    assert result.members == uninterrupted.members
    # The workdir belongs to the same sweep in Python numbers.
    resumed = small_sweep(workdir=tmp_path / "run", seeds=range(2), public_dropout=0.5)
    assert resumed.members == uninterrupted.members
    json.dumps(resumed.run.to_dict(), allow_nan=False)


def test_the_weight_matters():
    free, private = small_sweep(seeds=[0], num_epochs=40, private_rate=1e-2).members
    assert private.losses.privacy < 0.9 * free.losses.privacy


def test_chunks_change_no_digit(uninterrupted):
    # Stated bound: 1e-4 of each number after 18 steps, because a vmap adds in another order.
    chunked = small_sweep(chunk_size=3)  # three members, then one and two padded places
    assert all_close(chunked.members, uninterrupted.members, bound=1e-4)
    other = small_sweep(chunk_size=3, private_rate=1.1e-3)
    assert not all_close(other.members, uninterrupted.members, bound=1e-4)


def test_the_checkpoint_interval_changes_no_bit(uninterrupted):
    assert small_sweep(checkpoint_every=3).members == uninterrupted.members


def test_a_second_sweep_compiles_nothing(uninterrupted):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    small_sweep(privacy_weights=[0.3, 0.7, 5.0], seeds=[4, 5], private_rate=2e-3, public_dropout=0.1)
    assert not compiled
    # The listener does see a compilation.
    small_sweep(batch_size=23, seeds=[0], privacy_weights=[0.0])
    assert compiled


@pytest.mark.parametrize("chunk_size", [None, 4])
def test_a_diverging_member_affects_no_other(chunk_size):
    def three(weight):
        weights = [0.0, weight, 1.0]
        return small_sweep(objective="kdi", seeds=[0], privacy_weights=weights, chunk_size=chunk_size)

    # KDI is about 2 here, so the sum of losses overflows in float32.
    usual, overflowing = three(2.0), three(3e38)
    assert [m.status for m in overflowing.members] == ["finished", "diverged", "finished"]
    assert overflowing.members[0] == usual.members[0]
    assert overflowing.members[2] == usual.members[2]
    json.dumps(overflowing.run.to_dict(), allow_nan=False)
    # The encoder has the last finite parameters.
    assert np.isfinite(overflowing.encoder(1)(make_small().x)).all()


def test_each_member_converges_on_its_own():
    schedule = Schedule(max_epochs=60, patience=2, falls=1, threshold=0.05)
    objective = make_objective("mmd", schedule=schedule)
    result = small_sweep(objective=objective, num_epochs=None, seeds=[0, 1, 2])
    assert {m.status for m in result.members} == {"converged"}
    assert len({m.epochs for m in result.members}) > 1


@pytest.mark.parametrize("objective", ["kdi", "wdn", "lsdn", "rff_mmd"])
def test_every_objective_sweeps(objective):
    networks = nn_networks(
        6, num_outputs=2, num_private=3, private_widths=(4,), public_widths=(8,), discriminator_widths=(8,)
    )
    result = small_sweep(objective=objective, networks=networks, seeds=[0], num_epochs=2)
    assert [m.objective for m in result.members] == [objective] * 2
    assert all(m.utility.test is not None for m in result.members)
    assert result.encoder(1)(make_small().x).shape == (120, 4)


@pytest.mark.slow
def test_data_by_name_equals_data_as_a_dataset():
    by_name = privjax.sweep("digits", privacy_weights=[1.0], seeds=[3], num_epochs=1)
    loaded = privjax.datasets.load("digits", seed=3)
    as_dataset = privjax.sweep(loaded, privacy_weights=[1.0], seeds=[3], num_epochs=1)
    assert by_name.members == as_dataset.members
    assert "finished" in str(by_name)
    assert by_name.run.data.load_spec == loaded.origin.load_spec


def test_one_dataset_serves_all_seeds():
    data = make_small()
    result = small_sweep(data, privacy_weights=[1.0], seeds=[0, 1], num_epochs=1)
    assert {m.content_hash for m in result.members} == {data.content_hash}


def test_the_unit_of_a_continuous_variable_does_not_matter():
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
    assert plain.utility.test > 0.2  # in the large unit, 60 epochs would not reach the mean
    np.testing.assert_allclose(other.utility.test, plain.utility.test, atol=1e-3)
    np.testing.assert_allclose(other.losses.privacy, plain.losses.privacy, rtol=1e-2)


def test_log_lines(capsys):
    small_sweep(progress="log")
    lines = capsys.readouterr().err.splitlines()
    assert "at a time" in lines[0]
    assert lines[-1].startswith("sweep: 4/4 members, epoch 6, utility loss")
    small_sweep()
    assert capsys.readouterr().err == ""  # no terminal, so no output


def test_bar(capsys):
    small_sweep(progress="bar")
    assert "4/4 members" in capsys.readouterr().err


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
def test_wrong_arguments_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        small_sweep(**settings)


@pytest.mark.parametrize(
    "settings", [dict(privacy_weights=2.0), dict(privacy_weights=[None]), dict(seeds=[0.5])]
)
def test_numbers_of_a_wrong_type_are_refused(settings):
    with pytest.raises(TypeError, match="privacy_weights must be a list of numbers"):
        small_sweep(**settings)


def test_data_of_a_wrong_type_are_refused():
    with pytest.raises(TypeError, match="from_table"):
        small_sweep(np.zeros((3, 3)))
    with pytest.raises(TypeError, match="got tuple for seed 0"):
        small_sweep(lambda seed: (np.zeros((3, 3)), None))


def test_an_unknown_member_is_refused(uninterrupted):
    with pytest.raises(ValueError, match="member must be one of 0, 1, 2, 3, got 4"):
        uninterrupted.encoder(4)


def test_a_release_mechanism_is_trained_with_and_kept():
    def random_signs(z, key):
        return z / 2 if key is None else z * jax.random.rademacher(key, z.shape, z.dtype)

    mechanism = ReleaseMechanism("signs", random_signs, stochastic=True)
    result = small_sweep(release=mechanism, seeds=[0], num_epochs=1)
    encoder = result.encoder(1)
    assert encoder.release is mechanism
    assert (encoder(make_small().x, key=jax.random.key(0)) < 0).any()
    assert result.run.config.release == {"name": "signs"}
    assert result.members[1].utility.test is not None
