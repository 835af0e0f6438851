"""Numbers, names and files of a report; `test_browser.py` opens the page in a browser."""

import base64
import html.parser
import json
import os
import re
import types

import pytest
import synthetic_results as made

import privjax
from privjax import extras
from privjax.reporting import page as pages
from privjax.reporting import report
from privjax.reporting.figures import curve_figure, draw_png, training_traces
from privjax.reporting.page import render_html, render_markdown

EVIL = "</script><script>alert(1)</script><!--<script> \"q\" 'p' & {{content}} $x$ |中😀\ud800`b`"
PNG = b"\x89PNG\r\n\x1a\n"


class Parts(html.parser.HTMLParser):
    """Tags, texts, table rows and scripts of a page as a browser parses them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.scripts, self.text = [], [], [], []
        self.feed(text)
        self.rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        self.text.append(data)
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        elif self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    @property
    def content(self):
        return json.loads(self.scripts[0])


def parts_of(summary):
    return Parts(render_html(summary, plotly=""))


def two_seeds(**more):
    """Weights 0, 4 and 1 for seeds 0 and 1; on validation rows, weight 1 is the best, and there seed 1."""
    members, reports, validation = [], {}, {0.0: 0.7, 1.0: 0.95, 4.0: 0.5}
    for member, (seed, weight) in enumerate((s, w) for s in (0, 1) for w in (0.0, 4.0, 1.0)):
        gain = validation[weight] + 0.02 * seed
        members.append(made.member(member, weight, seed, utility=0.9 - 0.02 * weight, validation=gain))
        reports[member] = made.audit(made.attribute(0.6 - 0.1 * weight, strongest=0.65 - 0.1 * weight))
    return made.summary(members, reports, **more)


@pytest.fixture
def written(monkeypatch):
    """Makes `report` read a summary in place of a workdir."""

    def read(summary):
        monkeypatch.setattr(pages, "load_results", lambda workdir: summary.run)
        monkeypatch.setattr(pages, "load_reports", lambda workdir: summary.reports)
        monkeypatch.setattr(pages, "load_history", lambda workdir, member: summary.histories[member])
        monkeypatch.setattr(pages, "describe", lambda workdir, member: summary.header)

    return read


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """An audited sweep and its report."""
    workdir = tmp_path_factory.mktemp("swept") / "run"
    networks = privjax.nn_networks(64, num_outputs=2, num_private=10, private_widths=(7,), public_widths=(9,))
    data = privjax.datasets.load("digits")
    privjax.sweep(data, privacy_weights=[2.0, 0.0], networks=networks, num_epochs=1, workdir=workdir)
    privjax.audit_sweep(workdir, data, attackers=["quadratic"], n_jobs=1)
    return workdir, report(workdir)


def test_the_report_of_a_sweep(swept):
    workdir, page = swept
    assert page == workdir / "report" / "report.html"
    assert {path.name for path in page.parent.iterdir()} == {"report.html", "report.png", "report.md"}
    text = page.read_text(encoding="utf-8")
    assert 4e6 < len(text) < 8e6
    assert "Plotly" in text
    # 64 x 7 + 7, and the scaling's 2 x 64; a row is 64 x 7 multiply-adds.
    assert re.search(r"583 parameters, 2\.33\d? kB,\s+448 multiply-adds a row", text)
    assert "releases z (7 numbers)" in text
    parts = Parts(text)
    found = privjax.auditing.load_reports(workdir)[1].attributes["s"]
    member = privjax.load_results(workdir).find(1)
    (row,) = (row for row in parts.rows if row[0] == "1")
    assert f"{member.utility.test:.3f}" in row
    assert f"{found.best().value('accuracy'):.3f} quadratic" in row
    (losses, _, _) = parts.content["training"]["1"]
    assert losses[-1]["y"] == [pytest.approx(member.losses.objective, rel=1e-3)]
    # The workdir can still be audited and swept.
    privjax.audit_sweep(workdir, attackers=["quadratic"], n_jobs=1)


def test_the_same_sweep_gives_the_same_bytes(swept, tmp_path):
    workdir, page = swept
    other = report(workdir, to=tmp_path / "deep" / "other")
    for name in ("report.html", "report.png", "report.md"):
        assert (other.parent / name).read_bytes() == (page.parent / name).read_bytes()
    assert (other.parent / "report.png").read_bytes().startswith(PNG)


def test_the_page_needs_no_network():
    parts = Parts(render_html(two_seeds()))
    addresses = [value for _, attrs in parts.tags for key, value in attrs.items() if key in ("src", "href")]
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    (policy,) = [attrs["content"] for _, attrs in parts.tags if attrs.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert len(parts.scripts) == 3


def test_the_operating_point_is_selected_first():
    summary = two_seeds()
    content = parts_of(summary).content
    assert content["weights"][1] == {"label": "1", "members": [2, 5]}
    assert [weight["label"] for weight in content["weights"]] == ["0", "1", "4"]
    (found,) = summary.attributes
    assert found.label == "user"
    assert found.picks == (3, 5, 4)
    assert found.chosen == content["start"] == 5
    assert found.limits == pytest.approx({"constant guess": 0.12, "activity alone": 0.2})
    traces = {trace.get("name"): trace for trace in content["attributes"][0]["figure"]["data"]}
    assert traces["paper's attackers"]["x"] == pytest.approx([0.6, 0.5, 0.2])
    assert traces["paper's attackers"]["customdata"] == [3, 5, 4]
    assert traces["paper's attackers"]["marker"]["symbol"] == ["circle", "diamond", "circle"]
    assert traces["strongest attacker"]["x"] == pytest.approx([0.65, 0.55, 0.25])
    assert (traces["ideal"]["x"], traces["ideal"]["y"]) == ([pytest.approx(0.2)], [pytest.approx(0.9)])
    assert content["attributes"][0]["places"]["4"]["x"] == pytest.approx(0.2)


def test_commands_are_quoted_for_the_shell():
    text = "".join(parts_of(two_seeds(workdir="/tmp/it's a  run")).text)
    assert "privjax export '/tmp/it'\"'\"'s a  run' --member 5 --to encoder.onnx" in text
    own = "".join(parts_of(two_seeds(workdir="it's", networks="own")).text)
    assert 'privjax.load_encoder("it\'s", 5, networks=networks)' in own
    assert "The size of this encoder is unknown" in own


def test_every_member_is_a_row_and_every_setting_is_stated():
    parts = parts_of(two_seeds())
    rows = [row for row in parts.rows if row[0].isdigit()]
    assert [row[0] for row in rows] == ["0", "3", "2", "5", "1", "4"]
    cells = ["4", "0", "converged", "3", "0.500", "0.820", "user", "0.200", "0.250 quadratic", "0.250"]
    assert rows[4][1:] == cells
    text = "".join(parts.text)
    for fact in ("c0ffee", "hash-0", '"jax": "0.10.2"', '"devices": 2', "12.5", "plateau", "standard"):
        assert fact in text
    for limit in ("lower bound", "Only the private variable", "not differential privacy", "leaks by itself"):
        assert limit in text


def test_the_audit_table_ranks_attackers_and_shows_failures():
    parts = parts_of(two_seeds())
    table = [row for row in parts.rows if len(row) == 4][:6]
    assert [row[0].split()[0] for row in table] == [
        "attacker",
        *("quadraticC", "random_forestthe", "linear_svmthe", "networkthe", "activity"),
    ]
    assert table[1][1] == "0.550 [0.530, 0.570]"
    assert table[2][0] == "random_forestthe paper's; C 0.1"
    assert "failed: ValueError: it <b>broke</b>" in table[4][0]
    assert table[4][1] == "none"
    assert table[5][0] == "activity alone"


def test_names_are_never_markup(tmp_path, written):
    weight = {EVIL: 1.0, "age": 2.0}
    attacks = (made.attack(EVIL, 0.4), made.attack("network", None, failed=EVIL))
    found = made.attribute(0.4, name=EVIL, attacks=attacks), made.attribute(0.3, name="age", discrete=False)
    members = [made.member(i, weight, i, objective=EVIL, status=EVIL) for i in (0, 1)]
    reports = {i: made.audit(*found) for i in (0, 1)}
    data = {"name": EVIL, "y_names": (EVIL,), "private": (), "load_spec": None}
    summary = made.summary(members, reports, objective=EVIL, networks=EVIL, **data)
    text = render_html(summary, plotly="")
    parts = Parts(text)
    assert len(parts.scripts) == 3
    assert parts.content["weights"][0]["label"] == f"{EVIL} 1, age 2"
    assert EVIL in parts.text
    # The parser detects a name that is not escaped: it ends the script early.
    with pytest.raises(json.JSONDecodeError):
        assert Parts(text.replace("\\u003c", "<").replace("\\u003e", ">")).content
    table = render_markdown(summary)
    assert "<script" not in table.replace("\\<", "")
    for line in table.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7
    written(summary)
    page = report(tmp_path / "run", to=tmp_path / "out")
    assert EVIL.replace("\ud800", "?") in Parts(page.read_text(encoding="utf-8")).text


def test_a_sweep_without_audits():
    members = [made.member(i, float(i), 0, utility=0.9 - 0.1 * i) for i in range(3)]
    summary = made.summary(members, workdir="a run", complete=False)
    parts = parts_of(summary)
    text = " ".join("".join(parts.text).split())
    assert "privjax audit 'a run'" in text
    assert "0 of 3 members audited" in text
    assert "3 of 3 members are trained" in text
    assert not [attrs for _, attrs in parts.tags if attrs.get("id") == "curve"]
    assert parts.content["start"] == 0
    assert "| 2 | 2 | 0 | converged | 0.700 |" in render_markdown(summary)
    assert draw_png(summary).startswith(PNG)


def test_members_that_diverged_or_are_not_audited_yet():
    members = [
        made.member(0, 0.0, 0),
        made.member(1, 1.0, 0),
        made.member(2, 2.0, 0, utility=None, status="diverged", effective_rank=None, live_units=None),
        made.member(3, 3.0, 0, utility=None),
    ]
    reports = {0: made.audit(made.attribute(0.5)), 3: made.audit(made.attribute(0.1))}
    summary = made.summary(members, reports, histories={0: made.history(3)})
    (found,) = summary.attributes
    assert [point.member for point in found.curve.points] == [0]
    assert found.picks == (0, 1, 2, 3)
    parts = parts_of(summary)
    text = " ".join("".join(parts.text).split())
    for notice in ("2 of 4 members audited", "1 member diverged", "Without 3 members"):
        assert notice in text
    rows = {row[0]: row for row in parts.rows}
    assert rows["1"][-1] == "not audited"
    assert rows["2"][-2] == "none"
    assert list(parts.content["training"]) == ["0"]


def test_several_private_variables_and_a_continuous_utility():
    members = [made.member(i, w, 0, utility=1 - 9 * w) for i, w in enumerate((0.0, 0.3))]
    reports = {
        i: made.audit(
            made.attribute(0.5 - m.privacy_weight, name="s[0]"),
            made.attribute(-3.0 * m.privacy_weight, name="s[1]", discrete=False),
        )
        for i, m in enumerate(members)
    }
    summary = made.summary(members, reports, private=("user", "age"), y_names=())
    assert [a.label for a in summary.attributes] == ["user", "age"]
    assert [a.score for a in summary.attributes] == ["accuracy", "R²"]
    assert summary.utility_score == "R²"
    age = summary.attributes[1]
    assert age.limits["constant guess"] == 0.0
    axes = curve_figure(age, summary)["layout"]
    # The member at -1.7 is out of view.
    assert min(axes["yaxis"]["range"][0], axes["xaxis"]["range"][0]) > -0.5
    assert len([row for row in parts_of(summary).rows if row[0] == "1"]) == 2
    assert draw_png(summary).startswith(PNG)


def test_intervals_are_clipped_to_possible_scores():
    members = [made.member(i, 1.0, i, utility=u) for i, u in enumerate((0.99, 0.80))]
    reports = {i: made.audit(made.attribute(leakage)) for i, leakage in enumerate((0.05, 0.01))}
    summary = made.summary(members, reports)
    (point,) = summary.attributes[0].curve.points
    assert point.utility.value == pytest.approx(0.895)
    assert point.utility.interval[0] < 0.5
    assert point.utility.interval[1] == 1.0
    assert point.leakage.interval[0] == 0.0
    low, high = curve_figure(summary.attributes[0], summary)["layout"]["yaxis"]["range"]
    assert 0.7 < low < 0.8  # the axis holds both members and cuts the interval, which is wide
    assert high > 0.99


def test_long_histories_are_thinned():
    losses, measures, z = training_traces(made.history(1000), members=200)
    assert [trace["name"] for trace in losses] == ["utility", "privacy", "objective"]  # no discriminator ran
    assert losses[0]["x"][0] == 1
    assert losses[0]["x"][-1] == 1000
    assert 50 <= len(losses[0]["x"]) <= 100
    assert losses[-1]["y"][-1] == pytest.approx(1e-3)
    names = [trace["name"] for trace in measures + z]
    assert names == ["utility", "ridge probe", "effective rank", "live units"]
    ((short, *_), *_) = training_traces(made.history(3), members=200)
    assert short["x"] == [1, 2, 3]


def test_a_page_stays_until_its_replacement_is_complete(tmp_path, written, monkeypatch):
    written(two_seeds())
    page = report("run", to=tmp_path)
    before = page.read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        report("run", to=tmp_path)
    assert page.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


def test_errors_state_the_remedy(tmp_path, written, monkeypatch):
    with pytest.raises(FileNotFoundError, match="workdir of a sweep"):
        report(tmp_path)
    written(made.summary([made.member(0, 1.0, 0)]))
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="to must be a folder"):
        report("run", to=tmp_path / "file")
    monkeypatch.setattr(pages, "load_results", lambda workdir: made.run([]))
    with pytest.raises(ValueError, match="run has no finished member yet"):
        report("run")

    def absent(name):
        raise ModuleNotFoundError(name, name="jinja2")

    monkeypatch.setattr(extras.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"jinja2 is not installed: .*pip install 'privjax\[report\]'"):
        report("run")


def test_readers_without_scripts_see_the_operating_point():
    text = render_html(two_seeds(), b"drawn", plotly="")
    assert f"data:image/png;base64,{base64.b64encode(b'drawn').decode()}" in text
    visible = re.sub(r"<template.*?</template>", "", text, flags=re.S)
    assert "Member 5: weight 1, seed 1" in visible
    assert "Audit of member 5" in visible
    assert "Member 4: weight" not in visible


def test_the_size_of_the_encoder_is_stated():
    header = types.SimpleNamespace(width=1, parameters=1, bytes=2_500_000, multiply_adds=1_000_000)
    text = " ".join("".join(parts_of(two_seeds(header=header)).text).split())
    assert "1 parameter, 2500 kB, 1,000,000 multiply-adds a row" in text
    assert "releases z (1 number)" in text


def test_the_markdown_table():
    text = render_markdown(two_seeds())
    assert "| 4 | 0.820 [0.820, 0.820] | 0.200 [0.200, 0.200] | 0.250 [0.250, 0.250] | 2 | yes |" in text
    assert "An attacker without z scores 0.200 (activity alone)." in text
    assert "Member 5 is chosen on validation rows:" in text
    assert "    privjax export runs/people --member 5 --to encoder.onnx" in text
