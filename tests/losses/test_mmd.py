"""The multi-class MMD: identities, and mistakes that the comparisons notice."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pandas as pd
import pytest

import privjax

pytestmark = pytest.mark.slow

KERNELS = {
    "mixture": (privjax.gaussian_mixture(), oracles.gaussian_mixture()),
    "laplacian": (privjax.laplacian(2.0), oracles.laplacian(2.0)),
    "polynomial": (privjax.polynomial(4), oracles.polynomial(4)),
}
every_kernel = pytest.mark.parametrize(("kernel", "pair"), KERNELS.values(), ids=KERNELS.keys())


def problem(seed=0, n=14, d=3, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % classes)
    z = rng.normal(size=(n, d)) + 0.5 * labels[:, None]
    return z.astype(np.float32), labels.astype(np.int32)


@every_kernel
def test_two_classes_give_the_binary_statistic(kernel, pair):
    """Eq. multi_MMD with L = 2 is eq. MMD_sq: both classes have the same contrast, N_0/N + N_1/N = 1."""
    z, labels = problem(classes=2)
    want = oracles.binary_mmd(oracles.gram(z, pair), labels)
    np.testing.assert_allclose(privjax.mmd_loss(z, labels, kernel=kernel), want, rtol=1e-5)


@every_kernel
def test_many_classes(kernel, pair):
    z, labels = problem(n=20, classes=6)
    want = oracles.mmd(oracles.gram(z, pair), labels, 6)
    np.testing.assert_allclose(privjax.mmd_loss(z, labels, kernel=kernel), want, rtol=1e-5)


def test_between_class_scatter_is_the_squared_mmd():
    """trace(S_B) = p'Kc p = (N0 N1 / N)^2 MMD^2, p the 0/1 labels."""
    z, labels = problem(classes=2, n=17)
    kc = oracles.centred_gram(oracles.gram(z, oracles.gaussian_mixture()))
    n1 = labels.sum()
    delta = (n1 * (17 - n1) / 17) ** 2
    squared = float(privjax.mmd_loss(z, labels)) ** 2
    np.testing.assert_allclose(labels @ kc @ labels, delta * squared, rtol=1e-4)


def test_two_points_in_closed_form():
    """Two points at distance 2, one of each class: sqrt(2 - 2 k), k = exp(-2) for bandwidth 1."""
    value = privjax.mmd_loss(np.array([[0.0], [2.0]]), np.array([0, 1]), kernel=privjax.gaussian(1.0))
    np.testing.assert_allclose(value, np.sqrt(2 - 2 * np.exp(-2)), rtol=1e-6)


@pytest.mark.parametrize("mistake", ["no root", "unbiased", "absent class clamped", "uniform shares"])
def test_common_mistakes_are_noticed(mistake):
    z, labels = problem()
    classes = 4  # class 3 is absent
    k = oracles.gram(z, oracles.gaussian_mixture()).astype(float)
    terms = oracles.mmd_terms(k, labels, classes)
    n = len(z)
    wrong = {
        "no root": lambda: sum(share * square for share, square in terms),
        "unbiased": lambda: sum(
            share * max(unbiased(k, labels == c), 0) ** 0.5 for c, (share, _) in enumerate(terms)
        ),
        # N_l clamped to 1: the absent class adds the mean kernel of all rows, here with share 1/N.
        "absent class clamped": lambda: oracles.mmd(k, labels, classes) + k.mean() ** 0.5 / n,
        "uniform shares": lambda: sum(square**0.5 for _, square in terms) / classes,
    }[mistake]()
    value = privjax.mmd_loss(z, labels, num_classes=classes)
    np.testing.assert_allclose(value, oracles.mmd(k, labels, classes), rtol=1e-5)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(value, wrong, rtol=1e-3)


def unbiased(k, own):
    """Without the diagonal: the estimate that the paper rejects."""
    m, rest = own.sum(), (~own).sum()
    a, b = k[np.ix_(own, own)], k[np.ix_(~own, ~own)]
    square = (a.sum() - np.trace(a)) / (m * (m - 1)) + (b.sum() - np.trace(b)) / (rest * (rest - 1))
    return square - 2 * k[np.ix_(own, ~own)].mean()


def test_equal_distributions_give_zero_with_a_zero_gradient():
    z, _ = problem(n=6)
    z, labels = np.concatenate([z, z, z]), np.repeat([0, 1, 2], 6)
    value, gradient = jax.value_and_grad(lambda z: privjax.mmd_loss(z, labels, num_classes=3))(z)
    assert value <= 1e-3  # root of a rounding error
    assert np.isfinite(gradient).all()
    apart = z + labels[:, None].astype(np.float32)
    assert privjax.mmd_loss(apart, labels) > 0.1


