"""The contract of the objectives: one table, and the batches on which it is tested.

A result is right, or NaN for invalid input; it is never silently wrong. `tests/losses/test_contract_*.py`
test values and gradients, rows and classes, transformations, and arguments of every row of the table.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import privjax

N, CLASSES, NARROW, WIDE = 12, 4, 3, 20  # few shapes, so few compilations
ALL = tuple(range(CLASSES))
EPS = float(np.finfo(np.float32).eps)
TINY = 1e-16  # rounding of a zero by an oracle
RHO = 1e-2  # of the linear form, which has no default


# ---- The table --------------------------------------------------------------------------------------


class Objective(NamedTuple):
    """A row of the table. `call(z, p, weights, keep)` has the classes (critic outputs) in `keep`."""

    name: str
    call: Callable[..., Any]
    oracle: Callable[..., float]  # (z, labels, weights) -> value
    tolerance: Callable[..., float]  # (z, labels, weights) -> absolute error allowed in float32
    needs_classes: bool = True  # p must be labels or one-hot
    data_scale: bool = False  # has a bandwidth from the rows, which a repeated row changes


def critic_params(d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "tanh": rng.normal(size=(d, CLASSES)) / d**0.5,
        "linear": rng.normal(size=(d, CLASSES)) / d**0.5,
        "bias": rng.normal(size=CLASSES),
    }


def make_critic(d: int, keep=ALL):
    params = {k: v[..., list(keep)] for k, v in critic_params(d).items()}

    def critic(z):
        tanh, linear, bias = (jnp.asarray(params[k], z.dtype) for k in ("tanh", "linear", "bias"))
        return jnp.tanh(z) @ tanh + z @ linear + bias[None, :]

    return critic


@functools.cache
def fourier(d: int):
    """Draw features in float32 in any mode of a test, and outside of any trace."""
    with jax.enable_x64(False), jax.ensure_compile_time_eval():
        drawn = privjax.random_fourier_features(
            jax.random.key(3), d, num_features=40, kernel=privjax.gaussian_mixture()
        )
        return privjax.FourierFeatures(np.asarray(drawn.frequencies), np.asarray(drawn.phases))


def once_per_batch(function):
    """Keep the result of a slow loop over pairs of rows for the latest batch."""
    kept = {}

    def call(z, labels, w):
        key = tuple((a.shape, a.dtype.str, a.tobytes()) for a in map(np.asarray, (z, labels, w)))
        if key not in kept:
            kept.clear()
            kept[key] = function(z, labels, w)
        return kept[key]

    return call


def mmd_row(name, kernel, pair_kernel, **traits) -> Objective:
    @once_per_batch
    def gram(z, labels, w):
        return oracles.gram(z, pair_kernel(z, w))

    def tolerance(z, labels, w):
        k = gram(z, labels, w)
        valid = np.asarray(w) > 0
        # The kernel is summed less its value at zero: that difference sets the rounding.
        spread = float(np.abs(k - 1)[np.ix_(valid, valid)].max(initial=0))
        error = 40 * EPS * spread
        if z.shape[1] > 16 and name != "mmd_polynomial":
            # Distances of wide rows come from products: they round with the rows, not with the distance.
            rows = np.asarray(z, float)[valid]
            size = ((rows - rows.mean(0)) ** 2).sum(1).max() if valid.any() else 0.0
            steep = 0.2 * sum(0.5 / s**2 for s in (1, 2, 4, 8, 16)) if name == "mmd" else 1.0
            error += min(spread, 4 * steep * z.shape[1] ** 0.5 * EPS * 2 * size)
        return 2e-5 * oracles.mmd(k, labels, CLASSES, w) + oracles.mmd_tolerance(k, labels, CLASSES, w, error)

    return Objective(
        name,
        lambda z, p, w, keep=ALL: privjax.mmd_loss(z, p, kernel=kernel, num_classes=len(keep), weights=w),
        lambda z, labels, w: oracles.mmd(gram(z, labels, w), labels, CLASSES, w),
        tolerance,
        **traits,
    )


@once_per_batch
def rff_oracle(z, labels, w):
    return oracles.rff_mmd(z, labels, CLASSES, *fourier(z.shape[1]), w)


def rff_tolerance(z, labels, w):
    """An angle z'w rounds with the size of its products."""
    rows = np.abs(np.asarray(z, float)[np.asarray(w) > 0])
    angles = (rows @ np.abs(np.asarray(fourier(z.shape[1]).frequencies, float))).max(initial=0)
    return 1e-4 * rff_oracle(z, labels, w) + 4 * EPS * min(angles, 1 / EPS)


