"""Experiments: tiny configs run, store results and can be drawn; the committed results are whole."""

import functools
import importlib
import json
import sys
from pathlib import Path

import jax
import ml_collections
import pytest

import privjax
from privjax.training import TrainData, hyperparameters, prepare, total_loss

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
CONFIGS = sorted(p.stem for p in (EXPERIMENTS / "configs").glob("*.py") if p.stem != "common")

KERNEL = {"name": "gaussian", "bandwidth": "wide"}
SABOTAGED = ml_collections.ConfigDict({"objective": "mmd", "objective_settings": {"kernel": KERNEL}})


@pytest.fixture
def experiments(monkeypatch):
    for folder in (EXPERIMENTS, EXPERIMENTS / "configs"):
        monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for name in ("run", "methods", "figures", "claims", "criteria", "common", *CONFIGS):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_tiny_versions_run(experiments, tmp_path):
    # One test, so that one process compiles the shared programs once.
    for name in CONFIGS:
        _check_tiny(name, experiments, tmp_path / name)


def _check_tiny(name, experiments, tmp_path):
    run = experiments("run")
    config = experiments(name).get_config("tiny")
    results = tmp_path / "results"
    content = run.run(config, workdir=tmp_path / "runs", results=results, say=lambda line: None)
    assert set(content["methods"]) == set(config.methods)
    for entry in content["methods"].values():
        ((point,),) = [done["points"] for done in entry["runs"].values()]
        assert -1 <= point["strongest"] <= 1
        assert point["adversary"] is None or point["adversary"] <= point["strongest"]
        assert point["utility"] <= 1
    assert json.loads((results / f"{name}_tiny.json").read_text()) == content
    figures = experiments("figures")
    drawn = list(figures.figures(content))
    held = {panel for method in config.methods.values() for panel in method.panels}
    shown = {panel for _, panels in drawn for panel in panels}
    assert "methods" in shown
    assert held - {"parts"} <= shown <= held
    for figure, panels in drawn:
        figures.draw(content, tmp_path / figure, panels)
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_every_method_can_be_built(name, experiments):
    """The networks, the objective and one gradient of every full config fit together."""
    methods, config = experiments("methods"), experiments(name).get_config()
    tiny = experiments(name).get_config("tiny").data
    data = privjax.datasets.load(**tiny)
    key = jax.random.key(0)
    for method in config.methods.values():
        if "objective" not in method:
            assert method.encoder in methods.ENCODERS
            continue
        networks, objective = methods.make_networks(config, method, data), methods.make_objective(method)
        rows, built = prepare(data.x[:40], data.y[:40], data.s[:40], objective=objective, networks=networks)
        params = jax.eval_shape(networks.init, key)

        def gradient(params, constants, objective=objective, rows=rows, built=built):
            numbers = hyperparameters(objective, built.task, privacy_weight=1.0)
            loss = functools.partial(total_loss, config=built, key=key, constants=constants)
            return jax.grad(loss, has_aux=True)(params, TrainData(rows.x, rows.y, rows.p), numbers)[0]

        width = jax.eval_shape(networks.private, params, rows.x).shape[1]
        constants = objective.draw and jax.eval_shape(lambda: objective.draw(key, width))  # noqa: B023
        assert jax.tree.structure(jax.eval_shape(gradient, params, constants)) == jax.tree.structure(params)
    with pytest.raises(TypeError, match="bandwidth"):
        methods.make_objective(SABOTAGED)


@pytest.mark.slow
def test_stored_points_are_not_run_again(experiments, tmp_path):
    run, said = experiments("run"), []
    config = experiments("diabetes").get_config("tiny")
    places = {"workdir": tmp_path / "runs", "results": tmp_path}
    first = run.run(config, **places, only=("kdi",), say=said.append)
    said.clear()
    assert run.run(config, **places, only=("kdi",), say=said.append) == first
    assert said == []
    kept = first["methods"]["kdi"]["runs"]["0"]["points"]
    config.methods.kdi.weights = (*config.methods.kdi.weights, 1.0)  # one weight more
    other = run.run(config, **places, only=("kdi",), say=said.append)
    assert len(said) == 2
    points = other["methods"]["kdi"]["runs"]["0"]["points"]
    assert [p["privacy_weight"] for p in points] == [0.25, 1.0]
    assert points[:1] == kept
    config.networks.private_widths = (5,)  # other settings start over
    other = run.run(config, **places, only=("kdi",), say=said.append)
    assert other["methods"]["kdi"]["runs"]["0"]["points"][0] != kept[0]
    with pytest.raises(ValueError, match="only must name methods among"):
        run.run(config, **places, only=("typo",), say=said.append)