def test_gradient_descent_merges_the_classes():
    z, labels = problem(n=30, classes=3)
    loss = jax.jit(jax.value_and_grad(lambda z: privjax.mmd_loss(z, labels, num_classes=3)))
    first = float(loss(z)[0])
    for _ in range(60):
        z = z - 2.0 * loss(z)[1]
    assert float(loss(z)[0]) < 0.5 * first


def test_a_polynomial_compares_moments_up_to_its_order():
    """Equal mean and variance but different fourth moments: order 2 does not see it, order 4 does."""
    a = np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    b = np.array([-2.0, 2.0, 0, 0, 0, 0, 0, 0])
    z, labels = np.concatenate([a, b])[:, None], np.repeat([0, 1], 8)
    assert a.var() == b.var()
    second = privjax.mmd_loss(z, labels, kernel=privjax.polynomial(2))
    fourth = privjax.mmd_loss(z, labels, kernel=privjax.polynomial(4))
    assert second < 2e-2
    np.testing.assert_allclose(
        fourth, oracles.binary_mmd(oracles.gram(z, oracles.polynomial(4)), labels), rtol=1e-5
    )
    assert fourth > 1


@pytest.mark.parametrize("d", [3, 40])
@pytest.mark.parametrize("shift", [100.0, 1e4])
def test_a_shift_changes_nothing(d, shift):
    z, labels = problem(d=d, n=16)
    moved = (z + np.float32(shift)).astype(np.float32)
    want = oracles.mmd(oracles.gram(moved, oracles.gaussian_mixture()), labels, 3)
    np.testing.assert_allclose(privjax.mmd_loss(moved, labels), want, rtol=2e-4)


@pytest.mark.parametrize("d", [3, 40])
@pytest.mark.parametrize("gap", [1e2, 1e4, 1e6])
def test_duplicates_far_apart(d, gap):
    """Two sets of equal rows: all kernel values are 1 or 0, so the value is known at any distance."""
    z = np.zeros((12, d), np.float32)
    z[6:] = gap
    for labels, want in ((np.repeat([0, 1], 6), 2**0.5), (np.arange(12) % 2, 0.0)):
        value, gradient = jax.value_and_grad(
            lambda z, labels=labels: privjax.mmd_loss(z, labels, num_classes=2)
        )(z)
        np.testing.assert_allclose(value, want, atol=1e-5)
        np.testing.assert_allclose(gradient, 0, atol=1e-6)


@pytest.mark.parametrize("gap", [1e2, 1e4])
def test_tight_clusters_far_apart_in_wide_rows(gap):
    """Distances within a cluster are a millionth of the rows: a product of rows would round them away."""
    rng = np.random.default_rng(0)
    z = (0.3 * rng.normal(size=(24, 20)) + gap * (np.arange(24) % 3)[:, None]).astype(np.float32)
    labels = rng.integers(0, 2, 24)
    want = oracles.mmd(oracles.gram(z, oracles.gaussian_mixture()), labels, 2)
    np.testing.assert_allclose(privjax.mmd_loss(z, labels), want, rtol=1e-4)


def test_cost_and_value_do_not_depend_on_empty_classes():
    z, labels = problem()
    few = privjax.mmd_loss(z, labels, num_classes=3)
    many = privjax.mmd_loss(z, labels, num_classes=1000)
    np.testing.assert_allclose(few, many, rtol=1e-6)


def test_gradient_in_the_weights():
    z, labels = problem()
    weights = np.random.default_rng(1).uniform(0.5, 2, len(z))
    k = oracles.gram(z, oracles.gaussian_mixture())
    want = oracles.central_differences(lambda w: oracles.mmd(k, labels, 3, w), weights)
    with jax.enable_x64(True):
        got = jax.grad(lambda w: privjax.mmd_loss(jnp.asarray(z, float), labels, num_classes=3, weights=w))(
            jnp.asarray(weights)
        )
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


def test_one_hot_and_labels_agree():
    z, labels = problem()
    p = oracles.one_hot(labels, 3)
    np.testing.assert_array_equal(privjax.mmd_loss(z, labels), privjax.mmd_loss(z, p))


@pytest.mark.parametrize(("dtype", "count"), [(np.uint8, 256), (np.int8, 128), (np.uint8, 300)])
def test_labels_of_a_byte(dtype, count):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, min(count, np.iinfo(dtype).max + 1), 256)
    z = rng.normal(size=(256, 2)).astype(np.float32)
    loss = jax.jit(lambda p: privjax.mmd_loss(z, p, num_classes=count))
    assert loss(labels.astype(dtype)) == loss(labels.astype(np.int32)) > 0
    assert privjax.mmd_loss(z, labels.astype(dtype), num_classes=count) > 0


@pytest.mark.parametrize("bandwidths", [(1, 8, 64, 512, 4096), tuple(2.0 ** np.arange(11))])
def test_gradients_of_long_ladders(bandwidths):
    z, labels = problem(n=60, d=5)
    gradient = jax.grad(
        lambda z: privjax.mmd_loss(z, labels, num_classes=3, kernel=privjax.gaussian_mixture(bandwidths))
    )
    with jax.enable_x64(True):
        want = np.asarray(gradient(z.astype(np.float64)))
    assert np.linalg.norm(gradient(jnp.asarray(z)) - want) < 1e-4 * np.linalg.norm(want)


