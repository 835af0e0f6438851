"""Algorithm 1 as one gradient: each network gets the gradient of its own loss alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privjax.losses import mmd_loss
from privjax.networks import nn_networks, scnn_networks
from privjax.objectives import OBJECTIVES, Attribute, make_objective
from privjax.training import Losses, TrainConfig, TrainData, hyperparameters, prepare, total_loss
from privjax.training.data import Task, make_data
from privjax.training.loss import mean_over_classes

WEIGHT = 0.7


def _problem(name, *, image=False):
    rng = np.random.default_rng(0)
    n = 40
    x = rng.normal(size=(n, 64))
    data, task = make_data(x, rng.integers(0, 3, n), rng.integers(0, 4, n))
    if image:
        networks = scnn_networks(
            (8, 8, 1),
            num_outputs=3,
            num_private=4,
            num_features=5,
            private_filters=4,
            public_filters=6,
            public_widths=(8,),
            discriminator_widths=(8,),
        )
    else:
        networks = nn_networks(
            64,
            num_outputs=3,
            num_private=4,
            private_widths=(9, 5),
            public_widths=(8,),
            discriminator_widths=(8,),
        )
    objective = make_objective(name)
    params = networks.init(jax.random.key(1))
    # Off its start: an orthonormal W has no gradient of L_O.
    params = jax.tree.map(lambda a: a + 0.05 * jnp.sin(jnp.arange(a.size).reshape(a.shape)), params)
    config = TrainConfig(networks, objective, task)
    constants = objective.draw(jax.random.key(3), 5) if objective.draw is not None else None
    batch = TrainData(data.x, data.y, data.p)
    numbers = hyperparameters(objective, task, privacy_weight=WEIGHT)

    def parts(params, key=jax.random.key(2)):  # noqa: B008 (an immutable value)
        return total_loss(params, batch, numbers, config=config, key=key, constants=constants)

    return params, parts


@functools.cache
def _gradients(name, image):
    """The gradient of the sum, and that of each part of it, in all parameters."""
    params, parts = _problem(name, image=image)

    def of(part):
        return jax.grad(lambda params: getattr(parts(params)[1], part))

    @jax.jit
    def all_of_them(params):
        (total, losses), gradient = jax.value_and_grad(parts, has_aux=True)(params)
        return total, losses, gradient, {part: of(part)(params) for part in Losses._fields}

    return all_of_them(params)


def _assert_equal(got, expected):
    """Up to rounding, which in a sum of large terms is not small beside a small element."""

    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6 + 1e-5 * float(jnp.abs(b).max(initial=0)))

    jax.tree.map(close, got, expected)


def _size(gradient):
    return sum(float(jnp.abs(a).sum()) for a in jax.tree.leaves(gradient))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "image"), [*((name, True) for name in OBJECTIVES), ("mmd", False), ("wdn", False)]
)
def test_each_block_is_the_gradient_of_its_own_loss(name, image):
    total, losses, got, of = _gradients(name, image)
    np.testing.assert_allclose(total, losses.objective + losses.discriminator, rtol=1e-6)
    np.testing.assert_allclose(
        losses.objective,
        losses.utility + WEIGHT * losses.privacy + 10 * losses.orthonormality,
        rtol=1e-6,
    )
    _assert_equal(got["private"], of["objective"]["private"])
    _assert_equal(got["public"], of["utility"]["public"])
    _assert_equal(got["discriminator"], of["discriminator"]["discriminator"])
    assert _size(got["private"]) > 0
    assert _size(got["public"]) > 0
    assert (_size(got["discriminator"]) > 0) == (name in ("wdn", "lsdn"))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_loss_is_exactly_blind_to_the_other_networks(name):
    _, _, _, of = _gradients(name, True)
    assert _size(of["privacy"]["private"]) > 0
    assert _size([of["privacy"]["public"], of["privacy"]["discriminator"]]) == 0.0
    assert _size(of["utility"]["discriminator"]) == 0.0
    assert _size([of["discriminator"]["private"], of["discriminator"]["public"]]) == 0.0
    assert _size(of["orthonormality"]["private"]["projection"]["w"]) > 0
    assert _size([of["orthonormality"]["public"], of["orthonormality"]["discriminator"]]) == 0.0


@pytest.mark.parametrize("name", ["wdn", "lsdn"])
def test_without_stopping_the_gradient_the_blocks_would_mix(name, monkeypatch):
    """The sabotaged twin of the two tests above."""
    params, parts = _problem(name)
    right = jax.jit(jax.grad(lambda params: parts(params)[0]))(params)
    monkeypatch.setattr("privjax.training.loss.lax.stop_gradient", lambda value: value)
    wrong = jax.jit(jax.grad(lambda params: parts(params)[0]))(params)
    for block in ("private", "discriminator"):
        difference = jax.tree.map(jnp.subtract, right[block], wrong[block])
        assert _size(difference) > 1e-2 * _size(right[block])


def test_the_discriminator_sees_what_was_released():
    """z with the dropout of this very step, not a clean copy of it."""
    params, parts = _problem("lsdn")
    clean, dropped = (
        jax.jit(lambda params, key=key: parts(params, key=key)[1].discriminator)(params)
        for key in (None, jax.random.key(2))
    )
    assert abs(dropped - clean) > 1e-5


def test_the_tied_projection_learns_from_both_of_its_uses():
    params, parts = _problem("mmd", image=True)
    gradient = _gradients("mmd", True)[3]["utility"]["private"]["projection"]["w"]
    w = params["private"]["projection"]["w"]
    step = 1e-2 * jnp.sign(gradient) / w.size

    @jax.jit
    def utility(w):
        projection = {**params["private"]["projection"], "w": w}
        private = {**params["private"], "projection": projection}
        return parts({**params, "private": private})[1].utility

    slope = (utility(w + step) - utility(w - step)) / (2e-2 / w.size)
    np.testing.assert_allclose(slope, jnp.abs(gradient).sum(), rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_within_utility_compares_rows_of_one_class_of_y_alone(name):
    rng = np.random.default_rng(1)
    z, y, p = rng.normal(size=(40, 5)).astype(np.float32), np.arange(40) % 4 // 3, rng.integers(0, 4, 40)
    shares = np.bincount(y) / 40
    alone = [_released_losses(make_objective(name), *(a[y == c] for a in (z, y, p))) for c in range(2)]
    for objective in (make_objective(name, within_utility=True), make_objective(name)):
        found = _released_losses(objective, z, y, p)
        want = [float(shares @ np.array(each)) for each in zip(*alone, strict=True)]
        close = np.allclose(found, want, rtol=2e-4, atol=1e-6)
        assert close == objective.within_utility, (found, want)


def test_within_utility_lets_z_tell_y_and_nothing_else():
    """p is a person and y the person's group: the paper's loss is small only once the group is lost."""
    p = np.arange(48) % 4
    y = p // 2
    group, person = np.eye(2, dtype=np.float32)[y], np.eye(4, dtype=np.float32)[p]
    within, plain = make_objective("mmd", within_utility=True), make_objective("mmd")
    assert _released_losses(within, group, y, p)[0] == pytest.approx(0.0, abs=1e-6)
    assert _released_losses(plain, group, y, p)[0] > 0.1
    assert _released_losses(within, person, y, p)[0] > 0.1


def test_within_utility_needs_classes():
    x, p = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    with pytest.raises(ValueError, match="y is continuous, but within_utility"):
        prepare(x, x[:, 0], p, objective=make_objective("mmd", within_utility=True))


def _released_losses(objective, z, y, p):
    """The two losses of an objective on rows released as they are, by a critic that does not learn."""
    task = Task(2, (Attribute(None, num_classes=4, width=4),))
    directions = np.linspace(-1, 1, z.shape[1] * 4).reshape(z.shape[1], 4).astype(np.float32)
    networks = nn_networks(z.shape[1], num_outputs=2)._replace(
        private=lambda params, x, **_: x,
        public=lambda params, z, **_: jnp.zeros((len(z), 2)),
        discriminator=lambda params, z: jnp.tanh(z @ directions) + z @ directions,
    )
    constants = objective.draw and objective.draw(jax.random.key(3), z.shape[1])
    numbers = hyperparameters(objective, task, privacy_weight=1.0)
    settings = dict(config=TrainConfig(networks, objective, task), constants=constants)
    losses = jax.jit(functools.partial(total_loss, **settings))(
        {"private": {}, "public": {}, "discriminator": {}}, TrainData(z, y, p), numbers
    )[1]
    return float(losses.privacy), float(losses.discriminator)


@pytest.mark.parametrize("classes", [3, 13])
def test_within_utility_is_the_same_sum_for_few_and_many_classes(classes):
    """Few are written out, many are a loop of the compiler's."""
    rng = np.random.default_rng(0)
    x, y, p = rng.normal(size=(80, 4)), rng.permutation(np.arange(80) % classes), rng.integers(0, 2, 80)
    data, config = prepare(x, y, p, objective=make_objective("mmd", within_utility=True))
    batch = TrainData(data.x, data.y, data.p)

    def loss(weights):
        return mmd_loss(data.x, data.p, num_classes=2, weights=weights)

    found = mean_over_classes(loss, batch, config.task)
    want = sum(
        np.mean(y == c) * mmd_loss(data.x, data.p, num_classes=2, weights=1.0 * (y == c))
        for c in range(classes)
    )
    np.testing.assert_allclose(found, want, rtol=1e-6)
