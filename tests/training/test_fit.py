"""The training loop: one compilation, bitwise repeats, vmap over members, schedules, divergence."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from privjax.encoder import Encoder
from privjax.networks import Networks, nn_networks
from privjax.objectives import OBJECTIVES, Objective, ObjectiveEntry, Schedule, make_objective
from privjax.release import ReleaseMechanism
from privjax.training import (
    FINISHED,
    RUNNING,
    TrainData,
    fit,
    hyperparameters,
    init_state,
    one_blas_thread,
    prepare,
    train_epochs,
)
from privjax.training.loop import CONVERGED, DIVERGED

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@functools.cache
def _data(n=220, features=8, seed=0):
    """Rows whose first feature follows y, whose second follows s, and noise."""
    rng = np.random.default_rng(seed)
    y, s = rng.integers(0, 2, n), rng.integers(0, 3, n)
    x = rng.normal(size=(n, features)).astype(np.float32)
    x[:, 0] += 3.0 * y
    x[:, 1] += 2.0 * s
    return x, y, s


def _small(objective="mmd", features=8, num_outputs=2, num_private=3):
    return nn_networks(
        features,
        num_outputs=num_outputs,
        num_private=num_private if objective in ("wdn", "lsdn") else 0,
        private_widths=(4,),
        public_widths=(8,),
        discriminator_widths=(8,),
    )


def _fit(objective="mmd", *, data=None, networks=None, **settings):
    x, y, s = _data() if data is None else data
    name = objective if isinstance(objective, str) else objective.name
    networks = _small(name) if networks is None else networks
    settings = {"batch_size": 50, "num_epochs": 3, **settings}
    return fit(x, y, s, objective=objective, networks=networks, **settings)


def _equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_trains_and_reports(objective):
    weight = 0.01 if objective == "kdi" else 0.5
    result = _fit(objective, privacy_weight=weight, num_epochs=30, public_rate=1e-2, private_rate=1e-2)
    losses, measures = result.history.losses, result.history.measures
    assert losses.utility[-1] < 0.5 * losses.utility[0]
    for values in jax.tree.leaves(result.history):
        assert len(values) == len(result.history.ran) <= 30
        assert np.isfinite(values).all()
    assert measures.utility[-1] > 0.85
    assert (measures.effective_rank <= 4.0 + 1e-3).all()
    assert ((measures.live_units >= 1) & (measures.live_units <= 4)).all()
    assert (np.abs(losses.discriminator).max() > 0) == (objective in ("wdn", "lsdn"))
    assert not result.collapsed


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_seed_determines_every_bit(objective):
    first, same, other = (_fit(objective, seed=seed) for seed in (3, 3, 4))
    _equal(first.state, same.state)
    _equal(first.history, same.history)
    assert not np.array_equal(first.history.losses.utility, other.history.losses.utility)


def test_another_value_is_not_another_compilation():
    traces = []
    base = _small()

    def private(params, x, *, key=None, dropout=0.0):
        traces.append(x.shape)
        return base.private(params, x, key=key, dropout=dropout)

    networks = base._replace(private=private)
    _fit(networks=networks)
    seen = len(traces)
    assert seen > 0
    _fit(
        networks=networks,
        privacy_weight=5.0,
        seed=9,
        private_rate=1e-2,
        public_rate=3e-3,
        discriminator_rate=1e-4,
        public_dropout=0.1,
        private_dropout=0.0,
    )
    x, y, s = _data()
    _fit(data=(2 * x, 1 - y, s), networks=networks, privacy_weight=np.float64(0.3))
    assert len(traces) == seen
    _fit(networks=networks, batch_size=40)  # another shape is another compilation, so the counter works
    assert len(traces) > seen


def test_epochs_in_several_calls_are_bitwise_one_call():
    x, y, s = _data()
    data, config = prepare(x, y, s, networks=_small(), batch_size=50)
    numbers = hyperparameters(config.objective, config.task, privacy_weight=1.0)
    start = init_state(numbers, data, config=config)
    whole, _ = train_epochs(start, data, numbers, config=config, num_epochs=2)
    state = start
    for epochs in (1, 1):
        # Through host memory, like a checkpoint.
        state = jax.tree.map(lambda a: jnp.asarray(np.array(a)), state)
        state, _ = train_epochs(state, data, numbers, config=config, num_epochs=epochs)
    _equal(whole, state)


def _stacked(config, settings):
    members = [hyperparameters(config.objective, config.task, **s) for s in settings]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


@pytest.mark.parametrize("objective", ["mmd", "wdn"])
def test_vmap_over_members_equals_a_loop(objective):
    x, y, s = _data()
    data, config = prepare(x, y, s, objective=objective, networks=_small(objective), batch_size=50)
    settings = [dict(privacy_weight=0.1 * i, seed=i, public_dropout=0.1 * i) for i in range(3)]
    numbers = _stacked(config, settings)

    def run(numbers):
        state = init_state(numbers, data, config=config)
        return train_epochs(state, data, numbers, config=config, num_epochs=2)

    together = jax.jit(jax.vmap(run))(numbers)
    for i in range(3):
        alone = run(jax.tree.map(lambda a, i=i: a[i], numbers))
        jax.tree.map(
            lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=2e-3, atol=2e-4),
            (together[0].params, together[1]),
            (alone[0].params, alone[1]),
        )


def test_members_may_train_on_different_rows_of_one_shared_x():
    x, y, s = _data()
    data, config = prepare(x, y, s, networks=_small(), batch_size=50)
    rng = np.random.default_rng(0)
    orders = np.stack([rng.permutation(len(x)) for _ in range(2)]).astype(np.int32)
    data = data._replace(train_rows=orders[:, :150], validation_rows=orders[:, 150:])
    numbers = hyperparameters(config.objective, config.task, privacy_weight=1.0)
    axes = data._replace(**dict.fromkeys(TrainData._fields[:4]), train_rows=0, validation_rows=0)

    def run(data):
        state = init_state(numbers, data, config=config)
        return train_epochs(state, data, numbers, config=config, num_epochs=2)[1]

    history = jax.jit(jax.vmap(run, in_axes=(axes,)))(data)
    for i in range(2):
        alone = run(data._replace(train_rows=orders[i, :150], validation_rows=orders[i, 150:]))
        np.testing.assert_allclose(history.losses.objective[i], alone.losses.objective, rtol=1e-3)
    assert not np.allclose(history.losses.objective[0], history.losses.objective[1], rtol=1e-3)


def test_rows_outside_train_rows_and_validation_rows_are_never_read():
    x, y, s = _data()
    rows = np.arange(0, 220, 2)
    spoilt = x.copy()
    spoilt[1::2] = 1e6
    results = [
        _fit(data=(inputs, y, s), train_rows=rows, validation_rows=rows[:40]) for inputs in (x, spoilt)
    ]
    _equal(results[0].state.params, results[1].state.params)


@pytest.mark.parametrize("objective", ["mmd", "lsdn"])
def test_rows_of_weight_zero_change_nothing(objective):
    x, y, s = _data()
    weights = np.ones(len(x), np.float32)
    weights[::3] = 0.0
    spoilt = x.copy()
    spoilt[::3] *= 100.0
    results = [_fit(objective, data=(inputs, y, s), weights=weights) for inputs in (x, spoilt)]
    _equal(results[0].state.params, results[1].state.params)
    other = _fit(objective, data=(spoilt, y, s))
    assert not np.allclose(results[0].history.losses.utility, other.history.losses.utility, rtol=1e-3)


class TestSchedule:
    def test_fixed_rates_fall_in_the_second_half_and_the_run_finishes(self):
        objective = make_objective("lsdn", schedule=Schedule("fixed", max_epochs=8, falls=2))
        result = _fit(objective, num_epochs=12)
        np.testing.assert_allclose(result.history.rate_scale, [1.0] * 4 + [0.1] * 2 + [0.01] * 2, rtol=1e-6)
        assert result.status == "finished"
        assert int(result.state.status) == FINISHED

    def test_adversarial_objectives_have_the_papers_rates_and_250_epochs(self):
        for name in ("wdn", "lsdn"):
            objective = make_objective(name)
            rates = (objective.private_rate, objective.public_rate, objective.discriminator_rate)
            assert rates == (1e-4, 1e-4, 1e-3)
            assert objective.schedule.kind == "fixed"
            assert objective.schedule.max_epochs == 250
        for name in ("mmd", "rff_mmd", "kdi"):
            objective = make_objective(name)
            assert (objective.private_rate, objective.public_rate) == (1e-3, 1e-3)
            assert objective.schedule.kind == "plateau"

    def test_plateau_rates_fall_when_the_objective_stops_declining_then_training_converges(self):
        # With rates of zero the objective never declines after the first epoch.
        schedule = Schedule(max_epochs=50, falls=2, patience=3, threshold=0.1)
        result = _fit(
            make_objective("mmd", schedule=schedule),
            num_epochs=50,
            private_rate=0.0,
            public_rate=0.0,
            public_dropout=0.0,
        )
        np.testing.assert_allclose(result.history.rate_scale, [1.0] * 4 + [0.1] * 3 + [0.01] * 3, rtol=1e-6)
        assert result.status == "converged"
        assert int(result.state.falls) == 2

    def test_rates_stay_while_the_objective_declines(self):
        result = _fit(num_epochs=8, privacy_weight=0.0, public_dropout=0.0, public_rate=1e-2)
        assert (np.diff(result.history.losses.objective) < 0).all()
        np.testing.assert_array_equal(result.history.rate_scale, 1.0)
        assert int(result.state.status) == RUNNING
        assert result.status == "running"

    def test_the_rates_reach_adam_network_by_network(self):
        """Adam's first step has the size of the rate in each direction."""
        x, y, s = _data()
        data, config = prepare(x, y, s, objective="lsdn", networks=_small("lsdn"), batch_size=len(x))
        numbers = hyperparameters(
            config.objective,
            config.task,
            privacy_weight=1.0,
            private_rate=1e-2,
            public_rate=1e-3,
            discriminator_rate=1e-4,
        )
        start = init_state(numbers, data, config=config)
        state, _ = train_epochs(
            start._replace(rate_scale=jnp.float32(0.1)), data, numbers, config=config, num_epochs=1
        )
        for name, rate in (("private", 1e-3), ("public", 1e-4), ("discriminator", 1e-5)):
            moves = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.params[name], start.params[name])
            np.testing.assert_allclose(max(jax.tree.leaves(moves)), rate, rtol=0.02)

    def test_a_member_that_has_ended_passes_through_unchanged(self):
        x, y, s = _data()
        data, config = prepare(x, y, s, networks=_small(), batch_size=50)
        numbers = hyperparameters(config.objective, config.task, privacy_weight=1.0)
        state = init_state(numbers, data, config=config)
        for status in (CONVERGED, FINISHED, DIVERGED):
            ended = state._replace(status=jnp.int32(status))
            after, history = train_epochs(ended, data, numbers, config=config, num_epochs=2)
            _equal(ended, after)
            assert not history.ran.any()
            assert np.isnan(history.losses.utility).all()