def kdi_row(name, kernel, pair_kernel, rho=1e-4, **traits) -> Objective:
    @once_per_batch
    def oracle(z, labels, w):
        k = oracles.gram(z, pair_kernel(z, w))
        return oracles.weighted_kdi(k, oracles.one_hot(labels, CLASSES), rho, w)

    return Objective(
        name,
        lambda z, p, w, keep=ALL: privjax.kdi_loss(
            z, p, kernel=kernel, rho=rho, num_classes=len(keep), weights=w
        ),
        oracle,
        lambda z, labels, w: 5e-3 * oracle(z, labels, w) + 2e-5 * total_square(labels, w) + centring(labels),
        needs_classes=False,
        **traits,
    )


def centring(labels) -> float:
    """Rounding of the squared indicator of a single class after centring."""
    return len(labels) * float(np.finfo(np.float32).eps) ** 2


def total_square(labels, w) -> float:
    """|C P|^2, the most a regression can explain."""
    rows = oracles.repeated(w)
    if len(rows) == 0:
        return 0.0
    p = oracles.one_hot(labels, CLASSES)[rows]
    return 0.25 * ((p - p.mean(0)) ** 2).sum()


@once_per_batch
def di_oracle(z, labels, w):
    rows = oracles.repeated(w)
    if len(rows) == 0:
        return 0.0
    p = oracles.one_hot(labels, CLASSES)
    return 0.25 * oracles.discriminant_information_by_svd(np.asarray(z, float)[rows], p[rows], RHO / 0.25)


def scores_of(z, w):
    z = np.where((np.asarray(w) > 0)[:, None], np.asarray(z, float), 0)
    return oracles.critic_scores(z, critic_params(z.shape[1]))


def score_size(z, w) -> float:
    """The largest summands of a score, which set its rounding."""
    params = critic_params(z.shape[1])
    z = np.where((np.asarray(w) > 0)[:, None], np.abs(np.asarray(z, float)), 0)
    return float((z @ np.abs(params["linear"])).max() + np.abs(params["tanh"]).sum(0).max() + 3)


def lsdn_row(name, function, privacy) -> Objective:
    return Objective(
        name,
        lambda z, p, w, keep=ALL: function(z, p, make_critic(z.shape[-1], keep), weights=w),
        lambda z, labels, w: oracles.lsdn(
            scores_of(z, w), oracles.one_hot(labels, CLASSES), privacy=privacy, weights=w
        ),
        lambda z, labels, w: 1e-5 * score_size(z, w) ** 2,
        needs_classes=False,
    )


def median_pair_kernel(z, w):
    sigma = oracles.median_distance(z, np.asarray(w) > 0)
    return oracles.gaussian_mixture([0.5 * sigma, sigma, 2 * sigma])


TABLE = {
    row.name: row
    for row in (
        mmd_row("mmd", privjax.gaussian_mixture(), lambda z, w: oracles.gaussian_mixture()),
        mmd_row("mmd_laplacian", privjax.laplacian(2.0), lambda z, w: oracles.laplacian(2.0)),
        mmd_row("mmd_polynomial", privjax.polynomial(4, gamma=0.5), lambda z, w: oracles.polynomial(4, 0.5)),
        mmd_row("mmd_median", privjax.median_gaussian((0.5, 1.0, 2.0)), median_pair_kernel, data_scale=True),
        Objective(
            "rff_mmd",
            lambda z, p, w, keep=ALL: privjax.rff_mmd_loss(
                z, p, features=fourier(z.shape[-1]), num_classes=len(keep), weights=w
            ),
            rff_oracle,
            rff_tolerance,
        ),
        kdi_row("kdi", privjax.gaussian_mixture(), lambda z, w: oracles.gaussian_mixture()),
        kdi_row("kdi_median", privjax.median_gaussian((0.5, 1.0, 2.0)), median_pair_kernel, data_scale=True),
        Objective(
            "wdn_privacy",
            lambda z, p, w, keep=ALL: privjax.wdn_privacy_loss(
                z, p, make_critic(z.shape[-1], keep), weights=w
            ),
            lambda z, labels, w: -oracles.wdn_contrast(scores_of(z, w), labels, w),
            lambda z, labels, w: 1e-5 * score_size(z, w),
        ),
        Objective(
            "wdn_discriminator",
            lambda z, p, w, keep=ALL: privjax.wdn_discriminator_loss(
                z, p, make_critic(z.shape[-1], keep), weights=w
            ),
            lambda z, labels, w: oracles.wdn_discriminator(
                np.where((np.asarray(w) > 0)[:, None], np.asarray(z, float), 0),
                labels,
                critic_params(z.shape[1]),
                weights=w,
            ),
            lambda z, labels, w: 1e-5 * score_size(z, w) + 1e-4,
        ),
        lsdn_row("lsdn_privacy", privjax.lsdn_privacy_loss, True),
        lsdn_row("lsdn_discriminator", privjax.lsdn_discriminator_loss, False),
        Objective(
            "discriminant_information",
            lambda z, p, w, keep=ALL: privjax.discriminant_information(
                z, p, rho=RHO, num_classes=len(keep), weights=w
            ),
            di_oracle,
            lambda z, labels, w: 5e-3 * di_oracle(z, labels, w) + 1e-4 * total_square(labels, w),
            needs_classes=False,
        ),
    )
}
every_objective = pytest.mark.parametrize("objective", TABLE.values(), ids=TABLE.keys())
# The width of rows matters to distances, products and factorisations, not to a critic.
every_width = pytest.mark.parametrize(
    ("objective", "d"),
    [pytest.param(row, NARROW, id=f"{row.name}-narrow") for row in TABLE.values()]
    + [
        pytest.param(TABLE[name], WIDE, id=f"{name}-wide")
        for name in ("mmd", "mmd_polynomial", "mmd_median", "rff_mmd", "kdi", "discriminant_information")
    ],
)


