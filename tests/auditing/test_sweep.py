"""The audit of a sweep: every point once, written as it is done, the same on any workers."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import joblib
import numpy as np
import pytest
from comparisons import without_seconds
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from privjax import datasets
from privjax.auditing import audit_sweep, pareto

FEW = ["linear_svm", "quadratic", "network"]


def audits(results):
    return [without_seconds(member["audit"]) for member in results["members"]]


def test_every_member_is_audited_and_written(workdir, digits, capsys):
    folder, loaded = workdir
    results = audit_sweep(folder, adversaries=FEW, n_jobs=1, progress="log")
    assert loaded == [0, 1, 2, 3]
    assert results == json.loads((folder / "results.json").read_text())
    for member in results["members"]:
        kept = json.loads((folder / "audit" / f"point-{member['point']}.json").read_text())
        assert kept["audit"] == member["audit"]
        of_s = member["audit"]["attributes"]["s"]
        assert set(of_s["attackers"]) == set(FEW)
        assert of_s["attackers"]["network"]["settings"].get("widths", [32]) == [32]
        assert of_s["label_alone"]["accuracy"] == pytest.approx(0.2, abs=0.02)
        assert member["audit"]["validation"]["adversary"] is not None
    first, last = results["members"][0]["audit"], results["members"][3]["audit"]
    assert first["adversary_accuracy"] > 0.4
    assert last["adversary_accuracy"] == pytest.approx(last["attributes"]["s"]["majority"])
    assert "4/4 points" in capsys.readouterr().err
    # Again: nothing to do, and nothing changes. With other attackers: all of it.
    loaded.clear()
    assert audit_sweep(folder, adversaries=FEW, n_jobs=1) == results
    assert loaded == []
    fewer = audit_sweep(folder, digits, adversaries="quadratic", points=[2], n_jobs=1)
    assert loaded == [2]
    assert set(fewer["members"][2]["audit"]["attributes"]["s"]["attackers"]) == {"quadratic"}
    # What the others found is still there, and the first call needs no work to say it again.
    assert audit_sweep(folder, adversaries=FEW, n_jobs=1) == results
    assert loaded == [2]


def test_another_estimator_is_another_audit(workdir):
    """Two that print alike but for an address: what one found must not be told of the other."""
    folder, loaded = workdir

    def found(change):
        seer = make_pipeline(FunctionTransformer(change), KNeighborsClassifier())
        results = audit_sweep(folder, points=[0], adversaries=seer, n_jobs=1)
        return results["members"][0]["audit"]["attributes"]["s"]["strongest"]["accuracy"]

    plain, blind = (lambda z: z), (lambda z: 0 * z)
    assert found(blind) < 0.2 < found(plain)
    loaded.clear()
    assert found(plain) > 0.2
    assert loaded == []  # and the same one is not asked twice


def test_it_goes_on_where_it_was(workdir):
    folder, loaded = workdir
    whole = audits(audit_sweep(folder, adversaries=FEW, n_jobs=1))
    (folder / "audit" / "point-1.json").unlink()
    (folder / "audit" / "point-2.json").write_text('{"point": 2, "audi')  # as no crash leaves it
    loaded.clear()
    again = audits(audit_sweep(folder, adversaries=FEW, n_jobs=1))
    assert loaded == [1, 2]
    assert again == whole
    # A point that was trained anew is audited anew.
    results = json.loads((folder / "results.json").read_text())
    results["members"][0]["epochs"] = 4
    (folder / "results.json").write_text(json.dumps(results))
    loaded.clear()
    audit_sweep(folder, adversaries=FEW, n_jobs=1)
    assert loaded == [0]


def test_the_number_and_kind_of_workers_change_nothing(workdir):
    """On processes, and on a real Dask cluster: the same numbers as here."""
    folder, _ = workdir
    distributed = pytest.importorskip("distributed")
    here = audits(audit_sweep(folder, adversaries=FEW, n_jobs=1))

    def again():
        for path in (folder / "audit").glob("point-*.json"):
            path.unlink()
        return audits(audit_sweep(folder, adversaries=FEW, n_jobs=2))

    with joblib.parallel_config(backend="loky"):
        assert again() == here
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
    seen = set()
    with warnings.catch_warnings():
        # Distributed's own: of event loops, of the size of a graph, of ports in use.
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
                assert again() == here
            done = client.run(lambda dask_worker: dask_worker.state.executed_count)
            assert sum(done.values()) >= 1  # the work was done there
    assert os.getpid() not in seen


KILLED = """
import sys
import numpy as np
import privjax.sweeping
from privjax.auditing import audit_sweep

def load_encoder(folder, point, **_):
    w = np.random.default_rng(point).normal(size=(64, 5)) * (0.0 if point == 3 else 1.0)
    return lambda x: np.maximum(x @ w, 0.0).astype(np.float32)

sys.modules["privjax.sweeping"].load_encoder = load_encoder
audit_sweep(sys.argv[1], adversaries=["quadratic", "random_forest"], n_jobs=1, progress="log")
"""


def test_killed_and_started_again(workdir):
    folder, loaded = workdir
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 600
        while not (folder / "audit" / "point-0.json").exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    for path in (folder / "audit").glob("point-*.json"):
        json.loads(path.read_text())  # whole, every one that is there
    done = len(list((folder / "audit").glob("point-*.json")))
    results = audit_sweep(folder, adversaries=["quadratic", "random_forest"], n_jobs=1)
    assert loaded == list(range(done, 4))
    assert all("audit" in member for member in results["members"])


def test_other_data_are_refused(workdir, digits):
    folder, _ = workdir
    other = datasets.load("digits", seed=1)
    with pytest.raises(ValueError, match="data is not what point 0 was trained on"):
        audit_sweep(folder, other, adversaries="quadratic")
    with pytest.raises(ValueError, match="points must be among"):
        audit_sweep(folder, points=[9])
    content = json.loads((folder / "results.json").read_text())
    content["data"].update(name="mine", again=None)
    (folder / "results.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="data must be given: .* how 'mine' was loaded"):
        audit_sweep(folder)
    results = audit_sweep(folder, lambda seed: digits, adversaries="quadratic", n_jobs=1)
    assert all("audit" in member for member in results["members"])


def test_pareto_of_an_audited_sweep(workdir):
    folder, _ = workdir
    results = audit_sweep(folder, adversaries="linear_svm", n_jobs=1)
    curve = pareto(results)["mmd"]
    assert [p.privacy_weight for p in curve.points] == [0.0, 1.0]
    assert curve.points[0].utility.seeds == 2
    leak = np.mean([results["members"][i]["audit"]["adversary_accuracy"] for i in (0, 2)])
    assert curve.points[0].leakage.value == pytest.approx(leak)
    assert pareto(folder)["mmd"] == curve