class TestDivergence:
    def test_a_diverged_member_keeps_its_last_finite_parameters(self):
        result = _fit(private_rate=1e30, public_rate=1e30, num_epochs=5)
        assert result.status == "diverged"
        assert len(result.history.ran) < 5
        leaves = jax.tree.leaves(result.state.params)
        assert all(np.isfinite(a).all() for a in leaves)
        x, y, _ = _data()
        assert np.isfinite(result.encoder(x)).all()
        assert np.isfinite(result.score(x, y))

    def test_the_steps_before_the_divergence_are_kept(self):

        def privacy_loss(z, p, *, weights, **_):
            # Finite until a unit of z has moved from where it began.
            return jnp.where(jnp.abs(z).max() > 1e3, jnp.nan, 1.0) * jnp.sum(z) * -10.0

        objective = Objective("runaway", privacy_loss)
        result = _fit(objective, private_rate=30.0, num_epochs=40, batch_size=20)
        assert result.status == "diverged"
        start = init_state(
            hyperparameters(objective, result.config.task, privacy_weight=1.0),
            prepare(*_data(), networks=_small())[0],
            config=result.config,
        )
        moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), result.state.params, start.params)
        assert max(jax.tree.leaves(moved["private"])) > 20.0
        x, _, _ = _data()
        assert result.encoder(x).max() <= 2e3

    def test_a_diverged_member_changes_no_bit_of_the_others(self):
        x, y, s = _data()
        data, config = prepare(x, y, s, networks=_small(), batch_size=50)

        def run(rate):
            numbers = _stacked(
                config,
                [
                    dict(privacy_weight=1.0, seed=1),
                    dict(privacy_weight=1.0, seed=2, private_rate=rate, public_rate=rate),
                    dict(privacy_weight=2.0, seed=3),
                ],
            )

            def member(numbers):
                state = init_state(numbers, data, config=config)
                return train_epochs(state, data, numbers, config=config, num_epochs=2)

            return jax.jit(jax.vmap(member))(numbers)

        (finite, finite_history), (diverged, diverged_history) = run(1e-3), run(1e30)
        np.testing.assert_array_equal(diverged.status, [RUNNING, DIVERGED, RUNNING])
        for i in (0, 2):
            _equal(*(jax.tree.map(lambda a, i=i: a[i], state) for state in (finite, diverged)))
        utility = [history.losses.utility[::2] for history in (finite_history, diverged_history)]
        np.testing.assert_array_equal(*utility)


