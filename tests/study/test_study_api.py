"""Studies from Python, and comparisons of methods without a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hagmeta.common.errors import UserError
from study.launch import main
from study.options import LaunchOptions
from study.planning.packing import LAST
from study.space import spaces as space

ROOT = Path(__file__).resolve().parents[2]
NAME = "synthetic:nodes=600,edges=2500,features=60,classes=10,seed=1"
TASK: dict[str, Any] = {"classes": [4, 2, 4], "n_way": 2, "k_shot": 3}
SMALL_CLASSES = ["--methods", "sgc-lda", "--dataset", NAME, "--set", "classes=4,2,4", "--set", "n_way=2"]


def test_a_comparison_is_the_space_that_a_file_would_give(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        f"datasets: ['{NAME}', debian]\nfixed: {{classes: [4, 3, 3]}}\ngrid: {{method: [sgc-lda, hag-meta]}}"
    )
    written = space.read(tmp_path / "mine.yaml")
    made = space.of_methods(["sgc-lda", "hag-meta"], [NAME, "debian"], settings={"classes": "4,3,3"})
    assert made.resolved == written.resolved and made.seeds == written.seeds == tuple(range(10))
    assert made.name == "comparison" and made.search is None
    # A setting that one method has no use for is no error: here, hops of a method with an encoder.
    assert len(space.of_methods(["sgc-lda", "hag-meta"], ["debian"], settings={"hops": "3"}).configs) == 2


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({}, "the space: datasets is missing"),
        ({"datasets": ["debian"], "gird": {}}, "gird: unknown key 'gird'. Did you mean 'grid'?"),
        ({"datasets": ["debian"], "grid": {"hidden": [16, "x"]}}, "grid.hidden: hidden is 'x'"),
        ({"datasets": ["debian"], "fixed": {"hiden": 3}}, "fixed.hiden: unknown setting 'hiden'"),
        (
            {"datasets": ["debian"], "fixed": {"hidden": 16}, "grid": {"hidden": [32]}},
            "grid.hidden: grid sets hidden, but fixed.hidden also sets it; remove one of them.",
        ),
        ({"datasets": [Path("x")]}, "datasets: the value is PosixPath('x'); expected text or a number."),
        ({"datasets": ["debian"], 3: 4}, "the space: the key is 3; expected a name."),
    ],
)
def test_an_error_in_a_mapping_names_its_key(content: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError) as error:
        space.read(content)
    assert str(error.value).startswith(named)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--methods", "sgc-lda,nope", "--dataset", "debian"], "unknown method 'nope'"),
        (["--methods", "sgc-lda", "--space", "smoke"], "--space and --methods cannot be combined"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--quick"], "--quick needs --space"),
        (["--methods", "sgc-lda"], "--methods needs at least one --dataset"),
        (["--methods", "sgc-lda,", "--dataset", "debian"], "--methods is 'sgc-lda,'"),
        (["--methods", ""], "--methods is ''"),
        (["--methods", "sgc-lda", "--dataset", "debain"], "Did you mean 'debian'?"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--set", "method=cec"], "method cannot be set"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--set", "hosp=3"], "Did you mean 'hops'?"),
        (["--space", "tune", "--samples", "8"], "edit `samples` in the file and repeat the command"),
        (["--space", "tune", "--set", "samples=8"], "edit `samples` in the file and repeat the command"),
        ([*SMALL_CLASSES, "--set", "k_shot=45"], "Leave them out with --set drop_small=true, or use smaller"),
        (["--methods", "sgc-lda", "--dataset", "debian", "--name", "a/b"], "'a/b' cannot name the folder"),
    ],
)
def test_a_bad_comparison_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    named: str,
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    assert main([*options, "--results", str(tmp_path / "results")]) == 2
    output = "".join(capsys.readouterr())
    assert output.startswith("error: ") and output.count("\n") == 1 and named in output
    assert not (tmp_path / "results").exists()


def test_options_take_values_and_texts_alike() -> None:
    texts = LaunchOptions(
        seeds="3",  # type: ignore[arg-type]
        time_budget="2h",  # type: ignore[arg-type]
        retries="1",  # type: ignore[arg-type]
        gpus_per_trial="auto",  # type: ignore[arg-type]
        save_embeddings="last",  # type: ignore[arg-type]
        datasets="debian",  # type: ignore[arg-type]
    )
    values = LaunchOptions(
        seeds=(0, 1, 2), time_budget=7200, retries=1, save_embeddings=LAST, datasets=("debian",)
    )
    assert texts == values


@pytest.mark.parametrize(
    "wrong",
    [
        {"retries": -1},
        {"retries": 1.5},
        {"retries": True},
        {"time_budget": 0},
        {"time_budget": float("nan")},
        {"seeds": [0, 0]},
        {"seeds": [0.5]},
        {"seeds": ["x"]},
        {"max_concurrent": 0},
    ],
)
def test_options_of_the_wrong_kind_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong)).replace("_", "-").removesuffix("s")):
        LaunchOptions(**wrong)


def test_a_launch_whose_ray_does_not_start_ends_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(*_: object) -> None:
        raise Exception("the processes did not start in time\nsecond line")  # as Ray does

    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("study.running.connection.start_ray", late)
    monkeypatch.setattr("study.early.begin_ray", lambda *_: None)
    settings = [f"{key}={value}" for key, value in TASK.items()]
    settings[0] = "classes=4,2,4"
    words = ["--methods", "sgc-ncm", "--dataset", NAME, "--results", str(tmp_path)]
    assert main([*words, *(word for each in settings for word in ("--set", each))]) == 1
    error = capsys.readouterr().err
    assert "cannot start Ray: the processes did not start in time; the machine may be busy" in error
    assert "Repeat the command" in error and error.count("\n") == 1
    assert main(["--status", str(tmp_path / "comparison")]) == 0
    output = capsys.readouterr().out
    assert "0 of 10 planned runs are finished" in output
    assert "the last launch ended before any trial was finished" in output
