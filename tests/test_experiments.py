"""Every config of the experiments, at its tiny size: it runs, keeps what it gave, and can be drawn."""

import importlib
import json
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
CONFIGS = sorted(p.stem for p in (EXPERIMENTS / "configs").glob("*.py") if p.stem != "common")


@pytest.fixture
def experiments(monkeypatch):
    for folder in (EXPERIMENTS, EXPERIMENTS / "configs"):
        monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for name in ("run", "figures", "common", *CONFIGS):
        sys.modules.pop(name, None)


def test_tiny_versions_run(experiments, tmp_path):
    # One test, so that one process compiles what configs have in common.
    for name in CONFIGS:
        _check_tiny(name, experiments, tmp_path / name)


def _check_tiny(name, experiments, tmp_path):
    run = experiments("run")
    config = experiments(name).get_config("tiny")
    results = tmp_path / "results"
    content = run.run(config, workdir=tmp_path / "runs", results=results, say=lambda line: None)
    assert set(content["methods"]) == set(config.methods)
    for entry in content["methods"].values():
        ((point,),) = [done["points"] for done in entry["runs"]]
        assert -1 <= point["strongest"] <= 1
        assert point["adversary"] is None or point["adversary"] <= point["strongest"]
        assert point["utility"] <= 1
    assert json.loads((results / f"{name}_tiny.json").read_text()) == content
    experiments("figures").draw(content, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_done_is_not_done_again(experiments, tmp_path):
    run, said = experiments("run"), []
    config = experiments("diabetes").get_config("tiny")
    places = {"workdir": tmp_path / "runs", "results": tmp_path}
    first = run.run(config, **places, only=("kdi",), say=said.append)
    said.clear()
    assert run.run(config, **places, only=("kdi",), say=said.append) == first
    assert said == []
    config.methods.kdi.weights = (0.5,)  # other settings are another run
    other = run.run(config, **places, only=("kdi",), say=said.append)
    assert said
    assert other["methods"]["kdi"]["runs"][0]["points"][0]["privacy_weight"] == 0.5


@pytest.mark.parametrize("name", CONFIGS)
def test_the_full_version_is_the_papers(name, experiments):
    config = experiments(name).get_config()
    assert config.seeds == 10
    assert config.adversaries == "all"
    weights = [w for m in config.methods.values() if "objective" in m for w in m.weights]
    assert 2.0**-10 <= min(weights) <= max(weights) <= 2.0**12


def test_committed_results_are_whole(experiments):
    figures = experiments("figures")
    for path in (EXPERIMENTS / "results").glob("*.json"):
        content = json.loads(path.read_text())
        text = (EXPERIMENTS / "results" / "README.md").read_text()
        assert figures.table(content) in text, f"{path.name} changed: make figures"
        assert path.with_suffix(".png").exists()
        assert path.with_suffix(".csv").exists()
