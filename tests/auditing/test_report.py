"""What a report says, and what can and cannot change it."""

import importlib
import json
import sys

import numpy as np
import pytest
from comparisons import without_seconds

from privjax.auditing import audit
from privjax.auditing.adversaries import choose
from privjax.auditing.attack import attack_many, training_task
from privjax.auditing.folds import fold_numbers, race, sample_rows
from privjax.auditing.inputs import make_problem

RNG = np.random.default_rng(0)
S = RNG.integers(0, 3, 240)
Z = RNG.normal(size=(240, 4)) + 1.2 * np.eye(3, 4)[S]
TRAIN, TEST = slice(0, 160), slice(160, 240)
SOME = ["linear_svm", "rbf_svm", "random_forest", "neighbours", "quadratic"]


def content(**settings):
    return without_seconds(audit(Z[TRAIN], S[TRAIN], Z[TEST], S[TEST], **settings).to_dict())


def test_a_report_is_a_table_and_strict_json():
    y = S % 2
    report = audit(
        Z[TRAIN], S[TRAIN], Z[TEST], S[TEST], y_train=y[TRAIN], y_test=y[TEST], adversaries=SOME, seed=3
    )
    kept = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert kept == report.to_dict()
    of_s = kept["attributes"]["s"]
    assert kept["adversary_accuracy"] == max(of_s["attackers"][n]["accuracy"] for n in SOME[:3])
    assert kept["strongest"]["accuracy"] == max(a["accuracy"] for a in of_s["attackers"].values())
    assert of_s["attackers"]["rbf_svm"]["settings"]["C"] in (0.1, 1.0, 10.0, 100.0)
    assert of_s["attackers"]["rbf_svm"]["settings"]["cv_accuracy"] > 0.5
    assert all(a["seconds"] >= 0 for a in of_s["attackers"].values())
    assert of_s["chance"] == pytest.approx(1 / 3)
    largest = np.bincount(S[TRAIN]).argmax()
    assert of_s["majority"] == pytest.approx((S[TEST] == largest).mean())
    assert 0 < of_s["privacy_confidence"]["p_value"] < 0.01
    lines = str(report).splitlines()
    for name in SOME:
        assert any(line.strip().startswith(name) for line in lines)
    assert any("y alone" in line for line in lines)
    assert "lower bound" in lines[-1]


def test_what_the_utility_label_alone_gives_away():
    """y tells s = 1 surely, and leaves 0 and 2 in doubt: an accuracy that can be counted by hand."""
    y = S % 2
    counts = np.bincount(S[TRAIN], minlength=3)
    guess = np.where(y[TEST] == 1, 1, 0 if counts[0] >= counts[2] else 2)
    report = audit(
        Z[TRAIN], S[TRAIN], Z[TEST], S[TEST], y_train=y[TRAIN], y_test=y[TEST], adversaries="quadratic"
    )
    found = report.attributes["s"].label_alone
    assert found["accuracy"].value == pytest.approx((guess == S[TEST]).mean())
    nothing = audit(Z[TRAIN], S[TRAIN], Z[TEST], S[TEST], adversaries="quadratic")
    assert nothing.attributes["s"].label_alone is None
    # Continuous y and s: y = s tells all but the width of its twenty parts.
    t = Z[:, 0] + 2.0 * S
    both = audit(Z[TRAIN], t[TRAIN], Z[TEST], t[TEST], y_train=t[TRAIN], y_test=t[TEST], adversaries="ridge")
    assert both.attributes["s"].label_alone["r2"].value > 0.9


def test_the_same_seed_gives_the_same_numbers_on_any_number_of_workers():
    one = content(adversaries=[*SOME, "boosting", "logistic", "network"], network_widths=(16,), n_jobs=1)
    four = content(adversaries=[*SOME, "boosting", "logistic", "network"], network_widths=(16,), n_jobs=4)
    assert one == four
    other = content(adversaries="random_forest", seed=1)
    assert (
        other["attributes"]["s"]["attackers"]["random_forest"]
        != (one["attributes"]["s"]["attackers"]["random_forest"])
    )
    # Nor does an attacker's company matter.
    alone = content(adversaries="rbf_svm")["attributes"]["s"]["attackers"]["rbf_svm"]
    assert alone == one["attributes"]["s"]["attackers"]["rbf_svm"]