def test_plain_functions_train_like_any_networks():
    def init(key):
        a, b = jax.random.split(key)
        return {
            "private": 0.3 * jax.random.normal(a, (8, 3)),
            "public": 0.3 * jax.random.normal(b, (3, 2)),
            "discriminator": {},
        }

    networks = Networks(
        init=init,
        private=lambda params, x, *, key=None, dropout=0.0: jax.nn.relu(x @ params["private"]),
        public=lambda params, z, *, key=None, dropout=0.0: z @ params["public"],
    )
    result = _fit(networks=networks, num_epochs=40, private_rate=1e-2, public_rate=1e-2)
    assert result.score(*_data()[:2]) > 0.85


def test_nnx_modules_train_like_any_networks():
    from own_networks import nnx_networks

    result = _fit(networks=nnx_networks(8, 2), num_epochs=30, private_rate=1e-2, public_rate=1e-2)
    assert result.score(*_data()[:2]) > 0.85


def test_a_larger_weight_hides_more():
    settings = dict(num_epochs=150, private_rate=1e-2, public_rate=1e-2, scaling="none")
    probes = [_fit(privacy_weight=weight, **settings).history.measures.probe[-1] for weight in (0.0, 10.0)]
    assert probes[0] > 0.55
    assert probes[1] < 0.45


