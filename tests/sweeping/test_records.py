"""Records survive JSON, and damaged JSON is refused by the name of the value."""

import dataclasses
import functools
import json
import operator

import pytest
from small import NETWORKS

import privjax
from privjax.datasets import Column, LoadSpec
from privjax.objectives import Objective
from privjax.sweeping import MemberRecord, SweepRun
from privjax.sweeping.records import describe_networks, describe_objective


def refuse(token):
    raise AssertionError(token)


@pytest.mark.slow
def test_a_run_survives_strict_json(finished):
    data = dataclasses.replace(
        finished.run.data,
        columns=(Column("age"), Column("smoker", classes=("no", "yes"), fill="no")),
        load_spec=LoadSpec("from_table", {"source": "people.csv", "private": ["user"]}, 3),
    )
    run = dataclasses.replace(finished.run, data=data)
    text = json.dumps(run.to_dict(), allow_nan=False)
    assert SweepRun.from_dict(json.loads(text, parse_constant=refuse)) == run


def test_a_member_survives_json_with_several_private_variables(finished):
    member = finished.members[0]
    both = {"age": 1.0, "sex": 0.5}
    losses = member.losses._replace(privacy=both)
    several = dataclasses.replace(member, privacy_weight=both, probe={"age": None, "sex": 0.5}, losses=losses)
    assert MemberRecord.from_dict(several.to_dict()) == several


@pytest.mark.parametrize("number", ['0"><b>', 1.5, None, True])
def test_a_wrong_type_is_refused(finished, number):
    content = finished.run.to_dict()
    content["members"][0]["member"] = number
    with pytest.raises(ValueError, match=r"members\[0\].member must be of type int.*damaged"):
        SweepRun.from_dict(content)


@pytest.mark.parametrize("content", [[], None, {"schema": 1, "members": []}, {"schema": 99}])
def test_another_schema_is_refused(content):
    with pytest.raises(ValueError, match=r"schema (None|1|99), and this version of privjax reads schema 2"):
        SweepRun.from_dict(content)


def test_a_missing_value_is_refused(finished):
    content = finished.run.to_dict()
    del content["data"]
    with pytest.raises(ValueError, match="results.data must be of type DataRecord, got None"):
        SweepRun.from_dict(content)


def test_any_callable_may_be_the_loss_of_an_objective():
    def loss(z, p, **_):
        return (z**2).mean()

    def described(privacy_loss):
        return describe_objective(Objective("own", privacy_loss))["privacy_loss"]

    assert described(loss).endswith("<locals>.loss")
    assert described(functools.partial(loss, key=None)) == described(loss)
    assert described(operator.itemgetter(0)) == "operator.itemgetter"


def test_own_networks_are_described_by_their_parameters():
    assert describe_networks(NETWORKS)["kind"] == "nn"
    own = describe_networks(NETWORKS._replace(settings=None))
    assert own["kind"] == "own"
    assert own["parameters"]["['private']['Dense_0']['kernel']"] == [6, 4]


def test_versions_are_those_of_the_libraries(finished):
    assert finished.run.config.versions["privjax"] == privjax.__version__
    assert finished.run.config.schema == 2
    assert finished.run.backend == "cpu"
    assert finished.run.config.privacy_weights == (0.0, 2.0)


def test_objectives_are_told_apart_by_each_of_their_functions():
    objective = privjax.make_objective("wdn")
    other = objective._replace(discriminator_loss=operator.itemgetter(0))
    assert describe_objective(objective) == describe_objective(privjax.make_objective("wdn"))
    assert describe_objective(objective) != describe_objective(other)
