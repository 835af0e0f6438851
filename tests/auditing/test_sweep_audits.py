"""The audit of a sweep: every member once, resumable, the same numbers on any workers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import joblib
import pytest
from comparisons import without_seconds
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from privjax import datasets
from privjax.auditing import audit_sweep, load_reports

FEW = ["linear_svm", "quadratic", "network"]


def numbers(reports):
    return {member: without_seconds(report.to_dict()) for member, report in reports.items()}


def files(folder):
    return sorted((folder / "audit").glob("*.json"))


@pytest.mark.slow
def test_every_member_is_audited_and_its_report_kept(workdir, capsys):
    folder, loaded = workdir
    results = (folder / "results.json").read_bytes()
    reports = audit_sweep(folder, attackers=FEW, n_jobs=1, progress="log")
    assert loaded == list(reports) == [0, 1, 2, 3]
    assert load_reports(folder) == reports
    assert [path.name.partition("-")[0] for path in files(folder)] == ["0000", "0001", "0002", "0003"]
    assert (folder / "results.json").read_bytes() == results
    assert "4/4 members" in capsys.readouterr().err
    for report in reports.values():
        (attribute,) = report.attributes.values()
        assert {attack.name for attack in attribute.attacks} == set(FEW)
        assert {attack.name: attack for attack in attribute.attacks}["network"].settings["widths"] == [32]
        assert attribute.label_alone["accuracy"].value == pytest.approx(
            0.2, abs=0.02
        )  # parity leaves five digits
        assert attribute.leakage(part="validation") is not None
        assert report.leakage > 0.3


def test_reports_of_other_attackers_stay_beside_each_other(workdir, digits):
    folder, loaded = workdir
    reports = audit_sweep(folder, attackers=FEW, n_jobs=1)
    loaded.clear()
    assert audit_sweep(folder, attackers=FEW, n_jobs=1) == reports
    assert loaded == []
    fewer = audit_sweep(folder, digits, attackers="quadratic", members=[0], n_jobs=1)
    assert loaded == list(fewer) == [0]
    assert fewer[0].strongest.name == "quadratic"
    assert len(files(folder)) == 5
    assert load_reports(folder) == reports  # of the attackers that audited most members
    assert audit_sweep(folder, attackers=FEW, n_jobs=1) == reports
    assert loaded == [0]


def test_another_estimator_is_another_audit(workdir):
    """Two estimators that print alike but for an address do not share a report."""
    folder, loaded = workdir

    def leakage(function):
        estimator = make_pipeline(FunctionTransformer(function), KNeighborsClassifier())
        return audit_sweep(folder, members=[0], attackers=estimator, n_jobs=1)[0].leakage

    seeing, blind = (lambda z: z), (lambda z: 0 * z)
    assert leakage(blind) < 0.2 < leakage(seeing)
    loaded.clear()
    assert leakage(seeing) > 0.2
    assert loaded == []  # the same estimator again


class Unpicklable(KNeighborsClassifier):
    """Refuses to be pickled."""

    def __reduce_ex__(self, protocol):
        raise TypeError("not today")


def test_the_reports_of_an_estimator_without_a_pickle_are_never_reused(workdir):
    folder, loaded = workdir
    for _ in range(2):
        audit_sweep(folder, members=[0], attackers=Unpicklable(), n_jobs=1)
    assert loaded == [0, 0]


@pytest.mark.slow
def test_an_interrupted_audit_resumes(workdir):
    folder, loaded = workdir
    whole = audit_sweep(folder, attackers=FEW, n_jobs=1)
    missing, damaged = files(folder)[1:3]
    missing.unlink()
    damaged.write_text('{"member": 2, "repo')
    assert sorted(load_reports(folder)) == [0, 3]
    loaded.clear()
    assert numbers(audit_sweep(folder, attackers=FEW, n_jobs=1)) == numbers(whole)
    assert loaded == [1, 2]


def test_a_member_that_was_trained_again_is_audited_again(workdir):
    folder, loaded = workdir
    audit_sweep(folder, attackers="quadratic", n_jobs=1)
    results = json.loads((folder / "results.json").read_text())
    results["members"][0]["epochs"] = 4
    (folder / "results.json").write_text(json.dumps(results))
    assert sorted(load_reports(folder)) == [1, 2, 3]
    loaded.clear()
    audit_sweep(folder, attackers="quadratic", n_jobs=1)
    assert loaded == [0]


@pytest.mark.slow
def test_the_number_and_kind_of_workers_change_nothing(workdir):
    """The numbers of processes, and of a Dask cluster, are those of one thread."""
    folder, _ = workdir
    distributed = pytest.importorskip("distributed")
    some = ["linear_svm", "quadratic", "random_forest"]  # networks train for longer in other processes
    here = numbers(audit_sweep(folder, attackers=some, n_jobs=1))

    def repeated():
        shutil.rmtree(folder / "audit")
        return numbers(audit_sweep(folder, attackers=some, n_jobs=2))

    assert repeated() == here

    with joblib.parallel_config(backend="loky"):
        assert repeated() == here
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
    seen = set()
    with warnings.catch_warnings():
        # Distributed warns of event loops, of the size of a graph, and of ports in use.
        warnings.filterwarnings("ignore", module=r"(distributed|tornado|dask|asyncio)\b.*")
        warnings.filterwarnings("ignore", message=".*Sending large graph.*")
        with (
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs=50,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            seen.update(client.run(os.getpid).values())
            with joblib.parallel_config(backend="dask"):
                assert repeated() == here
            done = client.run(lambda dask_worker: dask_worker.state.executed_count)
            assert sum(done.values()) >= 1  # the workers did the work
    assert os.getpid() not in seen


KILLED = """
import sys
from privjax.auditing import audit_sweep
audit_sweep(sys.argv[1], attackers=["quadratic", "random_forest"], n_jobs=1)
"""


@pytest.mark.slow
def test_a_killed_audit_resumes(workdir):
    folder, loaded = workdir
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 600
        while not files(folder):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finished = len(files(folder))
    for path in files(folder):
        json.loads(path.read_text())  # no file is incomplete
    reports = audit_sweep(folder, attackers=["quadratic", "random_forest"], n_jobs=1)
    assert loaded == list(range(finished, 4))
    assert sorted(reports) == [0, 1, 2, 3]


def test_other_data_and_unknown_members_are_refused(workdir, digits):
    folder, _ = workdir
    with pytest.raises(ValueError, match="data is not what member 0 was trained on"):
        audit_sweep(folder, datasets.load("digits", seed=5), attackers="quadratic")
    with pytest.raises(ValueError, match="member must be .*, got 9"):
        audit_sweep(folder, members=[9])
    with pytest.raises(ValueError, match="attackers must be among"):
        audit_sweep(folder, attackers="magic")
    with pytest.raises(ValueError, match="seed must be a whole number, not negative, got -1"):
        audit_sweep(folder, seed=-1)


def test_data_of_a_sweep_on_arrays_must_be_given(workdir):
    folder, _ = workdir
    content = json.loads((folder / "results.json").read_text())
    content["data"].update(name="mine", load_spec=None)
    (folder / "results.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="data must be given: 'mine' was made of arrays"):
        audit_sweep(folder)
    reports = audit_sweep(
        folder, lambda seed: datasets.load("digits", seed=seed), attackers="quadratic", n_jobs=1
    )
    assert sorted(reports) == [0, 1, 2, 3]


def test_a_sweep_without_audits_has_no_reports(workdir):
    folder, _ = workdir
    assert load_reports(folder) == {}
