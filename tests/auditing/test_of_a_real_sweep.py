"""From training to the curve: a small sweep on digits, audited by its folder alone."""

import json

from privjax.auditing import audit_sweep, pareto
from privjax.sweeping import sweep


def test_a_sweep_is_audited_by_its_folder_alone(tmp_path):
    swept = sweep("digits", privacy_weights=[0.0, 30.0], seeds=[1], num_epochs=20, workdir=tmp_path)
    results = audit_sweep(tmp_path, adversaries=["linear_svm", "quadratic"], n_jobs=1)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    open_, hidden = (member["audit"] for member in results["members"])
    assert open_["adversary_accuracy"] > 0.85
    assert hidden["adversary_accuracy"] < open_["adversary_accuracy"] - 0.1
    assert hidden["attributes"]["s"]["label_alone"]["accuracy"] > 0.18  # parity leaves five digits
    curve = pareto(results)["mmd"]
    assert curve.left_out == 0
    assert curve.points[0].utility.value == swept.members[0]["utility"]["test"]
    assert curve.points[0].validation_leakage.value > 0.7
    # The sweep, called again, keeps the audits it finds.
    sweep("digits", privacy_weights=[0.0, 30.0], seeds=[1], num_epochs=20, workdir=tmp_path)
    assert all("audit" in m for m in json.loads((tmp_path / "results.json").read_text())["members"])
