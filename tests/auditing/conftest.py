"""Shorter training of network attackers; a workdir as a sweep leaves it, its encoders random maps."""

import json
import sys

import numpy as np
import pytest

import privjax.sweeping  # noqa: F401
from privjax import datasets
from privjax.auditing import network


@pytest.fixture(scope="session", autouse=True)
def _short_training():
    """A third of the steps: the releases of these tests are small and plain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "STEPS", 350)
        yield


@pytest.fixture(scope="session")
def digits():
    return datasets.load("digits")


@pytest.fixture
def workdir(tmp_path, digits, monkeypatch):
    """Four points of a sweep on digits; the first releases most, the last is constant."""
    weights, seeds = (0.0, 1.0), (0, 1)
    members = [
        {
            "point": point,
            "objective": "mmd",
            "privacy_weight": weight,
            "seed": seed,
            "status": "converged",
            "epochs": 3,
            "losses": {},
            "utility": {"validation": 0.9 - 0.1 * weight, "test": 0.88 - 0.1 * weight + 0.01 * seed},
            "effective_rank": 3.0,
            "live_units": 5,
            "content_hash": digits.content_hash,
        }
        for point, (seed, weight) in enumerate((s, w) for s in seeds for w in weights)
    ]
    results = {
        "schema": 1,
        "versions": {},
        "backend": "cpu",
        "data": {"name": "digits", "content_hash": digits.content_hash},
        "config": {"networks": {"kind": "nn", "discriminator_widths": [32]}},
        "members": members,
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    loaded = []

    def load_encoder(folder, point, **_):
        loaded.append(point)
        rng = np.random.default_rng(point)
        w = rng.normal(size=(64, 5)) * (0.0 if point == 3 else 1.0)
        return lambda x: np.maximum(x @ w, 0.0).astype(np.float32)

    monkeypatch.setattr(sys.modules["privjax.sweeping"], "load_encoder", load_encoder)
    return tmp_path, loaded
