"""Who may import whom: the package's rooms, read from the source with `ast`."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "privjax"

# Each room and the rooms it may know. A room that is not here (the command line, a demo, the package's own
# __init__) wires others together: it may know all, and no room below may know it.
ROOMS = {
    "extras": set(),
    "files": set(),
    "progress": set(),
    "numerics": set(),
    "kernels": {"numerics"},
    "losses": {"kernels", "numerics"},
    "independence": {"kernels", "losses", "numerics"},
    "networks": {"numerics"},
    "release": set(),
    "encoder": {"files", "networks", "release"},
    "objectives": {"kernels", "losses"},
    "training": {"encoder", "losses", "networks", "objectives", "release"},
    "baselines": {"kernels", "losses", "networks", "encoder", "training"},
    "datasets": {"extras", "files"},
    "sweeping": {
        *("files", "progress", "datasets", "networks", "release", "encoder", "objectives"),
        "training",
    },
    "auditing": {"files", "progress", "independence", "networks", "datasets", "sweeping"},
    "exporting": {"extras", "files", "progress", "datasets", "encoder", "networks", "sweeping"},
    "curves": {"auditing", "sweeping"},
    "reporting": {"extras", "files", "auditing", "curves", "exporting", "sweeping"},
    "estimator": {"files", "encoder", "exporting", "networks", "objectives", "training"},
}
NO_JAX = ("datasets", "auditing")
HEAVY = (
    "tensorflow",
    "tensorflow_datasets",
    "pandas",
    "torch",
    "matplotlib",
    "ml_collections",
    "onnx",
    "onnxruntime",
    "jinja2",
    "plotly",
    "typer",
)


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def files(room: str) -> list[pathlib.Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if room_of(path) == room]


def imports(source: str, *, top_level: bool = False, package: str = "privjax") -> set[str]:
    """Full names of what a file imports; with `top_level`, only what importing the file imports."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    if top_level:
        lazy = {
            inner
            for node in nodes
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for inner in ast.walk(node)
        }
        typing_only = {
            inner
            for node in nodes
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for statement in node.body
            for inner in ast.walk(statement)
        }
        nodes = [node for node in nodes if node not in lazy | typing_only]
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: from the file's own package, or one further up
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base]) if base else ".".join(parents)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def rooms_known(path: pathlib.Path) -> set[str]:
    package = ".".join(["privjax", *path.relative_to(PACKAGE).parts[:-1]])
    names = imports(path.read_text(), package=package)
    rooms = {room_of(p) for p in PACKAGE.rglob("*.py")}
    return {n.split(".")[1] for n in names if n.startswith("privjax.") and n.split(".")[1] in rooms}


@pytest.mark.parametrize("room", [room for room in ROOMS if files(room)])
def test_a_room_knows_only_what_it_may(room):
    for path in files(room):
        extra = rooms_known(path) - ROOMS[room] - {room}
        assert not extra, f"{path.relative_to(PACKAGE.parent)} imports {sorted(extra)}"
        # The whole package at once would be everything, by the back door.
        assert names_rooms_only(path), f"{path.name} imports names of privjax itself"


def names_rooms_only(path: pathlib.Path) -> bool:
    """`from privjax import kernels` names a room; `import privjax` does not, nor does a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import) and any(alias.name == "privjax" for alias in node.names):
            return False
        if isinstance(node, ast.ImportFrom) and node.module == "privjax" and not node.level:
            if not all(alias.name in ROOMS for alias in node.names):
                return False
    return True


def test_only_networks_imports_flax():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] == "flax" for name in imports(path.read_text()))
    }
    assert users == {"networks/convolutional.py", "networks/dense.py"}


@pytest.mark.parametrize("room", [room for room in NO_JAX if files(room)])
def test_numpy_rooms_import_no_jax_when_imported(room):
    for path in files(room):
        names = imports(path.read_text(), top_level=True)
        assert not {n for n in names if n.split(".")[0] in ("jax", "jaxlib", "flax", "optax")}, path.name


def test_the_check_sees_what_it_should():
    assert "flax" in imports("def f():\n    import flax\n")
    assert "flax" not in imports("def f():\n    import flax\n", top_level=True)
    assert "jax.numpy" in imports(
        "try:\n    import jax.numpy as jnp\nexcept ImportError:\n    pass\n", top_level=True
    )
    assert "privjax.networks" in imports("from privjax import networks\n")
    assert "privjax.networks" in imports("from ..networks import nn\n", package="privjax.losses")
    assert "privjax.losses.mmd" in imports("from . import mmd\n", package="privjax.losses")
    assert "pandas" not in imports(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n", top_level=True
    )


ALONE = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError("importing the package opened a connection")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import {module}
heavy = sorted(set({heavy!r}) & set(sys.modules))
assert not heavy, heavy
"""


@pytest.mark.parametrize("module", ["privjax", "privjax.datasets"])
def test_importing_is_light_and_offline(module):
    if module != "privjax" and not files(module.split(".")[1]):
        pytest.skip(f"{module} is not here")
    code = ALONE.format(module=module, heavy=HEAVY)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # The same run does notice an import that is heavy.
    bad = subprocess.run(
        [sys.executable, "-c", code.replace("\nimport ", "\nsys.modules['torch'] = sys\nimport ", 1)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert bad.returncode != 0


def test_public_names():
    import privjax

    assert sorted(privjax.__all__) == list(privjax.__all__)
    for name in privjax.__all__:
        assert getattr(privjax, name).__doc__, name
    promised = """mmd_loss rff_mmd_loss kdi_loss wdn_privacy_loss wdn_discriminator_loss lsdn_privacy_loss
        lsdn_discriminator_loss orthonormality_penalty discriminant_information privacy_confidence sweep
        load_results load_encoder audit audit_sweep pareto export release_file report
        PrivacyTransformer""".split()
    assert not set(promised) - set(privjax.__all__)
    assert (PACKAGE / "py.typed").exists()


def test_functions_keep_the_names_of_their_rooms():
    """`privjax.sweep` and `privjax.audit` are functions, also after their modules were imported."""
    import privjax
    import privjax.auditing.audits
    import privjax.sweeping.run

    assert callable(privjax.sweep)
    assert callable(privjax.audit)
