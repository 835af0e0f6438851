"""Curves by hand: means, intervals, fronts and choices that can be checked on paper."""

import json

import pytest

from privjax.audit import pareto


def member(
    weight, seed, utility, leakage, *, validation=None, objective="mmd", strongest=None, kind="discrete"
):
    score = "accuracy" if kind == "discrete" else "r2"
    held_out = {"adversary": None, "strongest": None}
    if validation is not None:
        held_out = {"adversary": validation[1], "strongest": {"attacker": "a", score: validation[1]}}
    found = {
        "kind": kind,
        "adversary_accuracy": leakage if kind == "discrete" else None,
        "adversary_r2": None if kind == "discrete" else leakage,
        "strongest": {"attacker": "a", score: leakage if strongest is None else strongest},
        "validation": held_out,
    }
    return {
        "point": seed,
        "objective": objective,
        "privacy_weight": weight,
        "seed": seed,
        "utility": {"test": utility, "validation": None if validation is None else validation[0]},
        "audit": {"attributes": {"s": found}},
    }


def test_means_intervals_and_the_front():
    members = [
        member(0.0, 0, 0.9, 0.8, strongest=0.85),
        member(0.0, 1, 0.8, 0.6),
        member(1.0, 0, 0.7, 0.75),  # beaten in both
        member(2.0, 0, 0.6, 0.2),
        member(4.0, 0, 0.6, 0.3),  # as useful, leaks more
    ]
    curve = pareto({"members": members})["mmd"]
    first = curve.points[0]
    assert first.utility.value == pytest.approx(0.85)
    # Student's t with one degree of freedom: 12.706 standard errors of 0.05.
    assert first.utility.interval == pytest.approx((0.85 - 12.7062 * 0.05, 0.85 + 12.7062 * 0.05), abs=1e-4)
    assert curve.points[1].utility.interval is None
    assert first.strongest.value == pytest.approx((0.85 + 0.6) / 2)
    assert curve.front == (0, 2)
    assert curve.utility_at(0.25) == pytest.approx(0.6)
    assert curve.utility_at(0.7) == pytest.approx(0.85)
    assert curve.utility_at(0.1) is None
    json.dumps(curve.to_dict(), allow_nan=False)


def test_the_operating_point_sees_validation_rows_alone():
    members = [
        member(0.0, 0, 0.5, 0.9, validation=(0.95, 0.60)),
        member(1.0, 0, 0.99, 0.01, validation=(0.90, 0.30)),
        member(2.0, 0, 0.1, 0.99, validation=(0.80, 0.10)),
    ]
    curve = pareto({"members": members})["mmd"]
    assert curve.operating_point() == 2  # 0.70 against 0.60 and 0.35, whatever the test rows say
    assert curve.operating_point(leakage=0.4) == 1
    assert curve.operating_point(leakage=0.05) is None
    blind = [member(weight, 0, 0.5, 0.5) for weight in (0.0, 1.0)]
    assert pareto({"members": blind})["mmd"].operating_point() is None
    for test in (0.0, 1.0):  # test numbers do not move the choice
        moved = [dict(m, utility={**m["utility"], "test": test}) for m in members]
        assert pareto({"members": moved})["mmd"].operating_point() == 2


def test_methods_apart_and_what_is_missing_said():
    members = [
        member(0.0, 0, 0.9, 0.5),
        member(0.1, 0, 0.9, 0.4, objective="kdi", kind="continuous"),
        dict(member(1.0, 0, 0.9, 0.4), audit=None),
    ]
    curves = pareto([{"members": members[:1]}, {"members": members[1:]}])
    assert set(curves) == {"mmd", "kdi"}
    assert curves["mmd"].left_out == 1
    assert curves["kdi"].points[0].leakage.value == 0.4
    two = member(0.0, 0, 0.9, 0.5)
    two["audit"]["attributes"]["t"] = two["audit"]["attributes"]["s"]
    with pytest.raises(ValueError, match="attribute must be one of s, t"):
        pareto({"members": [two]})
    assert pareto({"members": [two]}, attribute="t")["mmd"].points[0].leakage.value == 0.5


def test_what_is_no_other_seed_is_not_averaged():
    one = {"data": {"name": "har"}, "members": [member(1.0, 0, 0.9, 0.5)]}
    other = {"data": {"name": "har"}, "members": [member(1.0, 1, 0.8, 0.5)]}
    assert pareto([one, other])["mmd"].points[0].utility.seeds == 2
    with pytest.raises(ValueError, match="mmd at weight 1.0 and seed 0 twice"):
        pareto([one, one])
    with pytest.raises(ValueError, match="results of har and of digits have no mean"):
        pareto([one, other | {"data": {"name": "digits"}}])


def test_a_folder_without_results_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not there: is .* the workdir of a sweep"):
        pareto(tmp_path)