def test_concurrent_runs_keep_each_others_results(experiments, tmp_path, monkeypatch):
    run = experiments("run")
    config = experiments("diabetes").get_config("tiny")
    places = {"workdir": tmp_path / "runs", "results": tmp_path, "say": lambda line: None}
    point = {"privacy_weight": 0.0, "utility": None, "adversary": 0.1, "strongest": 0.2}
    point |= {"strongest_attacker": "ridge", "label_alone": None, "majority": None}
    new = {"seed": 0, "data_hash": "", "seconds": {"training": 1.0, "all": 2.0}, "peak_megabytes": None}

    def other_runs_meanwhile(config, method, weights, seed, folder):
        monkeypatch.setattr(run, "_run_method", plain)
        run.run(config, **places, only=("kdi",))
        return plain(config, method, weights, seed, folder)

    def plain(config, method, weights, seed, folder):
        return new | {"points": [{**point, "privacy_weight": w} for w in weights]}

    monkeypatch.setattr(run, "_run_method", other_runs_meanwhile)
    content = run.run(config, **places, only=("raw",))
    assert set(content["methods"]) == {"raw", "kdi"}
    assert next(run.summary(content))["utility"] is None  # missing numbers stay out


@pytest.mark.parametrize("name", CONFIGS)
def test_full_configs_follow_the_paper(name, experiments):
    config = experiments(name).get_config()
    assert config.seeds == 10
    assert config.adversaries == "all"
    ranges = {"kdi": (-10, 0), "lsdn": (-4, 12)}  # powers of two; the others share MMD's
    for method in config.methods.values():
        if "objective" in method:
            low, high = ranges.get(method.objective, (-10, 10))
            assert 2.0**low <= min(method.weights) <= max(method.weights) <= 2.0**high


def _synthetic_results(leaks, nothing_left=None):
    """Return results with two points per method: everything leaks at utility 1, `leaks` at 0.98.

    NN-MMD may have a third point without utility or leakage.
    """

    def entry(label, leak):
        point = {"majority": 0.04, "label_alone": 0.04}
        numbers = [(0.0, 1.0, 0.9), (1.0, 0.98, leak)]
        if nothing_left is not None and label == "NN-MMD":
            numbers.append((2.0, nothing_left, nothing_left))
        points = [
            {**point, "privacy_weight": w, "utility": u, "adversary": a, "strongest": a}
            for w, u, a in numbers
        ]
        return {"label": label, "runs": {"0": {"points": points}}}

    return {"har": {"methods": {label: entry(label, leak) for label, leak in leaks.items()}}}


def test_intervals_use_splits_with_numbers(experiments):
    (_, row) = experiments("run").summary(_synthetic_results({"NN-MMD": 0.06})["har"])
    assert (row["splits"], row["utility"]) == (1, 0.98)
    content = _synthetic_results({"NN-MMD": 0.06})["har"]
    runs = content["methods"]["NN-MMD"]["runs"]
    runs["1"] = {"points": [dict(point, utility=None) for point in runs["0"]["points"]]}
    (_, row) = experiments("run").summary(content)
    assert (row["splits"], row["utility"], row["utility_half"]) == (1, 0.98, None)


def test_numbers_decide_claims(experiments):
    claims = experiments("claims")
    verdicts = lambda leaks, nothing_left=0.05: {  # noqa: E731
        claim.says: verdict for claim, _, verdict in claims.judged(_synthetic_results(leaks, nothing_left))
    }
    at_high_privacy = "at high privacy WDN and LSDN may keep less utility than MMD and KDI"
    papers = {"DUCA": 0.9, "DUCA-MMD": 0.4, "NN-MMD": 0.05, "NN-KDI": 0.06, "NN-WDN": 0.1, "NN-LSDN": 0.3}
    found = verdicts(papers)
    assert found.pop(at_high_privacy) == "cannot tell"  # LSDN has no point there
    assert set(found.values()) == {"yes", "not run"}
    assert list(found.values()).count("yes") == 8
    assert found["NN-(RF)MMD hides slightly less than NN-MMD"] == "not run"
    short = _synthetic_results({"DUCA": 0.1})
    short["har"]["methods"]["NN-MMD"] = _synthetic_results({"NN-MMD": 0.1})["har"]["methods"]["NN-MMD"]
    for done in short["har"]["methods"].values():
        done["runs"]["0"]["points"] = [dict(done["runs"]["0"]["points"][0], utility=0.5)]
    found = {claim.says: verdict for claim, _, verdict in claims.judged(short)}
    assert found["NN-MMD comes close to random guessing without losing much utility"] == "cannot tell"
    assert found["DUCA soon becomes insensitive to its privacy weight"] == "cannot tell"
    assert verdicts(papers | {"NN-LSDN": 0.1})[at_high_privacy] == "**no**"
    found = verdicts(papers | {"NN-MMD": 0.5, "NN-(RF)MMD": 0.1}, nothing_left=0.3)
    refuted = {says for says, verdict in found.items() if verdict == "**no**"}
    assert refuted == {
        "DUCA hides less than DUCA-MMD, and DUCA-MMD less than NN-MMD",
        "NN-MMD comes close to random guessing without losing much utility",
        "NN-KDI and NN-MMD are alike",
        "NN-LSDN does worse than the other three",
        "at large weights utility and privacy fall to random guessing",
        "NN-(RF)MMD hides slightly less than NN-MMD",
    }


