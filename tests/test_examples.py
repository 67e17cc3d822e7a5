"""The notebooks in `examples/` run, and their saved outputs can be read anywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest

from tests.notebooks import EXAMPLES, execute

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
FASTEST = EXAMPLES / "2_your_graph.ipynb"
MACHINE = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|usr|var|opt|Users)/")


def outputs_of(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def texts_of(output: nbformat.NotebookNode) -> list[str]:
    data = output.get("data", {})
    return [output.get("text", ""), *(text for kind, text in data.items() if kind.startswith("text/"))]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_errors(path: Path, tmp_path: Path) -> None:
    execute(path, tmp_path)


def test_the_code_of_the_fastest_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process: a kernel imports everything again.
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in nbformat.read(FASTEST, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    plt.close("all")
    assert names["nearest_mean"].records


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_with_outputs_of_one_run(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outputs = outputs_of(notebook)
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [text for output in outputs for text in texts_of(output) if MACHINE.search(text)]


def test_the_readme_lists_every_notebook() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+\.ipynb)\)", text)) == {path.name for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_between_notebooks_lead_somewhere(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    targets = [link for cell in cells for link in re.findall(r"\]\(([\w./]+)\)", cell.source)]
    assert not [target for target in targets if not (EXAMPLES / target).exists()]
