"""The wheel, installed: three commands that work in any folder, whatever packages that folder has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hagmeta
from study.launch import main
from study.options import read_options
from study.running import connection
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hagmeta", "study", "analysis", "search_spaces", "archives")
GRAPH = "synthetic:nodes=401,edges=1500,features=60,classes=10,seed=1"
SPACE = f"""
description: one tiny configuration
datasets: ["{GRAPH}"]
fixed: {{method: frozen, classes: [2, 2, 5], n_way: 2, k_shot: 2, pretrain_epochs: 1}}
seeds: 1
"""
Run = Callable[..., str]
Start = Callable[..., subprocess.CompletedProcess[str]]


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it from an archive of sources, as `make dist` does."""
    # A build leaves files in its source, so this is a copy.
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    git = ["git", "-C", str(source), "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "setup.py"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    sources = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(out)]
    subprocess.run(sources, cwd=source, check=True, capture_output=True)
    (archive,) = out.glob("*.tar.gz")
    pip("wheel", str(archive), "--no-deps", "--no-build-isolation", "--wheel-dir", str(out))
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it into an environment of its own, which borrows the dependencies of this one."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(environment / "bin" / "python")
    pip("--python", python, "install", "--no-deps", "--no-index", "--ignore-installed", str(wheel))
    return environment / "bin"


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def start(programs: Path, tmp_path: Path) -> Start:
    """Run an installed command in a folder that is not the checkout."""
    environment = os.environ | {"HAGMETA_HOME": str(tmp_path / "home"), "COLUMNS": "120"}
    environment.pop("PYTHONPATH", None)  # it would find the checkout

    def start(command: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(programs / command), *arguments],
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )

    return start


@pytest.fixture
def run(start: Start) -> Run:
    """Run an installed command that has to succeed; returns what it prints."""

    def run(command: str, *arguments: str) -> str:
        done = start(command, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    packed.remove("hagmeta/packs/COMMIT")  # of the checkout from which it was built
    assert packed == {str(path.relative_to(ROOT)) for name in FOLDERS for path in files_of(ROOT / name)}
    assert {f"{package}/py.typed" for package in FOLDERS[:3]} < packed
    assert f"hagmeta-{hagmeta.__version__}-" in wheel.name


@pytest.mark.slow
def test_embedded_data_and_search_spaces_are_found(run: Run, tmp_path: Path) -> None:
    short = ("--method", "frozen", "--set", "pretrain_epochs=2", "--seeds", "1", "--device", "cpu")
    run("hagmeta", *short, "--json", "records.json")
    assert '"dataset": "debian"' in (tmp_path / "records.json").read_text()
    assert "16 to go" in run("hagmeta-study", "--space", "smoke", "--dry-run")


def test_the_version_names_the_commit_of_the_build(run: Run) -> None:
    # The wheel was built from a commit that lacks most files, which counts as modified.
    shown = run("hagmeta", "--version")
    assert re.fullmatch(rf"hagmeta {re.escape(hagmeta.__version__)}, commit [0-9a-f]{{12}}\+\n", shown)


@pytest.mark.slow
def test_workers_under_uv_run_use_the_environment_of_the_launch(
    run: Run, programs: Path, tmp_path: Path
) -> None:
    # Ray looks for a parent process `uv run`. Without our setting it starts workers by that program.
    (tmp_path / "tiny.yaml").write_text(SPACE)
    (tmp_path / "run").write_text(f"{programs}/hagmeta-study --space tiny.yaml --no-report\nexit $?\n")
    assert "1/1 runs" in run("/bin/bash", "-c", "exec -a uv /bin/bash run")


@pytest.mark.slow
def test_plain_folders_of_our_names_do_no_harm(run: Run, tmp_path: Path) -> None:
    for name in FOLDERS[1:3]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "plots.py").write_text("raise ImportError('a script of the user')\n")
    (tmp_path / "tiny.yaml").write_text(SPACE)
    assert "1/1 runs" in run("hagmeta-study", "--space", "tiny.yaml", "--no-report")
    assert "1/1 runs" in run("python", "-m", "study.launch", "--space", "tiny.yaml", "--results", "again")
    assert (tmp_path / "again" / "tiny" / "report" / "index.html").exists()


def test_a_package_that_hides_ours_is_named(start: Start, tmp_path: Path) -> None:
    for name in FOLDERS[1:3]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    hidden = (
        f"{tmp_path / 'study'} hides the package `study` of hagmeta. Rename it, or run from another folder"
    )
    for command in ("hagmeta-study", "hagmeta-report"):
        done = start(command, "--help", PYTHONPATH=".")
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith(f"error: {hidden}") and done.stderr.count("\n") == 1
    done = start("python", "-c", "import hagmeta; hagmeta.study")  # the folder of a script comes first
    assert done.stderr.splitlines()[-1].startswith(f"hagmeta.common.errors.UserError: {hidden}")
    for command in ("hagmeta", "hagmeta-study", "hagmeta-report"):
        assert start(command, "--help").returncode == 0  # nothing is hidden from an installed program


@pytest.mark.slow
def test_a_study_ignores_the_folder_s_own_packages_of_our_names(run: Run, tmp_path: Path) -> None:
    for name in FOLDERS[:3]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('a package of the user')\n")
    (tmp_path / "tiny.yaml").write_text(SPACE)
    assert "1/1 runs" in run("hagmeta-study", "--space", "tiny.yaml", "--no-report")
    assert "report: results/tiny/report/index.html" in run("hagmeta-report", "results/tiny")
    page = tmp_path / "results" / "tiny" / "report" / "index.html"
    assert "<code>hagmeta-report results/tiny</code>" in page.read_text()


@pytest.mark.parametrize(
    ("started", "usage"),
    [
        ("/usr/bin/hagmeta-study", "usage: hagmeta-study "),
        ("study/launch.py", "usage: python study/launch.py "),
    ],
)
def test_usage_lines_name_the_command_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], started: str, usage: str
) -> None:
    monkeypatch.setattr(sys, "argv", [started, "--help"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    program = usage.removeprefix("usage: ")
    assert shown.startswith(usage) and f"\n    {program}--space ablation --quick\n" in shown
    command = read_options(["--space", "smoke"], None).options.command
    assert command == f"{program}--space smoke"


def test_workers_of_a_cluster_are_sent_a_checkout_or_our_installed_packages(tmp_path: Path) -> None:
    installed = connection._environment("auto", tmp_path, None)
    assert "working_dir" not in installed
    assert installed["py_modules"] == [str(tmp_path / name) for name in FOLDERS[:3]]
    checkout = connection._environment("auto", ROOT, None)
    assert checkout["working_dir"] == str(ROOT) and "py_modules" not in checkout


def test_workers_here_look_into_a_checkout_and_not_into_an_installation(tmp_path: Path) -> None:
    # All of site-packages on PYTHONPATH would come before the standard library.
    assert not connection._environment(None, tmp_path, None)["env_vars"]
    assert connection._environment(None, ROOT, None)["env_vars"]["PYTHONPATH"].startswith(str(ROOT))
