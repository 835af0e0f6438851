"""The report's numbers, names and files; `test_report_browser.py` looks at the page itself."""

import base64
import html.parser
import json
import os
import re

import pytest
import synthetic_results as made

import privjax
from privjax import extras
from privjax.reporting import report
from privjax.reporting.content import make_content
from privjax.reporting.markdown import make_markdown
from privjax.reporting.page import make_page
from privjax.reporting.picture import make_picture

EVIL = "</script><script>alert(1)</script><!--<script> \"q\" 'p' & {{content}} $x$ |中😀\ud800`b`"
PNG = b"\x89PNG\r\n\x1a\n"


class Parts(html.parser.HTMLParser):
    """What a browser would make of a page: its tags, the text of its cells, what its scripts hold."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.scripts, self.text = [], [], [], []
        self.feed(text)

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


def page_of(folder):
    return make_page(make_content(folder), picture=b"", plotly="")


def two_seeds(tmp_path, **more):
    """Weights 0, 1 and 4 for seeds 0 and 1; validation rows prefer weight 1, and there seed 1."""
    members, held_out = [], {0.0: 0.7, 1.0: 0.95, 4.0: 0.5}
    for point, (seed, weight) in enumerate((s, w) for s in (0, 1) for w in (0.0, 4.0, 1.0)):
        found = made.attribute(0.6 - 0.1 * weight, strongest=0.65 - 0.1 * weight)
        audit, better = {"s": found}, held_out[weight] + 0.02 * seed
        members.append(
            made.member(point, weight, seed, utility=0.9 - 0.02 * weight, audit=audit, validation=better)
        )
    return made.write(tmp_path / "it's a run", members, **more)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A real sweep, audited, and its report."""
    folder = tmp_path_factory.mktemp("swept") / "run"
    networks = privjax.nn_networks(64, num_outputs=2, num_private=10, private_widths=(7,), public_widths=(9,))
    data = privjax.datasets.load("digits")
    privjax.sweep(data, privacy_weights=[0.0, 2.0], networks=networks, num_epochs=1, workdir=folder)
    privjax.audit_sweep(folder, data, adversaries=["quadratic"], n_jobs=1)
    return folder, report(folder)


def test_a_real_sweep_gives_a_whole_page(swept):
    folder, page = swept
    assert page == folder / "report" / "report.html"
    assert {path.name for path in page.parent.iterdir()} == {"report.html", "report.png", "report.md"}
    text = page.read_text(encoding="utf-8")
    assert 4e6 < len(text) < 8e6
    assert "Plotly" in text
    content = make_content(folder)
    # 64 x 7 + 7, and the scaling's 2 x 64; a row is 64 x 7 multiply-adds.
    assert "583 parameters, 2.33 kB, 448 multiply-adds a row" in text
    assert "leaves the device as z of 7 numbers" in text
    member = privjax.load_results(folder)["members"][1]
    shown = content["members"][1]
    assert shown["utility"] == member["utility"]
    assert shown["audit"]["s"]["strongest"]["value"] == member["audit"]["strongest"]["accuracy"]
    assert shown["history"]["charts"][0]["lines"]["objective"] == [
        pytest.approx(member["losses"]["objective"], rel=1e-3)
    ]
    (row,) = (row for row in Parts(text).rows if row[0] == "1")
    assert f"{member['utility']['test']:.3f}" in row
    # The library goes on in a folder that holds a report.
    privjax.audit_sweep(folder, adversaries=["quadratic"], n_jobs=1)


def test_the_same_sweep_gives_the_same_bytes(swept, tmp_path):
    folder, page = swept
    again = report(folder, to=tmp_path / "deep" / "other")
    for name in ("report.html", "report.png", "report.md"):
        assert (again.parent / name).read_bytes() == (page.parent / name).read_bytes()
    assert (again.parent / "report.png").read_bytes().startswith(PNG)


def test_it_asks_nothing_of_a_network(swept):
    parts = Parts(swept[1].read_text(encoding="utf-8"))
    addresses = [value for _, attrs in parts.tags for key, value in attrs.items() if key in ("src", "href")]
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    policy = [attrs["content"] for tag, attrs in parts.tags if attrs.get("http-equiv")]
    assert policy[0].startswith("default-src 'none'")
    assert len(parts.scripts) == 5


