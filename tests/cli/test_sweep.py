"""The command on a user's table: sweep, stop and resume, audit, export, apply, report."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import privjax
from privjax.cli.commands import app

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
    # A test has no terminal, so progress is a short log, on stderr only.
    assert "sweep: 6/6 members" in done.stderr
    assert len(done.stderr.splitlines()) < 12
    assert "sweep:" not in done.stdout
    assert len(re.findall(r"^ *\d+ .* finished", done.stdout, re.M)) == 6
    assert f"privjax audit {folder / 'whole'}" in done.stdout
    return folder


@pytest.fixture(scope="module")
def audited(people):
    run("audit", people / "whole", "--attackers", "linear_svm,quadratic", "--jobs", 1, "--progress", "off")
    return people / "whole"


def same(first, second):
    a, b = privjax.load_results(first), privjax.load_results(second)
    assert a.members == b.members
    for k in range(6):
        histories = [privjax.load_history(folder, k) for folder in (first, second)]
        jax.tree.map(np.testing.assert_array_equal, *histories)
    x = np.eye(6, dtype=np.float32)
    for k in range(6):
        np.testing.assert_array_equal(privjax.load_encoder(first, k)(x), privjax.load_encoder(second, k)(x))


@pytest.mark.slow
def test_the_printed_command_resumes_a_sweep_after_ctrl_c(people):
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
    assert not left.complete
    assert 1 <= len(left.members) < 6
    printed = shlex.split(error.rpartition("To resume, run: ")[2])
    assert printed == ["privjax", *arguments]
    run(*printed[1:])
    same(people / "stopped run", people / "whole")
    # The same folder refuses another sweep.
    done = run(*printed[1:], "--seed", 1, code=1)
    assert "belongs to another sweep" in done.stderr


def test_json_equals_the_results_file(people):
    """Also where every member is finished and no training is left."""
    before = privjax.load_results(people / "whole")
    found = json.loads(run(*sweep_of(people, "whole"), "--json").stdout)
    assert found["members"] == privjax.load_results(people / "whole").to_dict()["members"]
    assert found["data"]["content_hash"] == before.data.content_hash
    assert found["data"]["private"]


def test_an_audit_prints_a_table_and_keeps_its_reports(audited):
    done = run("audit", audited, "--attackers", "linear_svm,quadratic", "--jobs", 1)
    reports = privjax.load_reports(audited)
    assert sorted(reports) == list(range(6))
    for member, report in reports.items():
        (found,) = report.attributes.values()
        assert {a.name: a.failed for a in found.attacks} == {"linear_svm": None, "quadratic": None}
        row = next(line for line in done.stdout.splitlines() if line.split()[:1] == [str(member)])
        assert f"{report.leakage:.3f}" in row
        assert f"{found.majority:.3f}" in row
    assert reports[0].leakage > 0.6  # without privacy the user is easy to find
    assert "privjax export" in done.stdout
    one = json.loads(run("audit", audited, "--members", "2", "--attackers", "quadratic", "--json").stdout)
    assert set(one) == {"2"}
    assert [a["name"] for a in next(iter(one["2"]["attributes"].values()))["attacks"]] == ["quadratic"]
    run("audit", audited, "--attackers", "linear_svm,quadratic", "--jobs", 1)  # as other tests expect


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--members", "6"), "6"),
        (("--attackers", "magic"), "magic"),
    ],
)
def test_impossible_audits_are_refused(people, arguments, says):
    assert says in run("audit", people / "whole", *arguments, code=1).stderr


def test_an_export_takes_the_given_member_or_the_operating_point(audited, tmp_path):
    x = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    given = json.loads(run("export", audited, "--member", 3, "--to", tmp_path / "three.npz", "--json").stdout)
    assert (given["member"], given["privacy_weight"]) == (3, 16.0)
    done = run("export", audited, "--to", tmp_path / "chosen.npz")
    point = privjax.pareto(audited).operating_point()
    assert point is not None
    assert f"member {point.member}, the best on validation rows" in done.stdout
    for member, name in ((3, "three"), (point.member, "chosen")):
        np.save(tmp_path / "rows.npy", x)
        run("apply", tmp_path / f"{name}.npz", tmp_path / "rows.npy", "--to", tmp_path / "z.npy")
        expected = privjax.load_encoder(audited, member)(x)
        np.testing.assert_allclose(np.load(tmp_path / "z.npy"), expected, atol=1e-5)


def test_an_export_needs_a_member_where_no_audit_exists(people, tmp_path):
    shutil.copytree(people / "whole", tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "audit", ignore_errors=True)
    done = run("export", tmp_path / "bare", "--to", tmp_path / "e.npz", code=1)
    assert "--member" in done.stderr
    assert not (tmp_path / "e.npz").exists()
    assert ".exe" in run("export", people / "whole", "--member", 0, "--to", tmp_path / "e.exe", code=1).stderr
    assert "99" in run("export", people / "whole", "--member", 99, "--to", tmp_path / "e.npz", code=1).stderr


def test_rows_are_released_through_an_exported_encoder(people, tmp_path):
    run("export", people / "whole", "--member", 1, "--to", tmp_path / "e.npz")
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


def test_the_report_is_written_to_the_given_folder(audited, tmp_path):
    pytest.importorskip("plotly")
    found = json.loads(run("report", audited, "--to", tmp_path / "report", "--json").stdout)
    assert found == {"page": str(tmp_path / "report" / "report.html")}
    for name in ("report.html", "report.png", "report.md"):
        assert (tmp_path / "report" / name).stat().st_size > 0
    assert run("report", audited).stdout == f"{audited / 'report' / 'report.html'}\n"


def test_a_path_that_is_a_file_is_refused(people):
    for out in ("people.csv", "people.csv/run"):
        done = run(*sweep_of(people, out), code=1)
        assert "people.csv" in done.stderr
        assert "folder" in done.stderr
    assert (people / "people.csv").read_text().startswith("activity,user")


def test_a_terminal_shows_a_bar_and_a_narrow_one_cuts_no_numbers(people):
    """The bar goes to stderr, a terminal here; stdout holds the result only."""
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
        with contextlib.suppress(OSError):  # a closed terminal
            while part := terminal.read(4096):
                seen += part
        out = process.communicate()[0].decode()
    assert process.returncode == 0
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}".encode() in seen
    assert "\x1b" not in out
    utility = privjax.load_results(people / "whole").members[2].utility.test
    assert f"member 2, weight 4, seed 0, utility {utility:.3f}," in out
