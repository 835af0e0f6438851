"""Kinds of labels, awkward data sets, and errors that name the remedy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privjax.kernels import gaussian, median_bandwidth
from privjax.networks import nn_networks
from privjax.objectives import Schedule, make_objective
from privjax.training import fit, hyperparameters, prepare
from privjax.training.data import make_data

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
S = RNG.integers(0, 3, N)
AGE = (X[:, 1] + 0.1 * RNG.normal(size=N)).astype(np.float32)
# One short schedule, so that fits differ in the tested setting alone.
SHORT = Schedule("fixed", max_epochs=40, falls=1)


pytestmark = pytest.mark.usefixtures("quick_to_compile")


def _objective(name):
    return make_objective(name, schedule=SHORT)


def _networks(num_outputs=2, num_private=0):
    return nn_networks(
        6,
        num_outputs=num_outputs,
        num_private=num_private,
        private_widths=(4,),
        public_widths=(8,),
        discriminator_widths=(16,),
    )


def _fit(x=X, y=Y, p=S, objective="mmd", networks=None, **settings):
    networks = _networks() if networks is None else networks
    settings = {"batch_size": 40, "private_rate": 1e-2, "public_rate": 1e-2, **settings}
    return fit(x, y, p, objective=_objective(objective), networks=networks, **settings)


def _finite(result):
    return all(np.isfinite(a).all() for a in jax.tree.leaves((result.state.params, result.history)))


@pytest.mark.parametrize(("objective", "weight"), [("kdi", 0.3), ("lsdn", 10.0)])
def test_continuous_private_variables_are_hidden(objective, weight):
    # y needs both features, so z reveals the second, which p follows, unless the loss prevents it.
    networks = _networks(num_outputs=2, num_private=1 if objective == "lsdn" else 0)
    settings = dict(public_dropout=0.0, discriminator_rate=1e-2, batch_size=20)
    probes = [
        _fit(
            y=X[:, :2], p=AGE, objective=objective, privacy_weight=w, networks=networks, **settings
        ).history.measures.probe[-1]
        for w in (0.0, weight)
    ]
    assert probes[0] > 0.6
    assert probes[1] < 0.3


@pytest.mark.parametrize("objective", ["mmd", "rff_mmd", "wdn"])
def test_a_continuous_private_variable_needs_an_objective_for_it(objective):
    with pytest.raises(ValueError, match=f"p is continuous, but {objective} compares classes: use kdi"):
        fit(X, Y, AGE, objective=objective)
    with pytest.raises(ValueError, match=r"p\['age'\] is continuous"):
        fit(X, Y, {"age": AGE, "user": S}, objective=objective)


def test_continuous_utility_is_a_squared_error():
    target = 2.0 * X[:, 0] - 1.0
    networks = _networks(num_outputs=1)
    result = _fit(y=target, networks=networks, public_dropout=0.0, privacy_weight=0.0)
    assert result.history.measures.utility[-1] > 0.8
    assert result.score(X, target) > 0.8
    error = np.mean((result.predict(X)[:, 0] - target) ** 2)
    np.testing.assert_allclose(result.history.measures.utility_loss[-1], error, rtol=1e-3)


def test_several_private_variables_each_with_its_own_weight():
    p = {"user": S, "age": AGE}
    result = _fit(p=p, objective="kdi", privacy_weight={"user": 0.01, "age": 0.02})
    losses = result.history.losses
    assert set(losses.privacy) == {"user", "age"}
    np.testing.assert_allclose(
        losses.objective,
        losses.utility + 0.01 * losses.privacy["user"] + 0.02 * losses.privacy["age"],
        rtol=1e-5,
    )
    assert set(result.history.measures.probe) == {"user", "age"}


def test_several_private_variables_share_one_discriminator():
    p = {"user": S, "age": AGE}
    result = _fit(p=p, objective="lsdn", privacy_weight=1.0, networks=_networks(num_private=4))
    assert _finite(result)
    with pytest.raises(ValueError, match="discriminator with 4 outputs.*num_private=4"):
        _fit(p=p, objective="lsdn", networks=_networks(num_private=3))


def test_privacy_weights_must_name_the_variables():
    with pytest.raises(ValueError, match=r"privacy_weight must name .*\['age', 'user'\]"):
        _fit(p={"user": S, "age": AGE}, objective="kdi", privacy_weight={"user": 1.0})
    with pytest.raises(TypeError, match="privacy_weight must be a number"):
        _fit(privacy_weight={"user": 1.0})


def test_fewer_rows_than_a_batch_are_one_batch():
    small = _fit(batch_size=500)
    same = _fit(batch_size=N)
    np.testing.assert_array_equal(small.history.losses.utility, same.history.losses.utility)
    assert small.history.measures.utility[-1] > 0.8


def test_one_row_per_batch_and_single_rows_do_not_break():
    assert _finite(_fit(X[:2], np.array([0, 1]), np.array([0, 1]), batch_size=1, num_epochs=2))


def test_constant_features_and_constant_x_train_without_nan():
    x = X.copy()
    x[:, 3:] = 7.0
    assert _finite(_fit(x))
    result = _fit(np.zeros_like(X))
    assert _finite(result)
    assert result.collapsed


def test_absent_classes_are_allowed():
    result = _fit(p=np.where(S == 1, 5, S))
    assert result.config.task.num_private == 6
    assert _finite(result)


def test_one_hot_rows_and_booleans_are_labels():
    for y, p in ((Y, S), (Y.astype(bool), np.eye(3)[S]), (np.eye(2)[Y], S.astype(np.uint8))):
        data, task = make_data(X, y, p)
        assert task.num_classes == 2
        assert task.private[0].num_classes == 3
        np.testing.assert_array_equal(data.y, Y)
        np.testing.assert_array_equal(data.p, S)


def test_arrays_of_half_precision_are_numbers():
    x, y = jnp.asarray(X, jnp.bfloat16), jnp.asarray(X[:, :2], jnp.bfloat16)
    data, task = make_data(x, y, S)
    np.testing.assert_array_equal(data.x, x.astype(jnp.float32))
    np.testing.assert_array_equal(data.y, y.astype(jnp.float32))
    assert task.num_classes == 0


def test_validation_rows_are_not_trained_on():
    rows = np.arange(0, N, 4)
    data, _ = make_data(X, Y, S, validation_rows=rows)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([data.train_rows, data.validation_rows])), np.arange(N)
    )


def test_encoder_and_predict_take_raw_numpy_rows():
    result = _fit(num_epochs=3)
    z = result.encoder(X[:5])
    assert isinstance(z, np.ndarray)
    assert z.shape == (5, 4)
    scaled = jnp.asarray(result.encoder.scaling.apply(X[:5]))
    np.testing.assert_allclose(z, result.config.networks.private(result.state.params, scaled), rtol=1e-4)
    assert (result.predict(X) == Y).mean() == pytest.approx(result.score(X, Y))


NAN = X.copy()
NAN[17, 2] = np.nan
FLAT_Z = _networks()._replace(private=lambda params, x, **_: x[:, 0])
FLAT_Y = _networks()._replace(public=lambda params, z, **_: z[:, 0])
ERRORS = [
    (dict(x=NAN), ValueError, "x must be finite, but 1 rows .* first is row 17"),
    (dict(x=X[:, 0]), ValueError, r"x must hold rows \[n, ...\]"),
    (dict(x=X[:, :0]), ValueError, r"x must hold rows \[n, ...\]"),
    (dict(x=1e300 * X.astype(float)), ValueError, "x must be finite"),
    (dict(x=X.astype(str)), TypeError, "x must be real numbers"),
    (dict(x=X.astype(complex)), TypeError, "x must be real numbers"),
    (dict(y=Y[:-1]), ValueError, "y must be .* the 120 rows of x"),
    (dict(y=Y - 1), ValueError, "y holds the label -1: number the classes from 0"),
    (dict(y=np.where(Y, "a", "b")), TypeError, "y must be integer labels or reals"),
    (dict(y=0 * Y), ValueError, "y has a single class"),
    (dict(y=np.where(Y, np.nan, 0.0)), ValueError, "y must be finite"),
    (dict(p=0 * S), ValueError, "p has a single class"),
    (dict(p=S - 1), ValueError, "p holds the label -1"),
    (dict(p=S + 2**32), ValueError, "p holds the label 429496729.: number the classes"),
    (dict(p={}), ValueError, "p is an empty dict"),
    (dict(p={"user": 0 * S}), ValueError, r"p\['user'\] has a single class"),
    (dict(p=S[None]), ValueError, "p must be"),
    (dict(weights=-np.ones(N)), ValueError, "weights must be finite, not negative"),
    (dict(weights=np.ones(3)), ValueError, "weights must be one number for each"),
    (dict(train_rows=[0, N]), ValueError, "train_rows must lie between 0 and 119"),
    (dict(validation_rows=[0.5]), ValueError, "validation_rows must be a vector of row numbers"),
    (dict(batch_size=0), ValueError, "batch_size must be at least 1"),
    (dict(objective=None), TypeError, "objective must be a name or an Objective"),
    (dict(networks=FLAT_Z), ValueError, r"networks.private must give a matrix .* got shape \(2,\)"),
    (dict(networks=FLAT_Y), ValueError, r"networks.public must give a matrix"),
    (dict(objective="gan"), ValueError, "objective must be one of mmd, rff_mmd, kdi, wdn, lsdn"),
    (dict(y=3 * Y, networks=_networks()), ValueError, "y holds the label 3, .*num_outputs=4"),
    (dict(y=X[:, :2], networks=_networks(3)), ValueError, "y is continuous with 2 columns"),
    (dict(objective="wdn", networks=_networks()), ValueError, "no discriminator"),
    (
        dict(objective="wdn", networks=_networks(2, 2)),
        ValueError,
        "discriminator with 3 outputs.*num_private=3",
    ),
]


@pytest.mark.parametrize(("wrong", "error", "message"), ERRORS, ids=[e[2][:40] for e in ERRORS])
def test_each_error_names_the_argument_and_the_remedy(wrong, error, message):
    with pytest.raises(error, match=message):
        fit(**{**dict(x=X, y=Y, p=S), **wrong})


NUMBERS = [
    (dict(privacy_weight=-1.0), "privacy_weight must be a finite number, not negative"),
    (dict(privacy_weight=np.nan), "privacy_weight must be"),
    (dict(privacy_weight=None), "privacy_weight must be"),
    (dict(privacy_weight=np.ones(2)), "privacy_weight must be"),
    (dict(private_rate=-1e-3), "private_rate must be"),
    (dict(public_rate=np.inf), "public_rate must be"),
    (dict(private_dropout=-0.1), "private_dropout must be a finite number, between 0 and 1"),
    (dict(public_dropout=1.1), "public_dropout must be"),
    (dict(seed=-1), r"seed must be an integer between 0 and 2\^32 - 1"),
    (dict(seed=2**32), "seed must be"),
    (dict(seed=0.5), "seed must be"),
]


@pytest.mark.parametrize(("wrong", "message"), NUMBERS, ids=[str(n[0]) for n in NUMBERS])
def test_numbers_out_of_range_are_refused(wrong, message):
    _, config = prepare(X, Y, S)
    right = dict(privacy_weight=0, private_rate=0.0, public_dropout=1, seed=np.int64(2**32 - 1))
    numbers = hyperparameters(config.objective, config.task, **right)
    assert int(numbers.seed) == 2**32 - 1
    with pytest.raises(ValueError, match=message):
        hyperparameters(config.objective, config.task, **{**right, **wrong})


def test_a_weight_in_a_dict_is_named():
    _, config = prepare(X, Y, {"user": S, "age": AGE}, objective="kdi")
    with pytest.raises(ValueError, match=r"privacy_weight\['age'\] must be"):
        hyperparameters(config.objective, config.task, privacy_weight={"user": 1.0, "age": -1.0})


def test_no_epochs_at_all_are_refused():
    with pytest.raises(ValueError, match="num_epochs must be at least 1"):
        _fit(num_epochs=0)


def test_kernels_of_arrays_are_refused_and_of_numbers_are_not():
    bandwidth = median_bandwidth(X)
    with pytest.raises(TypeError, match="kernel of an objective must be made of Python numbers"):
        make_objective("mmd", kernel=gaussian(bandwidth))
    kernel = gaussian(float(bandwidth))
    assert make_objective("mmd", kernel=kernel) is make_objective("mmd", kernel=kernel)


def test_unknown_settings_of_an_objective_are_refused():
    with pytest.raises(TypeError, match="mmd does not know"):
        make_objective("mmd", rho=1.0)
    assert make_objective("kdi", rho=1.0) is make_objective("kdi", rho=1.0)
    assert make_objective("kdi", rho=1.0) is not make_objective("kdi", rho=2.0)