@pytest.mark.parametrize("kernel", [privjax.gaussian, privjax.laplacian])
@pytest.mark.parametrize("bandwidth", [1e-20, 1e-200])
def test_bandwidths_below_any_distance(kernel, bandwidth):
    z, labels = problem()
    value, gradient = jax.value_and_grad(
        lambda z: privjax.mmd_loss(z, labels, num_classes=3, kernel=kernel(bandwidth))
    )(jnp.asarray(z))
    apart = oracles.mmd(np.eye(len(z)), labels, 3)
    np.testing.assert_allclose(value, float(apart), rtol=1e-4)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(("classes", "rare"), [(2, 1), (2, 30), (3, 2), (3, 12), (5, 20), (5, 70)])
def test_a_class_of_nearly_all_rows(classes, rare):
    """N / M, with the few rows M of the other classes, must not multiply the rounding."""
    n = 1300
    rng = np.random.default_rng(3)
    z = (0.1 * rng.normal(size=(n, 4))).astype(np.float32)
    labels = np.zeros(n, np.int32)
    labels[rng.permutation(n)[:rare]] = 1 + np.arange(rare) % (classes - 1)
    u = np.stack(
        [(labels == c) / (labels == c).sum() - (labels != c) / (labels != c).sum() for c in range(classes)]
    )
    share = np.bincount(labels) / n
    rows = z.astype(np.float64)
    scales = (1, 2, 4, 8, 16)

    def value_and_gradient(rows):
        d2 = ((rows[:, None] - rows[None]) ** 2).sum(-1)
        k = sum(np.exp(-d2 / (2 * s * s)) for s in scales) / 5
        slope = sum(-np.exp(-d2 / (2 * s * s)) / (s * s) for s in scales) / 5
        each = np.sqrt(np.einsum("ci,ij,cj->c", u, k, u))
        pull = np.einsum("c,ci,cj->ij", share / (2 * each), u, u) * slope
        return share @ each, 2 * (pull.sum(1)[:, None] * rows - pull @ rows)

    value, gradient = value_and_gradient(rows)
    found, slope = jax.value_and_grad(lambda z: privjax.mmd_loss(z, labels, num_classes=classes))(z)
    np.testing.assert_allclose(found, value, rtol=2e-5)
    assert np.linalg.norm(slope - gradient) < 1e-3 * np.linalg.norm(gradient)
    # Weights can make a class of many rows small too.
    weights = np.where(np.arange(n) % 2, 1.0, 1e-5)
    halves = (np.arange(n) % 2).astype(np.int32)
    z = z + 0.1 * halves[:, None].astype(np.float32)
    weighted = privjax.mmd_loss(z, halves, weights=weights)
    np.testing.assert_allclose(weighted, privjax.mmd_loss(z, halves), rtol=1e-4)


@pytest.mark.parametrize("loss", ["mmd_loss", "kdi_loss"])
@pytest.mark.parametrize(
    "kernel", [privjax.gaussian_mixture(), privjax.median_gaussian()], ids=["fixed", "median"]
)
def test_shard_map_without_weights(loss, kernel):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("member",))
    spec = jax.sharding.PartitionSpec("member")
    z, labels = problem(n=130)

    def gradient(z, labels):
        return jax.grad(lambda z: getattr(privjax, loss)(z, labels, num_classes=3, kernel=kernel))(z)

    def shard(z, labels):
        return gradient(z[0], labels[0])[None]

    got = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=spec, out_specs=spec))(z[None], labels[None])
    want = gradient(z, labels)
    # The gradient of KDI is ill-conditioned, and programs compiled differently round differently.
    np.testing.assert_allclose(got[0], want, atol=(1e-2 if loss == "kdi_loss" else 1e-4) * np.abs(want).max())


@pytest.mark.parametrize(
    ("p", "error", "message"),
    [
        (
            np.array(list("aabbcc")),
            TypeError,
            "p must hold numbers, got <U1: make names numbers with np.unique",
        ),
        (np.array(["a", 1] * 3, object), TypeError, "p must hold numbers, got object"),
        (pd.Series([0, 1, 2**32] * 2), ValueError, "number the classes from 0"),
    ],
    ids=["text", "objects", "long"],
)
def test_labels_that_are_no_numbers_are_named(p, error, message):
    with pytest.raises(error, match=message):
        privjax.mmd_loss(np.ones((6, 2), np.float32), p)
    table = pd.Series([0, 1, 2] * 2)
    z = np.arange(12, dtype=np.float32).reshape(6, 2)
    assert privjax.mmd_loss(z, table) == privjax.mmd_loss(z, table.to_numpy())
