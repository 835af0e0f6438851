"""Typed records of sweeps and audits with chosen numbers."""

import numpy as np

from privjax.auditing import Attack, AttributeReport, AuditReport, IndependenceTest
from privjax.auditing.scores import Score
from privjax.datasets import LoadSpec
from privjax.losses import mmd_loss
from privjax.objectives import Objective, Schedule
from privjax.reporting.summary import summarise
from privjax.sweeping import History
from privjax.sweeping.records import (
    DataRecord,
    LossRecord,
    MemberRecord,
    SweepConfig,
    SweepRun,
    UtilityRecord,
    describe_objective,
)
from privjax.training.loss import Losses
from privjax.training.monitor import Measures


def attack(name, value, *, group="paper", discrete=True, validation=None, failed=None):
    """One attack: the main score is `value`, the next ones are 0.01 less each."""
    names = ("accuracy", "balanced_accuracy", "auc") if discrete else ("r2", "rank_correlation")

    def scores(main):
        if main is None:
            return dict.fromkeys(names)
        values = [main - 0.01 * i for i in range(len(names))]
        return {name: Score(v, (v - 0.02, v + 0.02)) for name, v in zip(names, values, strict=True)}

    held_out = scores(value if validation is None else validation)
    return Attack(name, group, scores(value), held_out, {"C": 0.1}, 1.0, (), failed)


def attribute(leakage, *, strongest=None, discrete=True, name="s", validation=None, attacks=None):
    """A private variable whose strongest attacker is `quadratic`, and whose network failed."""
    strongest = leakage if strongest is None else strongest
    of = {"discrete": discrete, "validation": validation}
    main, other = ("accuracy", "balanced_accuracy") if discrete else ("r2", "rank_correlation")
    attacks = attacks or (
        attack("linear_svm", min(leakage, strongest) - 0.05, **of),
        attack("random_forest", leakage, **of),
        attack("quadratic", strongest, group="other", **of),
        attack("network", None, discrete=discrete, failed="ValueError: it <b>broke</b>"),
    )
    return AttributeReport(
        name=name,
        discrete=discrete,
        num_classes=10 if discrete else 0,
        chance=0.1 if discrete else 0.0,
        majority=0.12 if discrete else None,
        label_alone={main: Score(0.2, (0.18, 0.22)), other: Score(0.19, None)},
        confidence=IndependenceTest(0.25, 0.1, 100),
        attacks=tuple(attacks),
        notes=("a note on the variable",),
    )


def audit(*attributes):
    """The audit report of one member."""
    rows = {"train": 800, "validation": 100, "test": 100}
    return AuditReport({a.name: a for a in attributes}, rows, 7, 2.5, ("a note on z",))


def member(number, weight, seed, *, utility=0.9, validation=None, status="converged", **more):
    """The record of one member; its validation utility is its test utility by default."""
    record = {
        "member": number,
        "objective": "mmd",
        "privacy_weight": weight,
        "seed": seed,
        "status": status,
        "epochs": 3,
        "losses": LossRecord(0.1, 0.2, 0.0, 0.0, 0.3),
        "utility": UtilityRecord(utility if validation is None else validation, utility),
        "effective_rank": 3.5,
        "live_units": 5,
        "probe": 0.4,
        "content_hash": f"hash-{seed}",
    }
    return MemberRecord(**(record | more))


def run(members, *, networks="nn", complete=True, objective="mmd", **data):
    """A sweep with these members; keywords replace fields of its data record."""
    record = {
        "name": "people",
        "content_hash": "c0ffee",
        "shape": (64,),
        "rows": {"train": 800, "validation": 100, "test": 100},
        "feature_names": tuple(f"f{i}" for i in range(64)),
        "y_names": ("walk", "sit"),
        "s_names": tuple(map(str, range(10))),
        "private": ("user",),
        "load_spec": LoadSpec("from_table", {"utility": "activity", "private": "user"}, 0),
    }
    data = DataRecord(**(record | data))
    config = SweepConfig(
        schema=2,
        versions={"privjax": "0.1.0", "jax": "0.10.2"},
        objective=describe_objective(Objective(objective, mmd_loss, schedule=Schedule(max_epochs=250))),
        networks={"kind": networks},
        privacy_weights=tuple({repr(m.privacy_weight): m.privacy_weight for m in members}.values()),
        seeds=tuple(sorted({m.seed for m in members})),
        rates={},
        scaling="standard",
        batch_size=500,
        num_epochs=None,
        content_hash=data.content_hash,
        release={"name": "exact"},
    )
    return SweepRun(config, data, "cpu", 2, complete, 12.5, tuple(members))


def history(epochs):
    """Falling losses and measures; the discriminator's loss is 0 throughout."""
    falling, zeros = 1.0 / (1.0 + np.arange(epochs)), np.zeros(epochs)
    losses = Losses(
        utility=0.7 * falling,
        privacy=0.3 * falling,
        orthonormality=zeros,
        discriminator=zeros,
        objective=falling,
    )
    measures = Measures(
        utility_loss=falling,
        utility=1.0 - 0.5 * falling,
        effective_rank=10.0 * falling,
        live_units=np.full(epochs, 5.0),
        probe=0.9 * falling,
    )
    return History(losses, measures, np.ones(epochs), np.ones(epochs, bool))


def summary(members, reports=None, *, epochs=3, histories=None, header=None, workdir="runs/people", **more):
    """Content of a report about these members; keywords go to `run`."""
    histories = histories or {one.member: history(epochs) for one in members}
    return summarise(workdir, run(members, **more), reports or {}, histories, header)
