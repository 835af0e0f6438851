"""Baselines: SciPy's solutions, their own constraints, and attackers before and after."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

from privjax import baselines
from privjax.encoder import Encoder


@pytest.fixture(scope="module")
def digits():
    """Raw digits; utility is the parity, the private variable is the digit."""
    x, s = load_digits(return_X_y=True)
    return x, s % 2, s


@pytest.mark.parametrize("privacy_weight", [0.0, 0.5, 50.0])
def test_duca_meets_its_constraint_and_the_eigenvalues_of_scipy(digits, privacy_weight):
    x, y, s = digits
    rho, rho_prime = 2.0, 0.1
    encoder = baselines.duca(
        x, y, s, num_features=7, privacy_weight=privacy_weight, rho=rho, rho_prime=rho_prime
    )
    w = np.asarray(encoder.params["weights"], np.float64)
    scaled = encoder.scaling.apply(x).astype(np.float64)
    centred = scaled - scaled.mean(0)
    metric = centred.T @ centred + rho * np.eye(64)
    np.testing.assert_allclose(w.T @ metric @ w, np.eye(7), atol=1e-6)
    utility, private = centred.T @ np.eye(2)[y], centred.T @ np.eye(10)[s]
    gain = utility @ utility.T - rho_prime * np.eye(64) - privacy_weight * private @ private.T
    best = scipy.linalg.eigh(gain, metric, eigvals_only=True)[::-1][:7]
    tolerance = 1e-5 * np.abs(gain).max() / np.diag(metric).max()
    np.testing.assert_allclose(np.diag(w.T @ gain @ w), best, rtol=1e-4, atol=tolerance)
    np.testing.assert_allclose(encoder(x), centred @ w, atol=1e-5)


def test_duca_separates_without_privacy_and_hides_linearly_with_privacy(digits):
    x, y, s = digits
    settings = dict(num_features=5, rho=1.0)
    unprotected, private = (baselines.duca(x, y, s, privacy_weight=w, **settings)(x) for w in (0.0, 100.0))
    lda = LinearDiscriminantAnalysis
    assert lda().fit(unprotected, y).score(unprotected, y) > 0.85
    assert lda().fit(private, s).score(private, s) < lda().fit(unprotected, s).score(unprotected, s)


def test_linear_erasure_removes_linear_information_only(digits):
    x, y, s = digits
    z = baselines.linear_erasure(x, s)(x)
    assert z.shape == x.shape
    means = np.stack([z[s == digit].mean(0) for digit in range(10)])
    np.testing.assert_allclose(means, np.tile(z.mean(0), (10, 1)), atol=1e-4)
    attack = LogisticRegression(max_iter=500)
    majority = np.bincount(s).max() / len(s)
    assert attack.fit(x / 16, s).score(x / 16, s) > 0.95
    assert attack.fit(z / 16, s).score(z / 16, s) < majority + 0.02
    forest = RandomForestClassifier(50, random_state=0)
    assert forest.fit(z[::2], s[::2]).score(z[1::2], s[1::2]) > 0.5


def test_linear_erasure_changes_x_less_than_removing_the_class_directions(digits):
    x, _, s = digits
    z = baselines.linear_erasure(x, s)(x)
    centred = x - x.mean(0)
    means = np.stack([centred[s == digit].mean(0) for digit in range(10)])
    basis = np.linalg.svd(means, full_matrices=False)[2][:9]
    assert ((z - x) ** 2).sum() <= ((centred @ basis.T @ basis) ** 2).sum()


def test_linear_erasure_keeps_constant_features(digits):
    x, _, s = digits
    x = np.concatenate([x, np.full((len(x), 1), 3.0)], 1)
    np.testing.assert_allclose(baselines.linear_erasure(x, s)(x)[:, -1], 3.0, atol=1e-6)


def _linear_r2(z, p):
    """Score of a linear predictor, independent of units."""
    z = (z - z.mean(0)) / np.where(z.std(0) > 0, z.std(0), 1.0)
    return LinearRegression().fit(z, p).score(z, p)


def test_linear_erasure_is_independent_of_units():
    rng = np.random.default_rng(0)
    n = 200
    s = rng.integers(0, 3, n)
    signal = s + 0.3 * rng.normal(size=n)
    tiny = np.column_stack([1e6 * rng.normal(size=(n, 3)), 0.01 * signal])
    near_copy = np.column_stack([rng.normal(size=(n, 3)), signal])
    near_copy = np.column_stack([near_copy, near_copy[:, 0] + 1e-5 * signal])
    wide = np.column_stack([rng.normal(size=(n, 2 * n)), signal])
    for x in (tiny, near_copy, wide):
        assert _linear_r2(x, np.eye(3)[s]) > 0.3
        z = baselines.linear_erasure(x, s)(x).astype(float)
        assert _linear_r2(z, np.eye(3)[s]) < 1e-3
    p = 1e-9 * signal[:, None]
    z = baselines.linear_erasure(near_copy, p)(near_copy).astype(float)
    assert _linear_r2(z, 1e9 * p) < 1e-3
    scaled = baselines.linear_erasure(100.0 * near_copy, p)(100.0 * near_copy)
    np.testing.assert_allclose(scaled, 100.0 * z, rtol=1e-4, atol=1e-3)


def test_linear_erasure_without_information_to_erase_changes_nothing():
    x = np.random.default_rng(0).normal(size=(20, 3))
    for constant in (x, np.ones((20, 3))):
        z = baselines.linear_erasure(constant, np.zeros(20, int))(constant)
        np.testing.assert_allclose(z, constant, atol=1e-6)
    np.testing.assert_array_equal(baselines.linear_erasure(np.ones((20, 3)), np.arange(20) % 2)(x), 1.0)


def test_linear_erasure_of_images_acts_on_pixels():
    rng = np.random.default_rng(0)
    s = np.arange(100) % 2
    x = rng.normal(5.0, 2.0, (100, 3, 2, 2))
    x[:, 1, 0, 1] += 3.0 * s
    encoder = baselines.linear_erasure(x, s)
    z = encoder(x)
    np.testing.assert_allclose(z[s == 0].mean(0), z[s == 1].mean(0), atol=1e-4)
    np.testing.assert_array_equal(encoder(x.reshape(100, 12)), z)


def test_pca_equals_scikit_learn_up_to_signs(digits):
    x, _, _ = digits
    scaled = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    for rows, scaling in ((scaled, "standard"), (x, "none")):
        ours = baselines.pca(x, num_features=6, scaling=scaling)(x)
        np.testing.assert_allclose(np.abs(ours), np.abs(PCA(6).fit_transform(rows)), atol=1e-3)


def test_random_projection_is_orthonormal_and_seeded(digits):
    x, _, _ = digits
    first, same, other = (
        baselines.random_projection(x, num_features=6, seed=seed).params["weights"] for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(first.T @ first, np.eye(6), atol=1e-6)
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)


def test_raw_is_the_identity_and_flattens():
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(baselines.raw(x)(x), x.reshape(2, 12))


def test_every_baseline_is_an_encoder_of_raw_rows(digits, tmp_path):
    x, y, s = digits
    for encoder, width in (
        (baselines.raw(x), 64),
        (baselines.pca(x, num_features=4), 4),
        (baselines.random_projection(x, num_features=4), 4),
        (baselines.duca(x, y, s, num_features=4, privacy_weight=1.0), 4),
        (baselines.duca_mmd(x, y, s, num_features=4, privacy_weight=1.0, num_epochs=1), 4),
        (baselines.linear_erasure(x, s), 64),
    ):
        z = encoder(x[:3])
        assert z.shape == (3, encoder.width) == (3, width)
        assert z.dtype == np.float32
        assert encoder(x[:0]).shape == (0, width)
        with pytest.raises(ValueError, match=r"x must hold rows of shape \(64,\)"):
            encoder(np.zeros((5, 4)))
        encoder.save(tmp_path / "encoder.npz")
        np.testing.assert_array_equal(Encoder.load(tmp_path / "encoder.npz")(x[:3]), z)


@pytest.mark.slow
def test_the_weight_of_duca_mmd_trades_utility_for_privacy(digits):
    x, y, s = digits
    scores = {}
    for weight in (0.0, 1000.0):
        z = baselines.duca_mmd(x, y, s, num_features=10, privacy_weight=weight, num_epochs=80)(x)
        forest = RandomForestClassifier(50, random_state=0)
        scores[weight] = [forest.fit(z[::2], t[::2]).score(z[1::2], t[1::2]) for t in (y, s)]
    assert scores[0.0][0] > 0.9
    assert scores[0.0][1] > 0.7
    assert scores[1000.0][1] < scores[0.0][1] - 0.2


def test_duca_mmd_with_the_same_seed_gives_the_same_weights(digits):
    x, y, s = digits
    a, b = (
        baselines.duca_mmd(x, y, s, num_features=3, privacy_weight=1.0, num_epochs=2, seed=5)
        for _ in range(2)
    )
    np.testing.assert_array_equal(a.params["weights"], b.params["weights"])


def test_labels_may_be_booleans_matrices_or_have_absent_classes(digits):
    x, y, s = digits
    expected = baselines.linear_erasure(x, y)(x)
    for labels in (y > 0, np.eye(2)[y], y * 1000, y[:, None] - 0.5):
        np.testing.assert_allclose(baselines.linear_erasure(x, labels)(x), expected, atol=1e-4)


def test_errors_name_the_argument_and_the_remedy():
    x, s = np.ones((4, 3)), np.arange(4) % 2
    with pytest.raises(ValueError, match="num_features must be between 1 and 3"):
        baselines.pca(x, num_features=4)
    with pytest.raises(ValueError, match="scaling must be one of"):
        baselines.pca(x, num_features=2, scaling="robust")
    with pytest.raises(ValueError, match="x must be finite"):
        baselines.pca(np.full((4, 3), np.nan), num_features=2)
    with pytest.raises(ValueError, match="x must hold at least two rows"):
        baselines.raw(np.zeros(3))
    with pytest.raises(ValueError, match="p must be .* 4 rows of x"):
        baselines.linear_erasure(x, s[:2])
    with pytest.raises(ValueError, match="p holds the label -1"):
        baselines.linear_erasure(x, s - 1)
    with pytest.raises(ValueError, match="p holds the label 200000000: number the classes from 0"):
        baselines.linear_erasure(x, s + 200_000_000)
    with pytest.raises(ValueError, match="p must be finite"):
        baselines.linear_erasure(x, np.full((4, 1), np.nan))
    for baseline in (baselines.duca, baselines.duca_mmd):
        for rho in (0.0, -1.0, np.nan):
            with pytest.raises(ValueError, match="rho must be positive"):
                baseline(x, s, s, num_features=2, privacy_weight=1.0, rho=rho)
        with pytest.raises(ValueError, match="p must be .* 4 rows of x"):
            baseline(x, s, s[:2], num_features=2, privacy_weight=1.0)
        with pytest.raises(ValueError, match="p holds the label -1"):
            baseline(x, s, s - 1, num_features=2, privacy_weight=1.0)
    with pytest.raises(TypeError, match="MMD compares groups"):
        baselines.duca_mmd(x, s, s + 0.5, num_features=2, privacy_weight=1.0)
    for name in ("batch_size", "num_epochs"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            baselines.duca_mmd(x, s, s, num_features=2, privacy_weight=1.0, **{name: 0})
