"""The whole way, from records to a page, by the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis.__main__ import main

Write = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[2]
CURVE = (0.8, 0.7, 0.6)


@pytest.fixture
def study(write: Write) -> Path:
    write({seed: (0.8, 0.7, 0.6 + seed / 100) for seed in range(6)})
    return write({seed: (0.6, 0.58, 0.55 + seed / 100) for seed in range(6)}, gpil=False)


def test_a_report_has_its_page_figures_tables_and_data(study: Path) -> None:
    assert main([str(study)]) == 0
    report = study / "report"
    page = (report / "index.html").read_text()
    assert "GPIL adds 5.0 points" in page and "python -m analysis" in page
    names = {path.stem for path in (report / "tables").glob("*.tex")}
    assert {"sessions-debian-strict-3-way-5-shot", "effects-debian-strict-3-way-5-shot", "cost"} <= names
    figures = {path.stem for path in (report / "figures").glob("*.svg")}
    assert "curves-debian-strict-3-way-5-shot" in figures
    assert all(
        (report / "figures" / f"{name}.{kind}").exists() for name in figures for kind in ("png", "pdf")
    )
    frame = pd.read_parquet(report / "frame.parquet")
    assert len(frame) == 2 * 6 * 3 and {"dataset", "gpil", "seed", "session", "accuracy"} <= set(frame)


def test_a_second_report_leaves_nothing_of_the_first(study: Path) -> None:
    assert main([str(study)]) == 0
    assert main([str(study), "--where", "gpil=true"]) == 0
    assert not list((study / "report" / "tables").glob("effects-*"))
    assert "GPIL adds" not in (study / "report" / "index.html").read_text()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--where", "gpil"], "--where 'gpil' is not KEY=VALUE"),
        (["--where", "gpli=true"], "Did you mean 'gpil'?"),
        (["--by", "n_way"], "--by n_way"),
        (["--compare", "published"], "the paper has no numbers for debian"),
        (["--compare", "others"], "invalid choice"),
        (["--otu", "x"], "Did you mean '--out'?"),
        (["--out", "/proc/nowhere"], "the report cannot be written to /proc/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    study: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    assert main([str(study), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and named in error and error.count("\n") == 1


def test_neither_ray_nor_torch_is_needed() -> None:
    check = "import analysis.report, sys; sys.exit(bool({'torch', 'ray'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0
