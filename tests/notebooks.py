"""Run notebooks and save their outputs: `python -m tests.notebooks examples/*.ipynb`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.waiting import HANG

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Execute a notebook in a copy of `examples/` and return it with its outputs.

    Args:
        path: the notebook.
        folder: an empty folder; everything that the notebook writes goes there.

    Raises:
        CellExecutionError: a cell raises an exception.
    """
    place = folder / "examples"
    shutil.copytree(EXAMPLES, place, ignore=shutil.ignore_patterns("__pycache__", "*.ipynb"))
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm asks for ipywidgets, which nothing here needs
        "HAGMETA_HOME": str(folder / "home"),
        "IPYTHONDIR": str(folder / "ipython"),
        "TMPDIR": str(temporary),
        "RAY_TMPDIR": tempfile.gettempdir(),  # the path of a socket has at most 107 bytes
    }
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=int(HANG),
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(place)}},
    )
    client.execute(env=environment)
    return notebook


def save(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook without the parts that differ between machines."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata = nbformat.from_dict({})
            cell.outputs = [each for each in cell.outputs if not _is_noise(each)]
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def _is_noise(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is what a finished progress bar leaves, or Ray's advice to install widgets."""
    return output.get("data", {}).get("text/html") == "" or "ipywidgets" in output.get("text", "")


def main() -> None:
    """Run the notebooks that the command line names, and save them in place."""
    for path in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            save(execute(path, Path(folder)), path)
        print(f"{path}: saved")


if __name__ == "__main__":
    main()
