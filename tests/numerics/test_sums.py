"""The centred kernel matrix and blocked sums over pairs against dense formulas: values, gradients, memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import privjax
from privjax.losses import mmd
from privjax.numerics import sums

pytestmark = pytest.mark.slow

KERNELS = {
    "mixture": (privjax.gaussian_mixture((1, 2)), oracles.gaussian_mixture((1, 2))),
    "laplacian": (privjax.laplacian(1.5), oracles.laplacian(1.5)),
    "polynomial": (privjax.polynomial(3, gamma=0.2), oracles.polynomial(3, 0.2)),
    "both": (
        privjax.mixture(privjax.gaussian(1.0), privjax.polynomial(2, gamma=0.5)),
        oracles.mixture([oracles.gaussian(1.0), oracles.polynomial(2, 0.5)], [0.5, 0.5]),
    ),
}


# ---- The dense matrix -------------------------------------------------------------------------------


def shared_problem(d, n=14):
    rng = np.random.default_rng(0)
    share = rng.integers(0, 4, n).astype(float)
    return rng.normal(size=(n, d)), share / share.sum(), rng.normal(size=(n, 3))


def centred(k, share):
    c = np.eye(len(k)) - share[None, :]
    return c @ k @ c.T


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("name", KERNELS)
def test_centred_gram_and_gradient(name, d):
    """Against the oracle's matrix, and against differences of b' K b along random directions."""
    kernel, pair = KERNELS[name]
    z, share, b = shared_problem(d)
    form = lambda z: np.trace(b.T @ oracles.gram(z, pair).astype(float) @ b)  # noqa: E731
    with jax.enable_x64(True):
        k = jax.jit(functools.partial(sums.centred_gram, terms=kernel.terms))(z, share)[0]
        np.testing.assert_allclose(k, centred(oracles.gram(z, pair).astype(float), share), atol=1e-12)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(k, centred(oracles.gram(z, pair).astype(float), 0 * share), atol=1e-12)
        pull = jax.jit(functools.partial(sums.quadratic_gradient, terms=kernel.terms))
        gradient = np.asarray(pull(z, b, 0 * b))
    for seed in range(4):
        direction = np.random.default_rng(seed).normal(size=z.shape)
        slope = oracles.central_differences(lambda t, u=direction: form(z + t[0] * u), np.zeros(1))[0]
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-7)


def test_an_entry_of_the_centred_gram_rounds_about_once():
    """A kernel near one, whose centred entries are small: plain float32 sums round at the size of k."""
    z = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    share = np.full(300, 1 / 300, np.float32)
    kernel = privjax.gaussian_mixture()
    d2 = ((z[:, None].astype(float) - z[None]) ** 2).sum(-1)
    exact = centred(sum(np.expm1(-d2 / (2 * s * s)) for s in (1, 2, 4, 8, 16)) / 5, np.full(300, 1 / 300))
    error = lambda k: np.sqrt(np.mean((np.asarray(k, float) - exact) ** 2))  # noqa: E731
    compensated = error(jax.jit(functools.partial(sums.centred_gram, terms=kernel.terms))(z, share)[0])
    k = jnp.asarray(kernel(z))
    plain = k - k.mean(0, keepdims=True) - k.mean(1, keepdims=True) + k.mean()
    assert compensated < 1e-8
    assert error(plain) > 3 * compensated


@pytest.mark.parametrize("n", [300, 2000])
def test_exact_product_of_terms_that_cancel(n):
    rng = np.random.default_rng(0)
    k = rng.normal(size=(50, n)).astype(np.float32)
    a = rng.normal(size=(n, 4))
    a = 1e4 * (a - np.linalg.pinv(k.astype(float)) @ (k @ a))  # k a = 0 but for rounding
    high = a.astype(np.float32)
    low = (a - high).astype(np.float32)
    want = k.astype(float) @ a
    error = np.abs(np.asarray(jax.jit(sums.exact_product)(k, high, low)) - want).max()
    plain = np.abs(np.asarray(jnp.matmul(k, high, precision="highest")) - want).max()
    assert plain > 30 * error
    without_low = np.abs(np.asarray(jax.jit(sums.exact_product)(k, high, 0 * low)) - want).max()
    assert without_low > 2 * error


# ---- Blocked sums -----------------------------------------------------------------------------------

# n, BLOCK, COLUMNS: one block; several; several column groups; groups that do not divide the blocks.
GRIDS = [(40, 512, 8192), (41, 8, 8192), (83, 8, 24), (57, 16, 16)]
MORE_GRIDS = [*GRIDS, (64, 8, 8), (90, 8, 40), (512, 512, 8192), (513, 512, 8192), (1537, 512, 1024)]


def problem(n, d=3, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, d))
    w = rng.integers(0, 4, n) / 2
    return z, w, rng.integers(0, classes, n).astype(np.int32)


def dense(z, w, s, pair):
    """r_i = sum_j K_ij w_j and c_i = sum_{j: s_j = s_i} K_ij w_j, K less its value for a zero row."""
    zero = np.zeros(z.shape[1], oracles.WIDE)
    k = oracles.gram(z, pair) - pair(zero, zero)
    same = s[:, None] == s[None, :]
    return (k @ w).astype(float), ((k * same) @ w).astype(float)


@pytest.fixture
def small_blocks(monkeypatch):
    def use(block, columns):
        monkeypatch.setattr(sums, "BLOCK", block)
        monkeypatch.setattr(sums, "COLUMNS", columns)

    yield use
    mmd._mmd.clear_cache()  # the sizes are not part of what jit keys on


@pytest.mark.parametrize(("n", "block", "columns"), MORE_GRIDS)
def test_grid_meets_every_pair_once(n, block, columns, small_blocks):
    """Count the visits of each pair of blocks: block I meets I, I + 1, ..., half of the cycle."""
    small_blocks(block, columns)
    blocks, size, span, groups = sums._grid(n)
    assert (blocks == 1) == (n <= block)
    assert blocks % 2 == 1
    assert blocks * size >= n
    assert groups * span >= (blocks + 1) // 2
    seen = np.zeros((blocks, blocks), int)
    for first in range(blocks):
        for step in range((blocks + 1) // 2):
            second = (first + step) % blocks
            seen[first, second] += 1
            seen[second, first] += first != second
    assert (seen == 1).all()


@pytest.mark.parametrize(
    ("name", "n", "block", "columns"),
    [("mixture", *grid) for grid in GRIDS] + [(name, 83, 8, 24) for name in KERNELS if name != "mixture"],
)
def test_sums_and_gradients_equal_the_dense_ones(name, n, block, columns, small_blocks):
    kernel, pair = KERNELS[name]
    small_blocks(block, columns)
    z, w, s = problem(n)
    with jax.enable_x64(True):
        z, w, s = map(jnp.asarray, (z, w, s))
        # Cotangents apart from the sums: a and b are any vectors.
        a, b = np.sin(np.arange(n)), np.cos(2 * np.arange(n))

        @jax.jit
        def blocked(z, w):
            found, pull = jax.vjp(lambda z, w: sums.pair_sums(z, w, s, kernel.terms), z, w)
            return found, pull((jnp.asarray(a), jnp.asarray(b)))

        (r, c), (z_bar, w_bar) = blocked(z, w)
        want_r, want_c = dense(np.asarray(z), np.asarray(w), np.asarray(s), pair)
        np.testing.assert_allclose(r, want_r, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(c, want_c, rtol=1e-10, atol=1e-10)

        def plain(z, w):
            k = full(kernel, z)
            same = s[:, None] == s[None, :]
            return a @ (k @ w) + b @ (jnp.where(same, k, 0) @ w)

        want_z, want_w = jax.jit(jax.grad(plain, (0, 1)))(z, w)
    np.testing.assert_allclose(z_bar, want_z, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(w_bar, want_w, rtol=1e-8, atol=1e-9)
    with pytest.raises(AssertionError):  # the comparison notices a missing class term
        np.testing.assert_allclose(c, want_r, rtol=1e-10, atol=1e-10)


def full(kernel, z):
    """Compute the dense matrix by differentiable formulas that share no code with the library."""
    difference = z[:, None] - z[None]
    d2 = (difference**2).sum(-1)
    total = jnp.zeros_like(d2)
    for term in kernel.terms:
        if term.kind == "gaussian":
            total += term.weight * (jnp.exp(-d2 / (2 * term.scale**2)) - 1)
        elif term.kind == "laplacian":
            r = jnp.sqrt(jnp.where(d2 == 0, 1, d2))
            total += term.weight * jnp.where(d2 == 0, 0, jnp.exp(-r / term.scale) - 1)
        else:
            total += term.weight * ((1 + term.scale * (z @ z.T)) ** term.order - 1)
    return total


@pytest.mark.parametrize(("name", "d"), [("mixture", 3), ("mixture", 20), ("both", 4)])
def test_blocked_loss_equals_the_oracle(name, d, small_blocks):
    """The loss in float32 over several blocks and column groups; gradient in z and in the weights."""
    small_blocks(16, 32)
    kernel, pair = KERNELS[name]
    n = 70 + d
    z, w, s = problem(n, d)
    z32 = z.astype(np.float32)
    loss = functools.partial(privjax.mmd_loss, kernel=kernel, num_classes=4)
    value, (z_bar, w_bar) = jax.value_and_grad(lambda z, w: loss(z, s, weights=w), (0, 1))(
        z32, w.astype(np.float32)
    )
    k = oracles.gram(z32, pair)
    np.testing.assert_allclose(value, oracles.mmd(k, s, 4, w), rtol=2e-5)
    valid = w > 0  # a row of weight zero gets no gradient either
    assert not np.asarray(w_bar)[~valid].any()
    want = np.array([weight_slope(k, s, w, i) if valid[i] else 0 for i in range(n)])
    np.testing.assert_allclose(w_bar, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())
    with jax.enable_x64(True):

        def plain(z):
            k, total = full(kernel, z), w.sum()
            value = 0.0
            for label in range(4):
                p = w * (s == label)
                u = p / p.sum() - (w - p) / (w - p).sum()
                value += p.sum() / total * jnp.sqrt(u @ k @ u)
            return value

        want = jax.jit(jax.grad(plain))(jnp.asarray(z32, jnp.float64))
    assert np.linalg.norm(np.asarray(z_bar) - np.asarray(want)) <= 1e-4 * np.linalg.norm(want)


def weight_slope(k, s, w, i, step=1e-5):
    above, below = w.copy(), w.copy()
    above[i] += step
    below[i] -= step
    return (oracles.mmd(k, s, 4, above) - oracles.mmd(k, s, 4, below)) / (2 * step)


def test_default_block_sizes():
    """n = 900 with the default block sizes: value against the dense float64 formula."""
    n, d = 900, 5
    assert sums._grid(n)[0] > 1
    z, w, s = problem(n, d, classes=7)
    z32, w32 = z.astype(np.float32), w.astype(np.float32)
    loss = jax.value_and_grad(lambda z: privjax.mmd_loss(z, s, num_classes=7, weights=w32))
    value, gradient = loss(z32)
    exact = z32.astype(float)
    d2 = ((exact[:, None] - exact[None]) ** 2).sum(-1)
    k = sum(np.exp(-d2 / (2 * sigma**2)) for sigma in (1, 2, 4, 8, 16)) / 5
    np.testing.assert_allclose(value, oracles.mmd(k, s, 7, w), rtol=2e-5)
    # A step of the size h along the gradient changes the loss by h |gradient|^2.
    step = 1e-3 * gradient / np.linalg.norm(gradient)
    slope = (loss(z32 + step)[0] - loss(z32 - step)[0]) / 2e-3
    np.testing.assert_allclose(slope, np.linalg.norm(gradient), rtol=2e-2)


def largest_squares(jaxpr, n):
    """List the shapes in a jaxpr, and in all that it calls, with two dimensions of n or more."""
    found = []
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            shape = getattr(variable.aval, "shape", ())
            if sum(size >= n for size in shape) >= 2:
                found.append(shape)
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                found += largest_squares(inner, n)
    return found


@pytest.mark.parametrize("d", [3, 30])
@pytest.mark.parametrize("kernel", [privjax.gaussian_mixture(), privjax.polynomial(4)], ids=["radial", "dot"])
def test_no_array_is_n_by_n(kernel, d):
    n = 9000
    z = jax.ShapeDtypeStruct((n, d), np.float32)
    s = jax.ShapeDtypeStruct((n,), np.int32)
    w = jax.ShapeDtypeStruct((n,), np.float32)
    loss = jax.value_and_grad(
        lambda z, s, w: privjax.mmd_loss(z, s, kernel=kernel, num_classes=1000, weights=w), (0, 2)
    )
    compiled = jax.jit(loss).trace(z, s, w)
    assert not largest_squares(compiled.jaxpr.jaxpr, n)
    # The search enters jit, custom rules and loops: it finds the matrix of KDI.
    dense_loss = jax.jit(jax.grad(lambda z, s: privjax.kdi_loss(z, s, num_classes=3))).trace(z, s)
    assert (n, n) in largest_squares(dense_loss.jaxpr.jaxpr, n)


def test_memory_of_many_rows_is_bounded():
    """Memory that XLA plans for n = 20,000 and d = 50: two n x n matrices would take 3.2 GB."""
    n, d = 20_000, 50
    loss = jax.grad(lambda z, s: privjax.mmd_loss(z, s, num_classes=10))
    plan = jax.jit(loss).lower(jax.ShapeDtypeStruct((n, d), np.float32), jax.ShapeDtypeStruct((n,), np.int32))
    held = plan.compile().memory_analysis()
    assert held.temp_size_in_bytes < 300e6


def test_vmap_of_blocked_losses(small_blocks):
    small_blocks(8, 16)
    z = np.random.default_rng(0).normal(size=(3, 45, 3)).astype(np.float32)
    s = (np.arange(45) % 3).astype(np.int32)
    one = jax.value_and_grad(lambda z: privjax.mmd_loss(z, s, num_classes=3))
    values, gradients = jax.jit(jax.vmap(one))(z)
    for i in range(3):
        value, gradient = one(z[i])
        np.testing.assert_allclose(values[i], value, rtol=1e-5)
        np.testing.assert_allclose(gradients[i], gradient, rtol=1e-4, atol=1e-6)


def test_blocked_loss_under_shard_map(small_blocks):
    small_blocks(8, 16)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("member",))
    spec = jax.sharding.PartitionSpec("member")
    z = np.random.default_rng(0).normal(size=(1, 47, 3)).astype(np.float32)
    s = (np.arange(47) % 3).astype(np.int32)
    one = jax.value_and_grad(lambda z: privjax.mmd_loss(z, s, num_classes=3))

    def shard(z):
        value, gradient = one(z[0])
        return value[None], gradient[None]

    value, gradient = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=spec, out_specs=spec))(z)
    np.testing.assert_allclose(value[0], one(z[0])[0], rtol=1e-6)
    np.testing.assert_allclose(gradient[0], one(z[0])[1], rtol=1e-5, atol=1e-7)


def test_padding_across_blocks_changes_no_bit(small_blocks):
    small_blocks(8, 16)
    z, w, s = problem(53, 20)
    z, w = z.astype(np.float32), w.astype(np.float32)
    loss = jax.jit(jax.value_and_grad(lambda z, s, w: privjax.mmd_loss(z, s, num_classes=4, weights=w)))
    value, gradient = loss(z, s, w)
    junk, wrong = z.copy(), s.copy()
    junk[w == 0], wrong[w == 0] = np.nan, 99
    other = loss(junk, wrong, w)
    np.testing.assert_array_equal(np.asarray(other[0]), np.asarray(value))
    np.testing.assert_array_equal(np.asarray(other[1]), np.asarray(gradient))