def test_training_computes_in_float32_also_when_x64_is_enabled():
    x, y, s = _data()
    with jax.enable_x64(True):
        result = _fit(data=(x.astype(np.float64), y, s))
    assert np.isfinite(result.history.losses.objective).all()
    assert {a.dtype for a in jax.tree.leaves(result.state.params)} == {np.dtype(np.float32)}


def test_the_baseline_uses_the_measured_rows_and_their_weights():
    x, y, s = _data()
    weights = np.where(y == 1, 3.0, 1.0)
    share = 3 * y[:40].sum() / weights[:40].sum()
    result = _fit(num_epochs=1, weights=weights, validation_rows=np.arange(40))
    assert result.baseline == pytest.approx(share)
    assert _fit(num_epochs=1, weights=weights).baseline != pytest.approx(share)


def test_collapse_is_reported():
    result = _fit(privacy_weight=1e4, num_epochs=60, private_rate=0.1)
    assert result.collapsed
    assert not _fit(privacy_weight=0.0, num_epochs=30, private_rate=1e-2).collapsed


def test_the_privacy_weight_grows_while_training_warms_up():
    x, y, s = _data()
    at_once, warmed = (
        make_objective("mmd", schedule=Schedule(max_epochs=6, patience=2, warmup=warmup)) for warmup in (0, 4)
    )
    history = fit(x, y, s, objective=warmed, privacy_weight=2.0, batch_size=100).history
    losses = history.losses
    shares = (losses.objective - losses.utility) / (2.0 * losses.privacy)
    np.testing.assert_allclose(shares, np.array([0.25, 0.5, 0.75, 1.0, 1.0, 1.0]) ** 2, rtol=1e-4)
    plain = fit(x, y, s, objective=at_once, privacy_weight=2.0, batch_size=100).history.losses
    np.testing.assert_allclose((plain.objective - plain.utility) / (2.0 * plain.privacy), 1.0, rtol=1e-4)
    # An objective that grows with its weight is not a plateau.
    assert (history.rate_scale[:5] == 1.0).all()


