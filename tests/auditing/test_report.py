"""The content of a report, and the independence of its numbers from workers, company and test rows."""

import json

import numpy as np
import pytest
from comparisons import without_seconds

from privjax.auditing import ATTACKERS, Attacker, AuditReport, audit
from privjax.auditing.attackers import SETS, fit_forest, select_attackers
from privjax.auditing.audits import attack, make_task
from privjax.auditing.inputs import AttackTask, make_release, sample_rows
from privjax.auditing.tuned import fit_tuned, fold_numbers

RNG = np.random.default_rng(0)
S = RNG.integers(0, 3, 240)
Z = RNG.normal(size=(240, 4)) + 1.2 * np.eye(3, 4)[S]
TRAIN, TEST = slice(0, 160), slice(160, 240)
SOME = ["linear_svm", "rbf_svm", "random_forest", "neighbours", "quadratic"]


def audit_some(attackers=SOME, *, z=Z, s=S, y=None, **settings):
    labels = {} if y is None else {"y_train": y[TRAIN], "y_test": y[TEST]}
    return audit(z[TRAIN], s[TRAIN], z[TEST], s[TEST], attackers=attackers, **labels, **settings)


def content(attackers, **settings):
    return without_seconds(audit_some(attackers, **settings).to_dict())


def test_a_report_is_a_table_and_strict_json():
    report = audit_some(y=S % 2, seed=3)
    kept = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert AuditReport.from_dict(kept) == report
    attribute = report.attributes["s"]
    by_name = {one.name: one for one in attribute.attacks}
    assert report.leakage == max(by_name[name].value("accuracy") for name in SOME[:3])
    assert report.strongest.value() == max(one.value("accuracy") for one in attribute.attacks)
    assert kept["attributes"]["s"]["leakage"] == report.leakage
    assert kept["attributes"]["s"]["strongest"] == report.strongest.name
    assert by_name["rbf_svm"].settings["C"] in (0.1, 1.0, 10.0, 100.0)
    assert by_name["rbf_svm"].settings["cv_accuracy"] > 0.5
    assert all(one.seconds >= 0 for one in attribute.attacks)
    assert attribute.chance == pytest.approx(1 / 3)
    largest = np.bincount(S[TRAIN]).argmax()
    assert attribute.majority == pytest.approx((S[TEST] == largest).mean())
    assert 0 < attribute.confidence.p_value < 0.01
    lines = str(report).splitlines()
    for name in (*SOME, "given y alone"):
        assert any(line.strip().startswith(name) for line in lines)
    assert "lower bound" in lines[-1]


def test_several_variables_have_no_single_leakage():
    report = audit(
        Z[TRAIN], {"a": S[TRAIN], "b": S[TRAIN]}, Z[TEST], {"a": S[TEST], "b": S[TEST]}, attackers="fast"
    )
    with pytest.raises(ValueError, match=r"pick attributes\[...\] among a, b"):
        _ = report.leakage
    assert report.attributes["a"].leakage() > 0.5


def test_a_damaged_report_is_refused():
    value = audit_some("quadratic").to_dict()
    value["attributes"]["s"]["chance"] = "a third"
    with pytest.raises(ValueError, match=r"report.attributes.s.chance must be of type float, got 'a third'"):
        AuditReport.from_dict(value)


def test_an_attacker_given_the_utility_label_alone():
    """y = 1 means s = 1, and y = 0 leaves 0 and 2 in doubt: the accuracy can be counted."""
    y = S % 2
    counts = np.bincount(S[TRAIN], minlength=3)
    guess = np.where(y[TEST] == 1, 1, 0 if counts[0] >= counts[2] else 2)
    found = audit_some("quadratic", y=y).attributes["s"].label_alone
    assert found["accuracy"].value == pytest.approx((guess == S[TEST]).mean())
    assert audit_some("quadratic").attributes["s"].label_alone is None
    t = Z[:, 0] + 2.0 * S  # with y = s, only the width of an interval of y remains
    assert audit_some("ridge", s=t, y=t).attributes["s"].label_alone["r2"].value > 0.9


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_on_any_number_of_workers():
    everyone = [*SOME, "boosting", "logistic", "network"]
    one = content(everyone, network_widths=(16,), n_jobs=1)
    assert one == content(everyone, network_widths=(16,), n_jobs=4)

    def attacks(found):
        return {entry["name"]: entry for entry in found["attributes"]["s"]["attacks"]}

    assert attacks(content("random_forest", seed=1))["random_forest"] != attacks(one)["random_forest"]
    assert (
        attacks(content("rbf_svm"))["rbf_svm"] == attacks(one)["rbf_svm"]
    )  # nor do the other attackers matter


