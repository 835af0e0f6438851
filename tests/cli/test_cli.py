"""The command: its options, messages and exit codes.

Most tests run in this process, because starting one takes seconds.
"""

import builtins
import errno
import json
import subprocess
import sys
import types

import numpy as np
import pytest
from typer.testing import CliRunner

import privjax
from privjax import cli, datasets
from privjax.cli import shared
from privjax.cli.commands import app
from privjax.objectives import OBJECTIVES

COMMANDS = ("demo", "datasets", "sweep", "audit", "report", "export", "apply")


def run(*arguments, code=0):
    """Run a command that must end with this code; an error must be one line without a traceback."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="privjax")
    assert done.exit_code == code, (done.output, done.exception)
    if code == 1:
        assert done.stderr.startswith("privjax: ")
        assert done.stderr.endswith((".\n", "?\n"))
        assert done.stderr.count("\n") == 1
    return done


@pytest.fixture
def rows(tmp_path):
    """The same small table as CSV, Parquet, NPZ and a folder."""
    pandas = pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    columns = {
        "height": generator.normal(size=60),
        "weight, kg": generator.normal(size=60),
        "activity": np.array(["sit", "walk"])[generator.integers(0, 2, 60)],
        "user": np.array(["a", "b", "c"])[np.arange(60) % 3],
    }
    frame = pandas.DataFrame(columns)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    np.savez(
        tmp_path / "rows.npz",
        allow_pickle=False,
        **{name: np.asarray(value) for name, value in columns.items()},
    )
    (tmp_path / "folder").mkdir()
    for name, value in columns.items():
        np.save(tmp_path / "folder" / f"{name}.npy", value)
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """Record the calls of `privjax.sweep` instead of training."""
    calls = []

    def sweep(data, **settings):
        calls.append((data, settings))
        return types.SimpleNamespace(members=())

    monkeypatch.setattr(privjax, "sweep", sweep)
    return calls


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(command):
    text = " ".join(run(command, "--help").stdout.split())
    assert f"privjax {command}" in text.partition("Usage:")[2].partition("Options")[0]
    for word in ("0 done", "2 wrong usage", "130 stopped by Ctrl-C", "143 terminated"):
        assert word in text
    assert "--json" in text


def test_the_command_lists_its_sub_commands_and_version():
    assert all(command in run("--help").stdout for command in COMMANDS)
    assert run("--version").stdout == f"privjax {privjax.__version__}\n"


def test_datasets_as_json_equals_describe(tmp_path):
    listed = {
        row["name"]: row for row in json.loads(run("datasets", "--json", "--data-dir", tmp_path).stdout)
    }
    assert tuple(listed) == datasets.names()
    assert listed["digits"]["prepared"]
    assert not listed["har"]["prepared"]  # the folder is empty
    assert listed["har"]["how"]


def test_datasets_in_words_name_every_set(tmp_path):
    text = run("datasets", "--data-dir", tmp_path).stdout
    assert "digits (ready)" in text
    assert "har (not prepared)" in text


@pytest.mark.parametrize("file", ["rows.csv", "rows.parquet", "rows.npz", "folder"])
def test_every_kind_of_file_can_be_swept(rows, asked, file):
    """Every kind gives the rows of the CSV, by seed."""
    names = ("--utility", "activity", "--private", "user")
    run("sweep", "--data", rows / file, *names, "--out", rows / "run", "--seeds", 2, "--seed", 3)
    ((load, settings),) = asked
    assert list(settings["seeds"]) == [3, 4]
    expected = datasets.from_table(rows / "rows.csv", utility="activity", private="user", seed=4)
    found = load(4)
    order = [found.feature_names.index(name) for name in expected.feature_names]  # a folder has none
    np.testing.assert_array_equal(found.x[:, order], expected.x)
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.split.test, expected.split.test)
    assert found.s_names == ("a", "b", "c")
    assert found.content_hash != load(3).content_hash
    assert datasets.reload(found.origin.load_spec).content_hash == found.content_hash


def test_options_of_a_table_reach_the_sweep(rows, asked):
    run(
        *("sweep", "--data", rows / "rows.csv", "--utility", "activity", "--private", "user"),
        *("--features", 'height,"weight, kg"', "--kinds", "user=category", "--missing", "drop"),
        *("--test", 0.5, "--validation", 0, "--scale", "none", "--out", rows / "run", "--width", "7,4"),
        *(
            "--weights",
            "0,2^-1",
            "--objective",
            "lsdn",
            "--epochs",
            9,
            "--batch-size",
            8,
            "--progress",
            "off",
        ),
    )
    ((load, settings),) = asked
    data = load(0)
    assert data.feature_names == ("height", "weight, kg")
    assert [len(part) for part in data.split] == [30, 0, 30]
    assert settings["scaling"] == "none"
    assert settings["privacy_weights"] == [0.0, 0.5]
    assert (settings["num_epochs"], settings["batch_size"], settings["progress"]) == (9, 8, "off")
    networks = dict(settings["networks"].settings)
    assert networks["private_widths"] == (7, 4)
    assert networks["num_private"] == 3


@pytest.mark.parametrize(
    ("options", "kind", "shape"),
    [
        (("--network", "scnn", "--width", "6"), "scnn", (8, 8, 1)),
        (("--network", "cnn", "--image", "4x16x1"), "scnn", (4, 16, 1)),
    ],
)
def test_images_of_a_data_set(asked, tmp_path, options, kind, shape):
    run("sweep", "--data", "digits", *options, "--out", tmp_path / "run")
    ((load, settings),) = asked
    assert load(5).content_hash == datasets.load("digits", seed=5).content_hash
    networks = dict(settings["networks"].settings)
    assert (networks["kind"], networks["image_shape"]) == (kind, shape)
    assert networks["num_features"] == (6 if "--width" in options else 0)


def test_a_data_set_with_a_choice_of_private_variable(asked, tmp_path):
    run("sweep", "--data", "diabetes", "--private", "sex", "--out", tmp_path / "run")
    assert asked[0][0](0).s_names == ("sex 1", "sex 2")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_default_weights_from_zero_upwards(asked, tmp_path, objective):
    run("sweep", "--data", "digits", "--objective", objective, "--out", tmp_path / "run")
    weights = asked[0][1]["privacy_weights"]
    assert weights[0] == 0.0
    assert weights == sorted(set(weights))
    assert len(weights) > 5


def test_weights_as_a_list_and_as_a_range():
    assert shared.parse_weights("0, 0.5,2^4,1e-3") == [0.0, 0.5, 16.0, 0.001]
    assert shared.parse_weights("2^-4:2^4:9") == [2.0**k for k in range(-4, 5)]
    assert shared.parse_numbers("0,3,5-7", "--members") == [0, 3, 5, 6, 7]


SWEEP = ("sweep", "--data", "digits", "--out", "run")
BAD_WEIGHTS = ("x", "0:1:3", "-1", "nan", "", "1:2", "1:2:1", "1:2:3:4", "2^9999", "-1^0.5")
WRONG = [
    ("sweep", "--data", "digits"),  # no --out
    *((*SWEEP, "--weights", weights) for weights in BAD_WEIGHTS),
    *((*SWEEP, "--width", width) for width in ("x", "0", "5,", "-3", "")),
    (*SWEEP, "--objective", "magic"),
    (*SWEEP, "--test", "1.5"),
    (*SWEEP, "--validation", "-1"),
    (*SWEEP, "--seeds", "0"),
    (*SWEEP, "--utility", "parity"),
    (*SWEEP, "--private", "parity"),
    ("sweep", "--data", "diabetes", "--out", "run", "--private", "sex", "--private", "age"),
    (*SWEEP, "--network", "scnn", "--image", "8x8"),
    (*SWEEP, "--network", "scnn", "--image", "9x8x1"),
    (*SWEEP, "--network", "cnn", "--width", "5"),
    ("audit", "run", "--members", "1-x"),
    ("audit", "run", "--members", "2-1"),
    (*SWEEP, "--weights", "4:1:0"),
    (*SWEEP, "--weights", "4:1:1"),
    ("audit", "run", "--jobs", "0"),
    ("export", "run"),
    ("apply", "encoder.npz"),
    ("datasets", "--nothing"),
    ("nothing",),
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_is_code_2_and_trains_nothing(asked, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, code=2)
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert not asked
    assert not list(tmp_path.iterdir())


def test_columns_must_be_named(rows, asked):
    done = run("sweep", "--data", rows / "rows.csv", "--utility", "activity", "--out", rows / "run", code=2)
    assert "--private" in done.stderr
    kinds = ("--utility", "activity", "--private", "user", "--kinds", "user=words")
    assert (
        "user=words" in run("sweep", "--data", rows / "rows.csv", *kinds, "--out", rows / "r", code=2).stderr
    )


def bad_table(folder, defect):
    text = {
        "missing": "a,y,s\n1,p,u\n,q,v\n3,p,u\n4,q,v\n",
        "copy": "a,y,s\n1,p,1\n2,q,2\n1,p,1\n2,q,2\n",
        "ragged": "a,y,s\n1,p\n",
        "empty": "",
        "word": "a,y,s\n1,p,u\n2,q,v\nx,p,u\n4,q,v\n",
    }[defect]
    (folder / "bad.csv").write_text(text)
    return folder / "bad.csv"


@pytest.mark.parametrize(
    ("defect", "says"),
    [
        ("missing", "--missing drop or --missing impute"),
        ("copy", "--private-features"),
        ("ragged", "line 2"),
        ("word", "pass --kinds a=category"),
        ("empty", "line 1"),
    ],
)
def test_errors_in_the_data_name_options_of_the_command(tmp_path, defect, says):
    table = bad_table(tmp_path, defect)
    done = run(
        "sweep", "--data", table, "--utility", "y", "--private", "s", "--out", tmp_path / "run", code=1
    )
    assert says in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_missing_files_are_named(tmp_path):
    out = ("--out", tmp_path / "run")
    assert "peopel.csv" in run("sweep", "--data", tmp_path / "peopel.csv", *out, code=1).stderr
    nowhere = tmp_path / "nowhere"
    for command in (("audit", nowhere), ("export", nowhere, "--to", tmp_path / "e.npz"), ("report", nowhere)):
        assert "nowhere" in run(*command, code=1).stderr
    assert not nowhere.exists()
    missing = tmp_path / "e.npz"
    assert "e.npz" in run("apply", missing, missing, "--to", tmp_path / "z.csv", code=1).stderr


ERRORS = [
    (ValueError("y has\n one class: give two."), 1, "y has one class: give two."),
    (PermissionError(errno.EACCES, "Permission denied", "/a/b"), 1, "/a/b: permission denied: choose a path"),
    (OSError(errno.ENOSPC, "No space left on device"), 1, "no space left on device: make room"),
    (
        FileNotFoundError("results.json is not there: sweep first."),
        1,
        "results.json is not there: sweep first.",
    ),
    (ModuleNotFoundError("No module named 'onnx'", name="onnx"), 1, "pip install 'privjax[all]'"),
    (MemoryError("4 GB"), 1, "out of memory (4 GB)"),
    (RuntimeError("another process is at work on run: wait."), 1, "another process is at work on run: wait."),
    (KeyError("epochs"), 70, "unexpected KeyError ('epochs')"),
    (shared.Terminated(), 143, "stopped."),
    (KeyboardInterrupt(), 130, "stopped."),
]


@pytest.mark.parametrize(("error", "code", "says"), ERRORS, ids=lambda value: type(value).__name__)
def test_every_error_has_a_code_and_one_sentence(monkeypatch, error, code, says):
    def describe(**_):
        raise error

    monkeypatch.setattr(datasets, "describe", describe)
    monkeypatch.delenv("PRIVJAX_DEBUG", raising=False)
    done = run("datasets", "--json", code=code)
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    if isinstance(error, Exception):
        monkeypatch.setenv("PRIVJAX_DEBUG", "1")
        assert CliRunner().invoke(app, ["datasets"]).exception is error


@pytest.mark.parametrize(
    ("program", "on_path", "typed"),
    [
        ("bin/privjax", True, "privjax"),
        ("bin/privjax", False, "bin/privjax"),
        ("cli/__main__.py", False, "python -m privjax.cli"),
    ],
)
def test_the_command_that_resumes_is_the_typed_one(monkeypatch, tmp_path, program, on_path, typed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "privjax").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") if on_path else str(tmp_path))
    monkeypatch.setattr(sys, "argv", [program, "sweep", "--data", "my people.csv"])
    with pytest.raises(shared.Terminated) as stop, shared.resumable():
        raise shared.Terminated
    assert str(stop.value).endswith(f"To resume, run: {typed} sweep --data 'my people.csv'")


def test_a_missing_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without_typer(name, *rest, **more):
        if name == "typer":
            raise ModuleNotFoundError(name, name=name)
        return real(name, *rest, **more)

    for name in [name for name in sys.modules if name.startswith("privjax.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_typer)
    with pytest.raises(SystemExit, match=r"privjax\[cli\]"):
        cli.main()


@pytest.mark.slow
def test_a_closed_pipe_prints_no_error():
    """As in `privjax datasets | head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "privjax.cli", "datasets"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.slow
def test_sigterm_ends_with_code_143():
    code = """
import os, signal, sys
from privjax import cli, datasets
datasets.describe = lambda **_: os.kill(os.getpid(), signal.SIGTERM)
sys.argv = ["privjax", "datasets"]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "privjax: stopped.\n")


@pytest.mark.slow
def test_debug_shows_the_traceback(tmp_path):
    """`run` checks that all other errors of this file show none."""
    command = [sys.executable, "-m", "privjax.cli", "--debug", "audit", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
