"""Curves of records with chosen numbers, so that every mean, front and choice can be checked by hand."""

import json
import operator
from dataclasses import replace

import pytest
import synthetic_results as made

from privjax import curves
from privjax.curves import mean_over_seeds, pareto


def sweep(*members, strongest=None, attackers=None, **data):
    """A run and its reports.

    Args:
      *members: (weight, seed, utility, leakage) of each, then both on validation rows.
      strongest: Score of the strongest attacker by member, if another than the leakage.
      attackers: Names of the attackers by member, if they are special.
      **data: Fields of the data record.
    """
    records, reports = [], {}
    for number, (weight, seed, utility, leakage, *held_out) in enumerate(members):
        gain, leak = held_out or (None, None)
        attacks = [made.attack(name, leakage, validation=leak) for name in (attackers or {}).get(number, ())]
        best = (strongest or {}).get(number)
        found = made.attribute(leakage, strongest=best, validation=leak, attacks=attacks)
        records.append(made.member(number, weight, seed, utility=utility, validation=gain))
        reports[number] = made.audit(found)
    return made.run(records, **data), reports


def test_means_intervals_and_the_front():
    run, reports = sweep(
        (0.0, 0, 0.9, 0.8),
        (0.0, 1, 0.8, 0.6),
        (1.0, 0, 0.7, 0.75),  # dominated
        (2.0, 0, 0.6, 0.2),
        (4.0, 0, 0.6, 0.3),  # as useful, leaks more
        strongest={0: 0.85},
    )
    curve = pareto(run, reports)
    first = curve.points[0]
    assert first.utility.value == pytest.approx(0.85)
    # Student's t with one degree of freedom: 12.706 standard errors of 0.05.
    assert first.utility.interval == pytest.approx((0.85 - 12.7062 * 0.05, 0.85 + 12.7062 * 0.05), abs=1e-4)
    assert curve.points[1].utility.interval is None
    assert first.strongest.value == pytest.approx((0.85 + 0.6) / 2)
    assert curve.front == (curve.points[0], curve.points[2])
    assert curve.utility_at(0.25) == pytest.approx(0.6)
    assert curve.utility_at(0.7) == pytest.approx(0.85)
    assert curve.utility_at(0.1) is None
    json.dumps(curve.to_dict(), allow_nan=False)
    assert str(curve).splitlines()[1].split() == ["0", "0.850", "0.700", "0.725", "2"]
    assert "chosen on validation rows: member 3" in str(curve)


def test_the_operating_point_depends_on_validation_rows_alone():
    members = [
        (0.0, 0, 0.50, 0.90, 0.95, 0.60),
        (1.0, 0, 0.99, 0.01, 0.90, 0.30),
        (2.0, 0, 0.10, 0.99, 0.80, 0.10),
    ]
    curve = pareto(*sweep(*members))
    assert curve.operating_point().privacy_weight == 2.0  # 0.70 against 0.60 and 0.35
    assert curve.operating_point(leakage=0.4).privacy_weight == 1.0
    assert curve.operating_point(leakage=0.05) is None
    for utility, leakage in ((0.0, 1.0), (1.0, 0.0)):
        moved = [(weight, seed, utility, leakage, *held_out) for weight, seed, _, _, *held_out in members]
        assert pareto(*sweep(*moved)).operating_point().privacy_weight == 2.0
    run, reports = sweep(*members)
    blind = [replace(m, utility=m.utility._replace(validation=None)) for m in run.members]
    assert pareto(replace(run, members=tuple(blind)), reports).operating_point() is None


def test_a_point_is_its_best_member_in_any_order_of_weights():
    # As `sweep(privacy_weights=[4.0, 0.0], seeds=[0, 1])` numbers them; seed 1 of weight 4 is the best.
    run, reports = sweep(
        (4.0, 0, 0.8, 0.3, 0.80, 0.30),
        (0.0, 0, 0.9, 0.9, 0.90, 0.90),
        (4.0, 1, 0.8, 0.2, 0.80, 0.20),
        (0.0, 1, 0.9, 0.9, 0.91, 0.90),
    )
    curve = pareto(run, reports)
    assert [point.privacy_weight for point in curve.points] == [0.0, 4.0]
    assert [point.members for point in curve.points] == [(1, 3), (0, 2)]
    assert [operator.index(point) for point in curve.points] == [3, 2]
    assert curve.operating_point() is curve.points[1]
    assert run.find(curve.operating_point()).privacy_weight == 4.0


