"""Curves by hand: means, intervals, fronts and choices that can be checked on paper."""

import json

import pytest

from privjax.auditing import pareto
from privjax.auditing.pareto import best_on_validation


def member(
    weight,
    seed,
    utility,
    leakage,
    *,
    validation=None,
    objective="mmd",
    strongest=None,
    kind="discrete",
    attackers=("a",),
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
        "attackers": dict.fromkeys(attackers),
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


@pytest.mark.parametrize("other", [("a",), ("a", "b", "c")])
def test_what_other_attackers_found_is_not_compared(other):
    """A point that only one of them attacked looks private, and one that more of them attacked does not."""
    members = [
        member(0.0, 0, 0.9, 0.1, validation=(0.9, 0.1), attackers=other),
        member(1.0, 0, 0.8, 0.6, validation=(0.8, 0.6), attackers=("a", "b")),
        member(2.0, 0, 0.7, 0.3, validation=(0.7, 0.3), attackers=("a", "b")),
    ]
    curve = pareto({"members": members})["mmd"]
    assert [point.privacy_weight for point in curve.points] == [1.0, 2.0]
    assert curve.left_out == 1
    assert curve.points[curve.operating_point()].privacy_weight == 2.0
    assert best_on_validation(members)["privacy_weight"] == 2.0
    alike = [members[0] | {"audit": member(0.0, 0, 0, 0.1, attackers=("a", "b"))["audit"]}, *members[1:]]
    assert len(pareto({"members": alike})["mmd"].points) == 3