def test_points_picks_and_the_choice(tmp_path):
    content = make_content(two_seeds(tmp_path))
    assert [w["label"] for w in content["weights"]] == ["0", "1", "4"]
    assert [w["points"] for w in content["weights"]] == [[0, 3], [2, 5], [1, 4]]
    (found,) = content["attributes"]
    assert found["label"] == "user"
    assert found["picks"] == [3, 5, 4]
    assert found["chosen"] == content["start"] == 5
    assert found["points"][2]["leakage"] == pytest.approx([0.2, 0.2, 0.2])
    assert found["points"][0]["strongest"][0] == pytest.approx(0.65)
    assert found["front"] == [0, 1, 2]
    assert (found["guess"], found["floor"]) == pytest.approx((0.12, 0.2))
    assert found["ideal"] == pytest.approx([0.2, 0.9])
    # Test numbers do not move the choice; validation numbers do.
    results = json.loads((tmp_path / "it's a run" / "results.json").read_text())
    for number, part, chosen in ((0.0, "test", 5), (9.0, "validation", 3)):
        results["members"][3]["utility"][part] = number
        (tmp_path / "it's a run" / "results.json").write_text(json.dumps(results))
        assert make_content(tmp_path / "it's a run")["start"] == chosen


def test_commands_are_quoted_for_the_shell(tmp_path):
    folder = two_seeds(tmp_path)
    content = make_content(folder)
    assert "7".join(content["command"]) == (
        f"privjax export '{tmp_path}/it'\"'\"'s a run' --point 7 --to encoder.onnx"
    )
    config = {"networks": {"kind": "own"}}
    own = made.write(tmp_path / "own", [made.member(0, 1.0, 0)], config=config)
    assert make_content(own)["command"] == [f"privjax.load_encoder('{own}', ", ", networks=networks)"]
    assert "The size of this encoder is not known" in page_of(own)


def test_every_point_is_a_row_and_every_fact_is_told(tmp_path):
    text = page_of(two_seeds(tmp_path))
    rows = [row for row in Parts(text).rows if row[0].isdigit()]
    assert [row[0] for row in rows] == ["0", "3", "2", "5", "1", "4"]
    assert rows[4][1:] == ["4", "0", "converged", "3", "0.500", "0.820", "0.200", "0.250 quadratic", "0.250"]
    for fact in ("c0ffee", "seed 0: hash-0", "jax 0.10.2", "cpu, 2 devices", "12.5", "plateau", "standard"):
        assert fact in text
    for promise in ("lower bound", "Only the named attribute", "not differential privacy", "y alone"):
        assert promise in text


def test_names_are_never_markup(tmp_path):
    weight = {EVIL: 1.0, "age": 2.0}
    audit = {EVIL: made.attribute(0.4), "age": made.attribute(0.3, kind="continuous")}
    audit[EVIL]["attackers"][EVIL] = audit[EVIL]["attackers"].pop("quadratic")
    audit[EVIL]["strongest"]["attacker"] = EVIL
    members = [made.member(i, weight, i, audit=audit, objective=EVIL, status=EVIL) for i in (0, 1)]
    data = {"name": EVIL, "y_names": [EVIL], "private": None, "scale": EVIL, "again": None}
    config = {"objective": {"settings": {EVIL: EVIL}}, "networks": {"kind": EVIL}}
    folder = made.write(tmp_path / "run", members, data=data, config=config)
    text = page_of(folder)
    parts = Parts(text)
    assert len(parts.scripts) == 5
    assert json.loads(parts.scripts[0])["attributes"][0]["label"] == EVIL
    assert EVIL in parts.text
    # The same parser does see a name that is not escaped: it ends the data early.
    broken = Parts(text.replace("\\u003c", "<").replace("\\u003e", ">"))
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken.scripts[0])
    table = make_markdown(make_content(folder))
    assert "<script" not in table.replace("\\<", "")
    for line in table.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7
    page = report(folder, to=tmp_path / "out")  # drawn and written as well
    assert EVIL.replace("\ud800", "?") in Parts(page.read_text(encoding="utf-8")).text


def test_a_sweep_that_was_not_audited(tmp_path):
    members = [made.member(i, float(i), 0, utility=0.9 - 0.1 * i) for i in range(3)]
    folder = made.write(tmp_path / "run", members, complete=False)
    text = page_of(folder)
    assert f"privjax audit {folder}" in text
    assert "No point was audited" in text
    assert 'id="curve"' not in text
    assert "3 of 2 points" in text
    assert make_content(folder)["start"] == 0
    assert "| 2 | 2 | 0 | converged | 0.700 |" in make_markdown(make_content(folder))
    assert make_picture(make_content(folder)).startswith(PNG)


def test_points_that_diverged_or_are_not_audited_yet(tmp_path):
    members = [
        made.member(0, 0.0, 0, audit={"s": made.attribute(0.5)}),
        made.member(1, 1.0, 0),
        made.member(2, 2.0, 0, utility=None, status="diverged", effective_rank=None, live_units=None),
        made.member(3, 3.0, 0, utility=None, audit={"s": made.attribute(0.1)}),
    ]
    folder = made.write(tmp_path / "run", members)
    (folder / "members" / "point-0001.json").write_text("{")
    content = make_content(folder)
    (found,) = content["attributes"]
    assert [point is not None for point in found["points"]] == [True, False, False, False]
    assert content["members"][1]["history"] is None
    text = page_of(folder)
    assert "2 points of 4 not audited" in text
    assert "1 point diverged" in text
    assert "3 points not drawn" in text
    rows = {row[0]: row for row in Parts(text).rows}
    assert rows["1"][-3] == "not audited"
    assert rows["2"][-4] == "none"