# Kernels of one loss share their code: tests that are not about values use one of them.
VARIANTS = ("mmd_laplacian", "mmd_polynomial", "mmd_median", "kdi_median")
FUNCTIONS = [row for row in TABLE.values() if row.name not in VARIANTS]
every_function = pytest.mark.parametrize("objective", FUNCTIONS, ids=[row.name for row in FUNCTIONS])
TRACES: list[str] = []


@functools.cache
def compiled(name: str, keep=ALL):
    """Value and gradient in z, jitted with every argument an array."""

    def loss(z, p, w):
        TRACES.append(name)
        return TABLE[name].call(z, p, w, keep)

    return jax.jit(jax.value_and_grad(loss))


def eager(name: str, z, p, w, keep=ALL):
    """The same without the outer jit: all dtypes and forms of p share the objective's inner jit."""
    return jax.value_and_grad(lambda z: TABLE[name].call(z, p, w, keep))(jnp.asarray(z))


# ---- Batches ----------------------------------------------------------------------------------------


class Batch(NamedTuple):
    z: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


@st.composite
def batches(draw, d: int, *, weighted: bool = True, scales=range(-6, 7), dtype: Any = np.float32) -> Batch:
    """Draw spread out or equal rows of scales 1e-6 to 1e6, at the origin or not; classes and weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    content = draw(st.sampled_from(["normal", "grid", "equal", "duplicates", "outlier"]))
    z = {
        "normal": lambda: rng.normal(size=(N, d)),
        "grid": lambda: rng.integers(-1, 2, (N, d)).astype(float),
        "equal": lambda: np.tile(rng.normal(size=(1, d)), (N, 1)),
        "duplicates": lambda: rng.normal(size=(3, d))[rng.integers(0, 3, N)],
        "outlier": lambda: np.concatenate([rng.normal(size=(N - 1, d)), 30 * rng.normal(size=(1, d))]),
    }[content]()
    z = (z + draw(st.sampled_from([0.0, 0.0, 0.0, 3.0]))) * 10.0 ** draw(st.sampled_from(list(scales)))
    classes = draw(st.sampled_from(["any", "any", "one", "two", "absent", "singletons"]))
    labels = {
        "any": lambda: rng.integers(0, CLASSES, N),
        "one": lambda: np.full(N, rng.integers(0, CLASSES)),
        "two": lambda: rng.permutation(CLASSES)[rng.integers(0, 2, N)],
        "absent": lambda: rng.permutation(CLASSES)[rng.integers(0, CLASSES - 1, N)],
        "singletons": lambda: np.where(np.arange(N) < CLASSES - 1, np.arange(N) + 1, 0),
    }[classes]()
    kind = draw(st.sampled_from(["ones", "quarters", "few", "pair", "lone"])) if weighted else "ones"
    weights = np.ones(N)
    if kind == "quarters":
        weights = rng.integers(0, 8, N) / 4
    elif kind == "few":
        weights = (rng.random(N) < 0.4).astype(float)
    elif kind in ("pair", "lone"):  # n = 2 and n = 1 in a padded batch
        weights = np.isin(np.arange(N), rng.permutation(N)[: 2 if kind == "pair" else 1]).astype(float)
    return Batch(z.astype(dtype), labels.astype(np.int32), weights.astype(np.float32))


def cases(count: int):
    return settings(max_examples=count)


Z = np.random.default_rng(0).normal(size=(N, NARROW)).astype(np.float32)
P = (np.arange(N) % CLASSES).astype(np.int32)
ONES = np.ones(N, np.float32)


def members(count: int):
    rng = np.random.default_rng(4)
    z = rng.normal(size=(count, N, NARROW)).astype(np.float32)
    labels = rng.permuted(np.tile(np.arange(N) % CLASSES, (count, 1)), axis=1).astype(np.int32)
    weights = (rng.integers(0, 5, (count, N)) / 2).astype(np.float32)
    return z, labels, weights