def test_fits_in_two_threads_give_the_blas_threads_back():
    def threads():
        return [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        one, other = one_blas_thread(), one_blas_thread()
        with one:
            other.__enter__()
            assert set(threads()) == {1}
        assert set(threads()) == {1}  # the other context is still open
        other.__exit__(None, None, None)
        assert set(threads()) == {2}


def test_the_blas_of_the_first_factorisation_has_one_thread():
    # In a new process, because SciPy's BLAS is loaded in this one.
    script = """
import jax.numpy as jnp
from threadpoolctl import threadpool_info
from privjax.training import one_blas_thread
with one_blas_thread():
    jnp.linalg.cholesky(jnp.eye(3)).block_until_ready()
    inside = [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
outside = [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
print(inside, outside)
"""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == "[1, 1] [2, 2]".split()


def test_a_numpy_integer_is_not_another_compilation():
    x, y, p = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2, np.arange(40) % 3
    fit(x, y, p, num_epochs=1)
    compiled = train_epochs._cache_size()
    fit(x, y, p, num_epochs=np.int64(2))
    assert train_epochs._cache_size() == compiled


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"objective": make_objective("mmd", schedule=Schedule("fixd"))},
            "kind must be 'plateau' or 'fixed'",
        ),
        (
            {"objective": make_objective("mmd", schedule=Schedule(max_epochs=0))},
            "max_epochs must be at least 1",
        ),
        ({"validation_rows": np.arange(40)}, "validation_rows are all rows of x"),
    ],
)
def test_settings_that_cannot_be_trained_are_refused(settings, message):
    x = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(ValueError, match=message):
        fit(x, np.arange(40) % 2, np.arange(40) % 3, num_epochs=1, **settings)