def test_continuous_and_several_variables(tmp_path):
    def found(weight):
        return {
            "s[0]": made.attribute(0.5 - weight),
            "s[1]": made.attribute(-3.0 * weight, kind="continuous"),
        }

    members = [made.member(i, w, 0, audit=found(w), utility=1 - 9 * w) for i, w in enumerate((0.0, 0.3))]
    folder = made.write(tmp_path / "run", members, data={"private": ["user", "age"], "y_names": []})
    content = make_content(folder)
    assert [a["label"] for a in content["attributes"]] == ["user", "age"]
    assert [a["score"] for a in content["attributes"]] == ["accuracy", "R²"]
    assert content["utility"]["score"] == "R²"
    age = content["attributes"][1]
    assert age["guess"] == 0.0
    assert age["left_out"] == 1  # an R^2 of -1.7 would flatten the chart
    assert age["y"][0] > -0.5
    assert len([row for row in Parts(page_of(folder)).rows if row[0] == "1"]) == 2
    assert make_picture(content).startswith(PNG)


def test_intervals_stay_where_scores_can_be(tmp_path):
    members = [
        made.member(i, 1.0, i, utility=u, audit={"s": made.attribute(leak)})
        for i, (u, leak) in enumerate(((0.99, 0.05), (0.80, 0.01)))
    ]
    (found,) = make_content(made.write(tmp_path / "run", members))["attributes"]
    mean, low, high = found["points"][0]["utility"]
    assert (mean, high) == (pytest.approx(0.895), 1.0)
    assert 0.0 <= low < 0.5
    assert found["points"][0]["leakage"][1] == 0.0
    assert found["y"][0] > 0.8  # the interval is cut rather than the means squeezed


def test_long_histories_are_thinned(tmp_path):
    members = [made.member(i, float(i), 0, audit={"s": made.attribute(0.5)}) for i in range(200)]
    folder = made.write(tmp_path / "run", members, histories={i: made.history(1000) for i in (0, 199)})
    content = make_content(folder)
    kept = content["members"][199]["history"]
    assert kept["epochs"][0] == 1
    assert kept["epochs"][-1] == 1000
    assert 100 <= len(kept["epochs"]) <= 125
    assert kept["charts"][0]["lines"]["objective"][-1] == pytest.approx(1e-3)
    assert len(content["members"][5]["history"]["epochs"]) == 3  # a short one is whole
    assert "discriminator" not in kept["charts"][0]["lines"]  # there was none


def test_an_old_page_stays_until_the_new_one_is_whole(swept, tmp_path, monkeypatch):
    folder, _ = swept
    page = report(folder, to=tmp_path)
    before = page.read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        report(folder, to=tmp_path)
    assert page.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


def test_what_cannot_be_reported_is_told(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="is not there: is .* the workdir of a sweep"):
        report(tmp_path)
    with pytest.raises(ValueError, match="no finished point yet"):
        report(made.write(tmp_path / "none", []))
    mixed = [made.member(0, 1.0, 0), made.member(1, 1.0, 0, objective="kdi")]
    with pytest.raises(ValueError, match="several objectives"):
        report(made.write(tmp_path / "mixed", mixed))
    folder = made.write(tmp_path / "run", [made.member(0, 1.0, 0)])
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="to must be a folder"):
        report(folder, to=tmp_path / "file")

    def absent(name):
        raise ModuleNotFoundError(name, name="plotly")

    monkeypatch.setattr(extras.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"plotly is not installed: pip install 'privjax\[report\]'"):
        report(folder)


def test_the_picture_for_readers_without_scripts(tmp_path):
    content = make_content(two_seeds(tmp_path))
    text = make_page(content, picture=b"drawn", plotly="")
    assert f"data:image/png;base64,{base64.b64encode(b'drawn').decode()}" in text


def test_the_markdown_table(tmp_path):
    text = make_markdown(make_content(two_seeds(tmp_path)))
    assert "| 4 | 0.820 [0.820, 0.820] | 0.200 [0.200, 0.200] | 0.250 [0.250, 0.250] | 2 | yes |" in text
    assert (
        "A blind guess scores 0.120. activity alone gives away 0.200. Chosen on validation rows is point 5:"
        in text
    )
    assert "--point 5 --to encoder.onnx" in text