def test_test_rows_influence_nothing_but_the_score():
    """The same training rows with test rows spoilt: choices stay, and so do guesses for untouched rows."""
    spoilt_z, spoilt_s = Z[TEST].copy(), S[TEST].copy()
    spoilt_z[40:] = 1e3 * RNG.normal(size=(40, 4))
    spoilt_z[50] = np.nan
    spoilt_s[40:] = 2 - spoilt_s[40:]
    reports, guesses = [], []
    for z, s in ((Z[TEST], S[TEST]), (spoilt_z, spoilt_s)):
        everyone = [*SOME, "boosting", "logistic", "network"]
        reports.append(audit(Z[TRAIN], S[TRAIN], z, s, adversaries=everyone, network_widths=(16,), n_jobs=2))
        problem = make_problem({"train": Z[TRAIN], "test": z}, {"train": S[TRAIN], "test": s}, {})
        target = problem.targets[0]
        guesses.append([])
        for adversary in choose(SOME, discrete=True):
            task, _ = training_task(problem, target, adversary, seed=0)
            np.testing.assert_array_equal(task.target, S[TRAIN])
            predict = adversary.fit(task, seed=0).predict
            guesses[-1].append(predict(problem.part(target, "test")[0][:40]))
    for clean, dirty in zip(*(r.attributes["s"].attacks for r in reports), strict=True):
        assert clean.settings == dirty.settings, clean.name
        assert clean.notes == dirty.notes
        assert clean.value("accuracy") > dirty.value("accuracy"), clean.name  # they do reach the score
    for clean, dirty in zip(*guesses, strict=True):
        np.testing.assert_array_equal(clean, dirty)


def test_networks_in_lanes_are_networks_alone():
    """Several releases in one call: each gets what it gets in other company."""
    adversary = choose("network", discrete=True, network_widths=(16,))[0]
    problems = [
        make_problem({"train": z[TRAIN], "test": z[TEST]}, {"train": S[TRAIN], "test": S[TEST]}, {})
        for z in (Z, Z[:, ::-1] ** 2, RNG.normal(size=Z.shape))
    ]
    targets = [p.targets[0] for p in problems]
    together = attack_many(problems, targets, adversary, seed=0, lanes=4)
    for problem, target, attack in zip(problems, targets, together, strict=True):
        assert attack_many([problem], [target], adversary, seed=0, lanes=4)[0].scores == attack.scores
    assert together[0].value("accuracy") > together[2].value("accuracy") + 0.2


def test_folds_keep_classes_apart_and_rows_once():
    codes = np.repeat([0, 1, 2], [50, 7, 1])
    folds = fold_numbers(codes, seed=0)
    assert np.bincount(folds).max() - np.bincount(folds).min() <= 1
    assert set(np.bincount(folds[codes == 0])) == {10}
    assert np.bincount(folds[codes == 1], minlength=5).max() <= 2
    assert fold_numbers(codes[:3], seed=0).max() == 2
    rows = sample_rows(codes, 29, seed=0)
    assert len(rows) == len(np.unique(rows)) == 29
    assert abs((codes[rows] == 0).sum() - 25) <= 1


def test_large_releases_are_sampled_and_the_report_says_so():
    rare = np.where(np.arange(240) == 5, 3, S)  # one row of a fourth class
    problem = make_problem({"train": Z, "test": Z[TEST]}, {"train": rare, "test": S[TEST]}, {})
    adversary = choose("quadratic", discrete=True)[0]._replace(max_rows=60)
    task, notes = training_task(problem, problem.targets[0], adversary, seed=0)
    assert 60 <= len(task.z) <= 61
    assert set(task.target) == {0, 1, 2, 3}  # no class is lost to the sample
    found = attack_many([problem], problem.targets[:1], adversary, seed=0)[0]
    assert found.notes[: len(notes)] == notes == (f"trained on a sample of {len(task.z)} of 240 rows",)
    assert found.value("accuracy") > 0.5


def test_a_race_ends_with_the_best_and_judges_few_on_many_rows():
    n, quality = 9000, np.array([0.3, 0.5, 0.49, 0.1, 0.2, 0.505])
    rng = np.random.default_rng(0)
    truth = rng.random((len(quality), n)) < quality[:, None]
    judged = []

    def judge(settings, rows, folds):
        judged.append((len(settings), len(rows)))
        return truth[settings][:, rows].astype(float)

    found = race(range(len(quality)), judge, rng.integers(0, 3, n), seed=0)
    assert found.setting in (1, 2, 5)
    assert judged[0] == (6, 2000)
    (count, rows) = judged[1]
    assert (count <= 3, rows, len(judged)) == (True, n // 2, 2)


def test_the_function_stays_callable_whatever_is_imported():
    """The package and its function share a name: a module imported later must not take it back."""
    import privjax

    sys.modules.pop("privjax.auditing.gaussian")
    importlib.import_module("privjax.auditing.gaussian")
    from privjax.auditing import pareto

    assert privjax.audit is audit
    assert privjax.pareto is pareto