@pytest.mark.slow
def test_test_rows_change_nothing_but_the_scores():
    """With corrupted test rows the settings are the same, and so are the guesses for the other rows."""
    corrupted_z, corrupted_s = Z[TEST].copy(), S[TEST].copy()
    corrupted_z[40:] = 1e3 * RNG.normal(size=(40, 4))
    corrupted_z[50] = np.nan
    corrupted_s[40:] = 2 - corrupted_s[40:]
    everyone = [*SOME, "boosting", "logistic", "network"]
    reports, guesses = [], []
    for z, s in ((Z[TEST], S[TEST]), (corrupted_z, corrupted_s)):
        reports.append(audit(Z[TRAIN], S[TRAIN], z, s, attackers=everyone, network_widths=(16,), n_jobs=2))
        release = make_release({"train": Z[TRAIN], "test": z}, {"train": S[TRAIN], "test": s}, {})
        variable = release.variables[0]
        guesses.append([])
        for attacker in select_attackers(SOME, discrete=True):
            task, _ = make_task(release, (variable, attacker), seed=0)
            np.testing.assert_array_equal(task.target, S[TRAIN])
            guesses[-1].append(attacker.fit(task, seed=0).predict(release.rows(variable, "test")[0][:40]))
    for clean, dirty in zip(*(report.attributes["s"].attacks for report in reports), strict=True):
        assert clean.settings == dirty.settings, clean.name
        assert clean.notes == dirty.notes
        assert clean.value("accuracy") > dirty.value("accuracy"), clean.name  # they do change the score
    for clean, dirty in zip(*guesses, strict=True):
        np.testing.assert_array_equal(clean, dirty)


def test_folds_and_samples_are_stratified():
    codes = np.repeat([0, 1, 2], [50, 7, 1])
    folds = fold_numbers(codes, seed=0)
    assert np.ptp(np.bincount(folds)) <= 1
    assert set(np.bincount(folds[codes == 0])) == {10}
    assert np.bincount(folds[codes == 1], minlength=5).max() <= 2
    assert fold_numbers(codes[:3], seed=0).max() == 2
    rows = sample_rows(codes, 29, seed=0)
    assert len(rows) == len(np.unique(rows)) == 29
    assert abs((codes[rows] == 0).sum() - 25) <= 1


def test_a_large_release_is_sampled_with_a_note():
    rare = np.where(np.arange(240) == 5, 3, S)  # one row of a fourth class
    release = make_release({"train": Z, "test": Z[TEST]}, {"train": rare, "test": S[TEST]}, {})
    job = release.variables[0], ATTACKERS["quadratic"]._replace(max_rows=60)
    task, notes = make_task(release, job, seed=0)
    assert 60 <= len(task.z) <= 61
    assert set(task.target) == {0, 1, 2, 3}  # every class keeps a row
    found = attack(release, job, seed=0)
    assert found.notes[: len(notes)] == notes == (f"trained on a sample of {len(task.z)} of 240 rows",)
    assert found.value("accuracy") > 0.5


def test_a_search_in_two_rounds_compares_few_settings_on_many_rows():
    n, quality = 9000, np.array([0.3, 0.5, 0.49, 0.1, 0.2, 0.505])
    rng = np.random.default_rng(0)
    truth = rng.random((len(quality), n)) < quality[:, None]
    task = AttackTask(np.arange(n)[:, None], rng.integers(0, 3, n), 3)
    judged = []

    def judge(task, settings, rest, held):
        judged.append((len(settings), len(task.target)))
        rows = task.z[held, 0]
        return truth[[setting["number"] for setting in settings]][:, rows].astype(float)

    settings = [{"number": i} for i in range(len(quality))]
    found = fit_tuned(lambda task, setting: None, settings, task, seed=0, judge=judge, slow=True)
    assert found.settings["number"] in (1, 2, 5)
    assert set(judged[:5]) == {(6, 2000)}
    assert judged[5][0] <= 3
    assert judged[5][1] == n // 2
    assert len(judged) == 10


def test_an_entry_in_the_registry_is_all_that_an_attacker_needs(monkeypatch):
    new = Attacker("little_forest", fit_forest, classes="other", reals="other", fast=True)
    monkeypatch.setitem(ATTACKERS, new.name, new)
    for name in (*SETS, new.name):
        expected = name != "paper"
        for discrete in (True, False):
            assert (new in select_attackers(name, discrete=discrete)) == expected
    with pytest.raises(ValueError, match="little_forest"):
        audit_some("large_forest")
    assert audit_some("little_forest").strongest.name == "little_forest"
    assert "little_forest" in str(audit_some("fast"))
