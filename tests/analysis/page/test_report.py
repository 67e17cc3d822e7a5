"""The whole way, from records to a page, by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.__main__ import main
from tests.analysis.conftest import Write

ROOT = Path(__file__).resolve().parents[3]
CURVE = (0.8, 0.7, 0.6)


@pytest.fixture
def study(write: Write) -> Path:
    write({seed: (0.8, 0.7, 0.6 + seed / 100) for seed in range(6)})
    return write({seed: (0.6, 0.58, 0.55 + seed / 100) for seed in range(6)}, gpil=False)


def test_a_report_has_its_page_figures_tables_and_data_and_the_next_nothing_of_it(study: Path) -> None:
    assert main([str(study)]) == 0
    report = study / "report"
    page = (report / "index.html").read_text()
    assert "effect of GPIL is +5.0" in page and "python -m analysis" in page
    names = {path.stem for path in (report / "tables").glob("*.tex")}
    assert {"sessions-debian-strict-3-way-5-shot", "effects-debian-strict-3-way-5-shot", "cost"} <= names
    figures = {path.stem for path in (report / "figures").glob("*.svg")}
    assert "curves-debian-strict-3-way-5-shot" in figures
    assert all(
        (report / "figures" / f"{name}.{kind}").exists() for name in figures for kind in ("png", "pdf")
    )
    frame = pd.read_parquet(report / "frame.parquet")
    assert len(frame) == 2 * 6 * 3 and {"dataset", "gpil", "seed", "session", "accuracy"} <= set(frame)


@pytest.mark.usefixtures("no_figures")
def test_a_second_report_leaves_nothing_of_the_first(study: Path) -> None:
    link, explorer = 'href="explorer.html"', study / "report" / "explorer.html"
    assert main([str(study), "--explore"]) == 0
    assert link in (study / "report" / "index.html").read_text() and explorer.exists()
    assert main([str(study), "--where", "gpil=true"]) == 0
    assert link not in (study / "report" / "index.html").read_text() and not explorer.exists()
    assert not list((study / "report" / "tables").glob("effects-*"))
    assert "effect of GPIL" not in (study / "report" / "index.html").read_text()


@pytest.mark.usefixtures("no_figures")
def test_report_replaces_no_files_that_are_not_of_a_report(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, paper = write({0: CURVE}), tmp_path / "paper"
    (paper / "figures").mkdir(parents=True)
    (paper / "notes.txt").write_text("mine")
    (paper / "figures" / "mine.pdf").write_text("mine")
    for command in ([str(study)], ["compare", str(study)], ["references", "--where", "dataset=foldoc"]):
        assert main([*command, "--out", str(paper)]) == 2
        error = capsys.readouterr().err
        assert f"{paper}: it has figures/mine.pdf, but no frame.parquet" in error and "--force" in error
        assert sorted(path.name for path in paper.rglob("*")) == ["figures", "mine.pdf", "notes.txt"]
    assert main([str(study), "--out", str(paper), "--force"]) == 0
    assert main([str(study), "--out", str(paper)]) == 0  # now it is a report
    assert (paper / "notes.txt").exists() and not (paper / "figures" / "mine.pdf").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--where", "gpil"], "--where 'gpil': expected KEY=VALUE"),
        (["--where", "gpli=true"], "Did you mean 'gpil'?"),
        (["--by", "n_way"], "--by n_way"),
        (["--by", "k_shot"], "k_shot is part of the task"),
        (["--published"], "the paper has no numbers for debian"),
        (["--otu", "x"], "Did you mean '--out'?"),
        (["--out", "/proc/nowhere"], "cannot write the report to /proc/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    study: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    assert main([str(study), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and named in error and error.count("\n") == 1


IMPORTS = """
import importlib, json, pkgutil, sys
import analysis.report
heavy = sorted({"torch", "ray"} & set(sys.modules))

class NotInstalled:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in ("torch", "ray"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NotInstalled)
names = [module.name for module in pkgutil.walk_packages(analysis.__path__, "analysis.")]
for name in names:
    importlib.import_module(name)
ours = [name for name in sys.modules if name.split(".")[0] in ("hagmeta", "study")]
others = sorted(name for name in ours if not (name + ".").startswith("hagmeta.common."))
import matplotlib
print(json.dumps([heavy, len(names), others, matplotlib.get_backend()]))
"""


@pytest.mark.slow
def test_imports_need_neither_torch_nor_ray_nor_other_parts_and_leave_the_backend_of_plots_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "pdf"},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy, count, others, backend = json.loads(done.stdout)
    assert not heavy  # where they are, a report does not import them
    assert count > 20 and others == ["hagmeta"]  # where they are not, every module can be imported
    assert backend == "pdf"
