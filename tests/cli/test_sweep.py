"""The command on a user's own table: swept, stopped and resumed, attacked, exported, applied, reported."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import privjax
from privjax.cli.app import app
from privjax.cli.audit import operating_point

TINY = ("--epochs", "12", "--batch-size", "100", "--width", "4")
WEIGHTS = ("--weights", "0,1,4,16,64,256")


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="privjax")
    assert done.exit_code == code, (done.output, done.exception)
    return done


def sweep_of(folder, out):
    columns = ("--utility", "activity", "--private", "user", "--out", str(folder / out))
    return ("sweep", "--data", str(folder / "people.csv"), *columns, *TINY, *WEIGHTS)


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A table in which users differ, and its undisturbed sweep in `whole`."""
    folder = tmp_path_factory.mktemp("people")
    generator = np.random.default_rng(0)
    activity, user = generator.integers(0, 2, 240), np.arange(240) % 3
    x = generator.normal(size=(240, 4)) + 3 * np.stack([activity, user, activity - user, 0 * user], axis=1)
    lines = ["activity,user,a,b,c,d,[bold]"]
    for i in range(240):
        cells = [("sit", "walk")[activity[i]], f"u{user[i]}", *x[i], ("é", "[red]")[i % 2]]
        lines.append(",".join(map(str, cells)))
    (folder / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run(*sweep_of(folder, "whole"))
    # A log, as a test is no terminal: few lines, on stderr alone.
    assert "sweep: 6/6 members" in done.stderr
    assert len(done.stderr.splitlines()) < 12
    assert "sweep:" not in done.stdout
    assert len(re.findall(r"^ *\d+ .* finished", done.stdout, re.M)) == 6
    assert f"privjax audit {folder / 'whole'}" in done.stdout
    return folder


@pytest.fixture(scope="module")
def audited(people):
    run("audit", people / "whole", "--adversaries", "linear_svm,quadratic", "--jobs", 1, "--progress", "off")
    return people / "whole"


def same(first, second):
    a, b = privjax.load_results(first), privjax.load_results(second)
    assert [m["losses"] for m in a["members"]] == [m["losses"] for m in b["members"]]
    histories = [[privjax.load_history(folder, k) for k in range(6)] for folder in (first, second)]
    assert histories[0] == histories[1]
    x = np.eye(6, dtype=np.float32)
    for k in range(6):
        np.testing.assert_array_equal(privjax.load_encoder(first, k)(x), privjax.load_encoder(second, k)(x))


def test_ctrl_c_leaves_a_sweep_that_the_printed_command_ends(people):
    """Stopped by SIGINT after its first member: code 130, the command again, and bitwise the same end."""
    # The shell that runs the tests may ignore SIGINT, and a child would do so as well.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    code = f"{start} import sys; sys.argv[0] = 'privjax'; from privjax.cli import main; main()"
    arguments = sweep_of(people, "stopped run")
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "sweep: 1/6 members" in line:
            process.send_signal(signal.SIGINT)
            break
    out, error = process.communicate()
    assert process.returncode == 130, error
    assert out == ""
    assert "Traceback" not in error
    left = privjax.load_results(people / "stopped run")
    assert not left["complete"]
    assert 1 <= len(left["members"]) < 6
    again = shlex.split(error.rpartition("To go on, run: ")[2])
    assert again == ["privjax", *arguments]
    run(*again[1:])
    same(people / "stopped run", people / "whole")
    # The same folder is refused for another sweep, which is what makes the comparison one.
    done = run(*again[1:], "--seed", 1, code=1)
    assert "was made for another sweep" in done.stderr


def test_json_is_the_results_file_and_all_of_stdout(people):
    """Also where every member is done and nothing is trained."""
    before = privjax.load_results(people / "whole")
    found = json.loads(run(*sweep_of(people, "whole"), "--json").stdout)
    assert found["members"] == privjax.load_results(people / "whole")["members"]
    assert found["data"]["content_hash"] == before["data"]["content_hash"]
    assert found["data"]["private"]


def test_an_audit_is_a_table_and_stays_in_the_results(audited):
    done = run("audit", audited, "--adversaries", "linear_svm,quadratic", "--jobs", 1)
    members = privjax.load_results(audited)["members"]
    attacks = []
    for member in members:
        (found,) = member["audit"]["attributes"].values()
        failed = {name: attack["failed"] for name, attack in found["attackers"].items()}
        assert failed == {"linear_svm": None, "quadratic": None}
        attacks.append(found["adversary_accuracy"])
        row = next(line for line in done.stdout.splitlines() if line.split()[:1] == [str(member["point"])])
        assert f"{found['adversary_accuracy']:.3f}" in row
        assert f"{found['majority']:.3f}" in row
    assert attacks[0] > 0.6  # without privacy the user is there to be found
    assert "privjax export" in done.stdout
    one = json.loads(run("audit", audited, "--points", "2", "--adversaries", "quadratic", "--json").stdout)
    assert set(next(iter(one["members"][2]["audit"]["attributes"].values()))["attackers"]) == {"quadratic"}
    run("audit", audited, "--adversaries", "linear_svm,quadratic", "--jobs", 1)  # as the others expect it


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--points", "6"), "6 of them"),
        (("--adversaries", "magic"), "magic"),
    ],
)
def test_an_audit_that_cannot_be_done(people, arguments, says):
    assert says in run("audit", people / "whole", *arguments, code=1).stderr