def test_points_that_lack_a_split_are_not_compared(experiments):
    claims, results = experiments("claims"), _synthetic_results({"NN-MMD": 0.06, "NN-KDI": 0.06})

    def judged():
        found = {claim.says: (text, verdict) for claim, text, verdict in claims.judged(results)}
        return found["NN-KDI and NN-MMD are alike"]

    assert judged() == (
        "least leakage with utility of at least 0.97: NN-MMD 0.060, NN-KDI 0.060 (one split)",
        "yes",
    )
    runs = results["har"]["methods"]["NN-KDI"]["runs"]
    lucky = dict(runs["0"]["points"][1], privacy_weight=2.0, adversary=0.01)
    runs["0"] = {"points": [*runs["0"]["points"], lucky]}
    assert judged()[1] == "**no**"
    for entry in results["har"]["methods"].values():
        entry["runs"]["1"] = {"points": entry["runs"]["0"]["points"][:2]}
    assert judged() == (
        "least leakage with utility of at least 0.97: NN-MMD 0.060, NN-KDI 0.060 (2 splits)",
        "yes",
    )


def test_an_improvement_gains_somewhere_and_loses_nowhere(experiments):
    criteria = experiments("criteria")

    def verdict(leak, kept=0.98):
        results = _synthetic_results({"A": 0.3, "B": leak})["har"]
        results["methods"]["B"]["runs"]["0"]["points"][1]["utility"] = kept
        text, found = criteria.improves("A", "B", utility=(0.9, 0.95))(criteria.Curves(results))
        assert f"at least 0.95: A 0.300, B {0.9 if kept < 0.95 else leak:.3f}" in text
        return found

    assert verdict(0.1) is True
    assert verdict(0.29) is None
    assert verdict(0.5) is False
    assert verdict(0.1, kept=0.94) is False  # at 0.95 only the leaking point remains


def test_discriminators_are_compared_with_the_better_closed_form(experiments):
    claims = experiments("claims")

    def verdict(**changed):
        leaks = {"NN-MMD": 0.3, "NN-KDI": 0.06, "NN-WDN": 0.1, "NN-LSDN": 0.3} | changed
        found = [(claim, verdict) for claim, _, verdict in claims.judged(_synthetic_results(leaks))]
        (of_har,) = [
            v for c, v in found if c.experiment == "har" and c.says.startswith("discriminator networks")
        ]
        return of_har

    assert verdict() == "yes"
    assert verdict(**{"NN-KDI": 0.2}) == "**no**"


def test_committed_results_are_whole(experiments):
    figures, folder = experiments("figures"), EXPERIMENTS / "results"
    results = figures.read(folder)
    text = (folder / "README.md").read_text()
    assert experiments("claims").table(results) in text, "the claims changed: make figures"
    readme = (EXPERIMENTS / "README.md").read_text()
    assert figures.headline(results) in readme, "the README's table differs from the results: make figures"
    for name, content in results.items():
        assert figures.table(content) in text, f"{name}.json changed: make figures"
        assert (folder / f"{name}.csv").exists()
        assert all((folder / figure).exists() for figure, _ in figures.figures(content))
        # Points with other settings would be compared with those of today's configs.
        config, run = experiments(name).get_config(), experiments("run")
        for key, entry in content["methods"].items():
            method = config.methods[key]
            assert entry["spec"] == run.specification(config, method), f"{name}: {key}"
            assert (entry["label"], entry["panels"]) == (method.label, list(method.panels)), f"{name}: {key}"
            weights = {point["privacy_weight"] for done in entry["runs"].values() for point in done["points"]}
            assert weights <= set(method.weights), f"{name}: {key}"
