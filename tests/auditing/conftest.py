"""Shorter training of network attackers, and the workdir of a small sweep."""

import shutil

import pytest

import privjax.sweeping
from privjax import datasets
from privjax.auditing import network
from privjax.networks import nn_networks


@pytest.fixture(scope="session", autouse=True)
def _short_training():
    """A third of the steps: the releases of these tests are small and plain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_STEPS", 350)
        yield


@pytest.fixture(scope="session")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="session")
def _swept(tmp_path_factory):
    """A sweep of four members, hardly trained."""
    networks = nn_networks(
        64, num_outputs=2, private_widths=(5,), public_widths=(8,), discriminator_widths=(32,)
    )
    folder = tmp_path_factory.mktemp("sweep")
    privjax.sweeping.sweep(
        "digits", privacy_weights=[0.0, 1.0], seeds=[0, 1], networks=networks, num_epochs=1, workdir=folder
    )
    return folder


@pytest.fixture
def workdir(tmp_path, _swept, monkeypatch):
    """A copy of the sweep's workdir, and the numbers of the members whose encoders are loaded from it."""
    folder, loaded = tmp_path / "sweep", []
    shutil.copytree(_swept, folder)
    load_encoder = privjax.sweeping.load_encoder

    def counted(workdir, member, **options):
        loaded.append(member)
        return load_encoder(workdir, member, **options)

    monkeypatch.setattr(privjax.sweeping, "load_encoder", counted)
    return folder, loaded