def test_an_export_is_of_the_point_asked_for_or_of_the_one_chosen(people, audited, tmp_path):
    x = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    given = json.loads(run("export", audited, "--point", 3, "--to", tmp_path / "three.npz", "--json").stdout)
    assert (given["member"], given["privacy_weight"]) == (3, 16.0)
    done = run("export", audited, "--to", tmp_path / "chosen.npz")
    curve = privjax.pareto(audited)["mmd"]
    number = curve.operating_point()
    assert number is not None
    weight = curve.points[number].privacy_weight
    point = [member["privacy_weight"] for member in privjax.load_results(audited)["members"]].index(weight)
    assert f"point {point} (weight {weight:g}, seed 0), the best on validation rows" in done.stdout
    from privjax.exporting import runner

    encoder = privjax.load_encoder(audited, 3)
    released = runner.load(tmp_path / "three.npz")(x * encoder.spread + encoder.shift)
    np.testing.assert_allclose(released, encoder(x), atol=1e-5)
    assert runner.load(tmp_path / "chosen.npz").header.member == point


def test_an_export_needs_a_point_where_none_was_audited(people, tmp_path):
    members = privjax.load_results(people / "whole")
    for member in members["members"]:
        member.pop("audit", None)
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(members))
    done = run("export", folder, "--to", tmp_path / "e.npz", code=1)
    assert "--point" in done.stderr
    assert not (tmp_path / "e.npz").exists()
    assert ".exe" in run("export", people / "whole", "--point", 0, "--to", tmp_path / "e.exe", code=1).stderr
    assert "99" in run("export", people / "whole", "--point", 99, "--to", tmp_path / "e.npz", code=1).stderr


def test_rows_are_released_through_an_exported_encoder(people, tmp_path):
    run("export", people / "whole", "--point", 1, "--to", tmp_path / "e.npz")
    found = run("apply", tmp_path / "e.npz", people / "people.csv", "--to", tmp_path / "z.npy", "--json")
    assert json.loads(found.stdout)["rows"] == 240
    data = privjax.datasets.from_table(people / "people.csv", utility="activity", private="user")
    expected = privjax.load_encoder(people / "whole", 1)(data.x)
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), expected, atol=1e-5)
    done = run("apply", tmp_path / "e.npz", people / "people.csv", "--to", tmp_path / "z.csv")
    assert "240 rows of 4 numbers" in done.stdout
    assert len((tmp_path / "z.csv").read_text().splitlines()) == 241
    whole = (tmp_path / "e.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    assert (
        "cut.npz"
        in run(
            "apply", tmp_path / "cut.npz", people / "people.csv", "--to", tmp_path / "no.csv", code=1
        ).stderr
    )
    assert not (tmp_path / "no.csv").exists()


def test_the_report_is_written_where_it_is_asked_for(audited, tmp_path):
    pytest.importorskip("plotly")
    found = json.loads(run("report", audited, "--to", tmp_path / "report", "--json").stdout)
    assert found == {"page": str(tmp_path / "report" / "report.html")}
    for name in ("report.html", "report.png", "report.md"):
        assert (tmp_path / "report" / name).stat().st_size > 0
    assert run("report", audited).stdout == f"{audited / 'report' / 'report.html'}\n"


def test_a_folder_that_cannot_be_is_refused(people):
    for out in ("people.csv", "people.csv/run"):
        done = run(*sweep_of(people, out), code=1)
        assert "people.csv" in done.stderr
        assert "folder" in done.stderr
    assert (people / "people.csv").read_text().startswith("activity,user")


def test_of_several_seeds_the_best_on_validation_rows_is_chosen(audited):
    """Members as an audit leaves them, with scores that say which is to be taken."""
    template = privjax.load_results(audited)["members"][0]

    def member(point, weight, seed, utility, leakage):
        found = json.loads(json.dumps(template)) | {"point": point, "privacy_weight": weight, "seed": seed}
        found["utility"] = {"test": 0.5, "validation": utility}
        (attribute,) = found["audit"]["attributes"].values()
        attribute["validation"] = {"adversary": leakage, "strongest": None}
        return found

    members = [member(0, 1.0, 0, 0.9, 0.9), member(1, 4.0, 0, 0.8, 0.3), member(2, 1.0, 1, 0.9, 0.5)]
    members.append(member(3, 4.0, 1, 0.8, 0.2))
    assert operating_point({"members": members}) == members[3]
    assert operating_point({"members": members[:1] + members[2:3]}) == members[2]
    assert operating_point({"members": [member(0, 1.0, 0, None, None)]}) is None


def test_a_terminal_has_a_bar_and_narrow_ones_no_cut_numbers(people):
    """stderr is a terminal, stdout is not: the bar on one, nothing but the result on the other."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "privjax.cli", *sweep_of(people, "whole")],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | {"COLUMNS": "40", "NO_COLOR": "1", "TERM": "xterm"},
        )
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while part := terminal.read(4096):
                seen += part
        out = process.communicate()[0].decode()
    assert process.returncode == 0
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}".encode() in seen
    assert "\x1b" not in out
    utility = privjax.load_results(people / "whole")["members"][2]["utility"]["test"]
    assert f"point 2, weight 4, seed 0, utility {utility:.3f}," in out
