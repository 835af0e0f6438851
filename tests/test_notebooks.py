"""The notebooks as a reader meets them: whole, with their outputs, and nothing of the machine they ran on.

`pytest --nbmake notebooks` executes them; here is what an execution does not show.
"""

import ast
import base64
import copy
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = (
    "1_compose_losses",
    "2_trade_off_curve",
    "3_audit_a_release",
    "4_your_data_to_a_device",
)
COLAB = "https://colab.research.google.com/github/"
REPOSITORY = f"{COLAB}privjax/privjax/blob/main/notebooks"
# A notebook shows how the library is used: what it defines is the reader's own training and no more.
DEFINED = {"1_compose_losses": {"objective", "linen_step", "loss", "Halves", "__init__", "nnx_step"}}
NOISE = re.compile(r"Traceback|Warning|/work/|/tmp/|/home/|/root/|/Users/|site-packages|\x1b\[")


def problems(name, notebook):
    """What is wrong with a notebook, in words; nothing where all is well."""
    return [
        *_malformed(notebook),
        *_head(name, notebook),
        *_code(name, notebook),
        *_outputs(notebook),
    ]


def _malformed(notebook):
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield f"not a valid notebook: {error.message}"
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the kernel is not python3"
    if set(notebook.metadata) - {"kernelspec", "language_info"} or any(c.metadata for c in notebook.cells):
        yield "metadata of a machine or an editor"


def _head(name, notebook):
    first = notebook.cells[0].source
    if re.findall(rf"\]\(({COLAB}[^)]*)\)", first) != [f"{REPOSITORY}/{name}.ipynb"]:
        yield "the badge does not lead to this notebook"
    if not re.search(r"^# \w", first, re.MULTILINE):
        yield "no title"
    install = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
    if not re.search(r'if "google\.colab" in sys\.modules:\n    %pip install -q "?privjax', install):
        yield "the first code cell does not install privjax on Colab, and there alone"


def _code(name, notebook):
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    # A magic command is no Python; an indented one leaves its block empty.
    tree = ast.parse("\n".join(re.sub(r"^( *)%.*$", r"\1pass", cell, flags=re.MULTILINE) for cell in cells))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    if defined - DEFINED.get(name, set()):
        yield f"defines {sorted(defined - DEFINED.get(name, set()))}, which belongs in the library"
    if "PRIVJAX_SMALL" not in "".join(cells):
        yield "no small setting"
    if "assert" not in cells[-1]:
        yield "the last cell checks nothing"


def _outputs(notebook):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        yield "not executed from top to bottom"
    outputs = [output for cell in cells for output in cell.outputs]
    if any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs):
        yield "an error, or something on stderr"
    said = "\n".join(_text(output) for output in outputs)
    if found := NOISE.search(said):
        yield f"an output contains {found[0]!r}"
    pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    if not pictures or not all(base64.b64decode(p).startswith(b"\x89PNG") for p in pictures):
        yield "no picture"


def _text(output):
    shown = [value for kind, value in output.get("data", {}).items() if kind != "image/png"]
    return "\n".join([str(output.get("text", "")), *map(str, shown), *output.get("traceback", [])])


@pytest.fixture(scope="module")
def notebooks():
    return {name: nbformat.read(FOLDER / f"{name}.ipynb", as_version=4) for name in NAMES}


def test_the_folder_holds_these_notebooks():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_fit_to_be_read(name, notebooks):
    assert problems(name, notebooks[name]) == []
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 300_000


def _first_code(notebook):
    return next(cell for cell in notebook.cells if cell.cell_type == "code")


def _last_output(notebook, **changes):
    return [o for cell in notebook.cells for o in cell.get("outputs", []) if "text" in o][-1].update(changes)


SABOTAGE = {
    "not a valid notebook": lambda n: n.cells[0].update(cell_type="poem"),
    "the kernel is not python3": lambda n: n.metadata.kernelspec.update(name="conda-me"),
    "metadata of a machine": lambda n: n.cells[2].metadata.update(executionInfo={"user": "me"}),
    "the badge": lambda n: n.cells[0].update(source=n.cells[0].source.replace("trade_off", "another")),
    "no title": lambda n: n.cells[0].update(source=n.cells[0].source.replace("# ", "")),
    "the first code cell": lambda n: _first_code(n).update(source="%pip install -q privjax"),
    "defines ['train']": lambda n: n.cells[4].update(source="def train():\n    return 1"),
    "no small setting": lambda n: n.cells[2].update(source="EPOCHS = 100"),
    "the last cell": lambda n: n.cells[-1].update(source="print(1)"),
    "not executed": lambda n: n.cells[-1].update(execution_count=1),
    "an error": lambda n: _last_output(n, name="stderr"),
    "an output contains '/tmp/'": lambda n: _last_output(n, text="written to /tmp/tmpab12"),
    "no picture": lambda n: [cell.update(outputs=[]) for cell in n.cells if cell.cell_type == "code"],
}


@pytest.mark.parametrize("problem", SABOTAGE)
def test_a_spoilt_notebook_is_refused(problem, notebooks):
    name = "2_trade_off_curve"
    notebook = copy.deepcopy(notebooks[name])
    SABOTAGE[problem](notebook)
    assert [found for found in problems(name, notebook) if found.startswith(problem)]