class TestScaling:
    def test_fit_takes_raw_rows_and_learns_the_scaling_on_the_training_rows(self):
        x, y, s = _data()
        raw = (1000.0 + 50.0 * x).astype(np.float32)
        raw[200:] += 1e5
        rows = dict(train_rows=np.arange(180), validation_rows=np.arange(180, 200))
        result = _fit(data=(raw, y, s), num_epochs=30, private_rate=1e-2, public_rate=1e-2, **rows)
        scaled = result.encoder.scaling.apply(raw[:180])
        np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-3)
        np.testing.assert_allclose(scaled.std(0), 1.0, atol=1e-3)
        assert result.score(raw[:200], y[:200]) > 0.85
        assert result.history.measures.utility[-1] > 0.8

    def test_the_scaling_can_be_chosen_and_is_applied_once(self):
        x, y, s = _data()
        trained = _fit(scaling="none")
        scaled = _fit(data=(trained.encoder.scaling.apply(x), y, s), scaling="none")
        _equal(trained.state, scaled.state)
        minmax = _fit(scaling="minmax").encoder.scaling
        np.testing.assert_allclose(np.ptp(minmax.apply(x), axis=0), 1.0, rtol=1e-5)
        with pytest.raises(ValueError, match="scaling must be one of standard, minmax, none, got 'robust'"):
            _fit(scaling="robust")

    def test_the_encoder_of_a_fit_is_saved_and_loaded(self, tmp_path):
        x, _, _ = _data()
        result = _fit()
        result.encoder.save(tmp_path / "encoder.npz")
        np.testing.assert_array_equal(Encoder.load(tmp_path / "encoder.npz")(x), result.encoder(x))


class TestRelease:
    """A mechanism that is a few lines of a user's code is trained with and released with."""

    def test_training_and_encoder_use_the_mechanism(self):
        def apply(z, key):
            return z + 0.1 * jax.random.normal(key, z.shape)

        noise = ReleaseMechanism("tiny_noise", apply, stochastic=True)
        x, y, _ = _data()
        settings = dict(num_epochs=20, private_rate=1e-2, public_rate=1e-2)
        result, same, plain = (_fit(release=r, **settings) for r in (noise, noise, None))
        _equal(result.state, same.state)
        assert not np.array_equal(result.history.losses.utility, plain.history.losses.utility)
        with pytest.raises(ValueError, match="key is needed for the release mechanism tiny_noise"):
            result.encoder(x)
        first, second = (result.encoder(x, key=jax.random.key(seed)) for seed in (0, 1))
        np.testing.assert_allclose((first - second).std(), 0.1 * np.sqrt(2), rtol=0.1)
        assert result.score(x, y, key=jax.random.key(0)) > 0.85

    def test_a_mechanism_may_change_the_width(self):
        doubled = ReleaseMechanism("doubled", lambda z, key: jnp.concatenate([z, z], axis=1))
        narrow, wide = _small(), nn_networks(8, num_outputs=2, private_widths=(8,), public_widths=(8,))
        networks = narrow._replace(
            init=lambda key: {**narrow.init(key), "public": wide.init(key)["public"]}, public=wide.public
        )
        result = _fit(networks=networks, release=doubled)
        assert result.encoder(_data()[0]).shape == (220, 8)

    def test_other_values_are_refused(self):
        with pytest.raises(TypeError, match="release must be a ReleaseMechanism, got str"):
            _fit(release="exact")


class TestRegistry:
    def test_one_entry_adds_an_objective(self, monkeypatch):
        def make(scale=1.0):
            return Objective("spread", lambda z, p, **_: scale * jnp.var(z))

        monkeypatch.setitem(
            OBJECTIVES, "spread", ObjectiveEntry("spread", "Variance of z.", (0.0, 1.0), make)
        )
        result = fit(*_data(), objective="spread", networks=_small(), num_epochs=2, batch_size=50)
        assert np.isfinite(result.history.losses.privacy).all()
        assert make_objective("spread", scale=2.0).settings == (("scale", 2.0),)
        x, y, _ = _data()
        with pytest.raises(ValueError, match="p is continuous, but spread compares classes: use kdi or lsdn"):
            fit(x, y, x[:, 0], objective="spread")

    def test_every_entry_has_a_summary_and_weights_from_zero(self):
        for name, entry in OBJECTIVES.items():
            assert entry.name == name == make_objective(name).name
            assert entry.summary.endswith(".")
            assert entry.weights[0] == 0.0
            assert list(entry.weights) == sorted(set(entry.weights))
            assert make_objective(name).continuous == entry.continuous
