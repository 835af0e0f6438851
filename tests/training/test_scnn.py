"""Training of SCNN: the tied projection stays orthonormal, and the convolutional networks learn."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from privjax.networks import cnn_networks, scnn_networks
from privjax.objectives import Schedule, make_objective
from privjax.training import fit

pytestmark = pytest.mark.slow

# Rates fall at a half and at three quarters, so that the penalty can settle.
OBJECTIVE = make_objective("mmd", schedule=Schedule("fixed", max_epochs=60, falls=2))
SIZES = dict(num_outputs=2, private_filters=8, public_filters=8, public_widths=(32,))


def _fit(networks, **settings):
    x, s = load_digits(return_X_y=True)
    return fit(
        x / 16.0,
        s % 2,
        s,
        objective=OBJECTIVE,
        networks=networks,
        validation_rows=np.arange(0, len(x), 5),
        scaling="none",
        batch_size=250,
        **settings,
    )


def _orthonormality(result):
    w = np.asarray(result.config.networks.projection(result.state.params), np.float64)
    return ((w.T @ w - np.eye(w.shape[1])) ** 2).sum()


def test_scnn_keeps_its_projection_orthonormal_and_learns():
    result = _fit(scnn_networks((8, 8, 1), num_features=10, **SIZES), privacy_weight=0.1)
    assert _orthonormality(result) < 1e-4
    np.testing.assert_allclose(result.history.losses.orthonormality[-1], _orthonormality(result), atol=1e-4)
    assert result.history.measures.utility[-1] > 0.9


def test_without_the_penalty_the_projection_would_drift(monkeypatch):
    monkeypatch.setattr("privjax.training.loss.ORTHONORMALITY_WEIGHT", 0.0)
    # Another width, because the program compiled with the penalty is cached.
    networks = scnn_networks((8, 8, 1), num_features=9, **SIZES)
    assert _orthonormality(_fit(networks, privacy_weight=0.1)) > 1e-2


def test_cnn_learns_without_a_projection():
    result = _fit(cnn_networks((8, 8, 1), **SIZES), privacy_weight=0.1, num_epochs=20)
    assert not result.history.losses.orthonormality.any()
    assert result.history.measures.utility[-1] > 0.85
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(result.history))