def test_privacy_weights_may_be_dicts():
    weights = [{"age": 2.0, "user": 0.5}, {"user": 0.5, "age": 1.0}]
    curve = pareto(*sweep(*[(weight, 0, 0.9, 0.5) for weight in weights]))
    assert [point.member for point in curve.points] == [1, 0]
    assert curves.format_weight(weights[0]) == "age 2, user 0.5"


def test_members_without_scores_are_counted():
    run, reports = sweep((0.0, 0, 0.9, 0.5), (1.0, 0, 0.9, 0.4), (2.0, 0, None, 0.3))
    del reports[1]
    curve = pareto(run, reports)
    assert [point.member for point in curve.points] == [0]
    assert curve.left_out == 2
    with pytest.raises(ValueError, match="no finished member yet"):
        pareto(made.run([]), {})


def test_a_private_variable_is_named_if_there_are_several():
    run = made.run([made.member(0, 0.0, 0)])
    reports = {0: made.audit(made.attribute(0.5, name="s"), made.attribute(-0.4, name="t", discrete=False))}
    with pytest.raises(ValueError, match="attribute must be one of s, t: several were audited"):
        pareto(run, reports)
    with pytest.raises(ValueError, match="attribute must be one of s, t, got 'u'"):
        pareto(run, reports, attribute="u")
    assert pareto(run, reports, attribute="t").points[0].leakage.value == -0.4


def test_several_sweeps_make_one_curve():
    (one, reports), (other, others) = sweep((1.0, 0, 0.9, 0.5)), sweep((1.0, 1, 0.8, 0.5))
    (point,) = pareto([one, other], [reports, others]).points
    assert point.utility.seeds == 2
    with pytest.raises(TypeError, match="averages several sweeps"):
        operator.index(point)
    with pytest.raises(ValueError, match="mmd at weight 1 and seed 0 twice"):
        pareto([one, one], [reports, reports])
    other, _ = sweep((1.0, 1, 0.8, 0.5), name="digits")
    with pytest.raises(ValueError, match="one data set, got people and digits"):
        pareto([one, other], [reports, others])
    kdi = made.run([made.member(0, 1.0, 1, objective="kdi")])
    with pytest.raises(ValueError, match="one objective, got mmd and kdi"):
        pareto([one, kdi], [reports, others])


def test_a_missing_workdir_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="workdir of a sweep"):
        pareto(tmp_path)
    with pytest.raises(ValueError, match="reports must be given"):
        pareto(made.run([]))


@pytest.mark.parametrize("other", ["a", "abc"])
def test_scores_of_other_attackers_are_not_compared(other):
    """A member that fewer attackers attacked looks more private than it is."""
    members = [(0.0, 0, 0.8, 0.1, 0.8, 0.1), (1.0, 0, 0.8, 0.6, 0.8, 0.6), (2.0, 0, 0.8, 0.3, 0.8, 0.3)]
    curve = pareto(*sweep(*members, attackers={0: other, 1: "ab", 2: "ab"}))
    assert [point.privacy_weight for point in curve.points] == [1.0, 2.0]
    assert curve.left_out == 1
    assert curve.operating_point().privacy_weight == 2.0
    assert len(pareto(*sweep(*members, attackers=dict.fromkeys(range(3), "ab"))).points) == 3


def test_leakage_without_the_papers_attackers_is_that_of_the_strongest():
    attacks = [made.attack("mine", 0.4, group="user"), made.attack("quadratic", 0.3, group="other")]
    reports = {0: made.audit(made.attribute(0.0, attacks=attacks))}
    (point,) = pareto(made.run([made.member(0, 1.0, 0)]), reports).points
    assert point.leakage == point.strongest == mean_over_seeds([0.4])
