"""The table at the end of a study: what it shows, and that it fits the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from hagmeta.config.run_config import RunConfig
from study.terminal.table import study_table
from tests.analysis.conftest import about, figures


def record(seed: int, oracle: bool = False, **settings: Any) -> dict[str, Any]:
    about_it = about(RunConfig.of(**settings)) | {"traits": {}, "given": []}
    return {**about_it, **figures([0.5, 0.25]), "seed": seed, "oracle": oracle}


def shown(records: list[dict[str, Any]], width: int = 120) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(study_table(records, width))
    return capture.get().splitlines()


def test_methods_are_compared_by_name_and_an_oracle_is_marked() -> None:
    methods = ("hag-meta", "frozen", "er-gnn")
    records = [record(seed, method=method) for method in methods for seed in (0, 1)]
    lines = shown([*records, record(0, oracle=True, method="joint")])
    assert lines[1].split() == ["method", "seeds", "first", "last", "average", "PD"]
    assert sum("joint (oracle)" in line for line in lines) == 1
    assert sum("oracle" in line for line in lines) == 1


def test_a_setting_that_varies_is_shown_for_the_methods_that_have_it() -> None:
    lines = shown([record(0, method="er-gnn", memory=m) for m in (5, 10)] + [record(0, method="frozen")])
    assert lines[1].split()[:2] == ["method", "memory"]
    assert [line.split()[:2] for line in lines if "er-gnn" in line] == [["er-gnn", "5"], ["er-gnn", "10"]]


def test_a_narrow_terminal_shows_fewer_measures_and_breaks_no_number() -> None:
    records = [
        record(seed, hidden=hidden, learning_rate=rate, finetune_steps=steps)
        for hidden, rate, steps in ((16, 0.001, 10), (16, 0.001, 20), (32, 0.002, 20))
        for seed in (0, 1, 2)
    ]
    for width, measures in ((120, ["average", "PD"]), (80, ["average"]), (48, [])):
        lines = shown(records, width)
        head = next(line for line in lines if "seeds" in line)
        assert head.split()[-1] == (["last", *measures])[-1]
        assert sum("50.0 ± 0.0  25.0 ± 0.0" in line for line in lines) == 3


def test_an_interval_is_shown_from_three_seeds_on() -> None:
    accuracies = [0.1, 0.28, 0.2]
    records = [record(seed) | {"macro_accuracy": [1.0, last]} for seed, last in enumerate(accuracies)]
    assert any(" 2  100.0  19.0  " in line for line in shown(records[:2]))  # not 19.0 ± 114.4
    assert any(" 3  100.0 ± 0.0  19.3 ± 22.4 " in line for line in shown(records))


FOLDER = "npz:/home/someone/projects/graph-learning/incremental/datasets/debian-subsets/2026"
FILES = ("packages-of-the-largest-sections.npz", "packages-of-the-middle-sections.npz", "small.npz")
VARIED: dict[str, Any] = {
    "hidden": 48,
    "embedding": 24,
    "dropout": 0.2,
    "learning_rate": 0.02,
    "weight_decay": 0.001,
    "finetune_steps": 4,
    "pretrain_on": "known",
    "logit_adjustment": 1.0,
}


def wide_study(seeds: int) -> list[dict[str, Any]]:
    """Three datasets in a deep folder, and eight settings that vary one at a time."""
    task = {"classes": (4, 4, 4), "n_way": 2, "sessions": 2}
    configs = [{}, *({key: value} for key, value in VARIED.items())]
    return [
        record(seed, dataset=f"{FOLDER}/{file}", **task, **config)
        for file in FILES
        for config in configs
        for seed in range(seeds)
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("seeds", [1, 3])
def test_many_settings_and_long_paths_fit_the_terminal(width: int, seeds: int) -> None:
    lines = shown(wide_study(seeds), width)
    assert max(map(len, lines)) <= width
    head = lines[1].split()
    words = {"dataset", "settings", "seeds", "first", "last", "average", "PD"}
    assert {"settings", "seeds", "first", "last"} <= set(head) <= words  # no header is broken
    assert sum(" 50.0" in line for line in lines) == 27  # one line per configuration
    text = "\n".join(lines)
    assert FOLDER not in text
    for file in FILES:  # a long one is broken after a hyphen
        assert all(part in text for part in file.split("-"))
    assert "common values: " in text and "hidden 32" in text and "dropout 0.5" in text
    for key, value in VARIED.items():
        assert f"{key} {value:g}" in text if isinstance(value, float) else f"{key} {value}" in text


def test_chosen_and_default_values_are_told_apart() -> None:
    both = [record(seed, hidden=hidden) for hidden in (16, 32) for seed in (0, 1)]
    roles = {both[0]["config_hash"]: "tuned", both[-1]["config_hash"]: "default"}
    console = Console(width=80)
    with console.capture() as capture:
        console.print(study_table(both, 80, ["hidden"], roles))
    rows = [line.split()[:3] for line in capture.get().splitlines() if "50.0" in line]
    assert rows == [["debian", "default", "2"], ["debian", "tuned", "2"]]


def test_files_of_the_same_name_keep_the_folder_that_tells_them_apart() -> None:
    task = {"classes": (4, 4, 4), "n_way": 2, "sessions": 2}
    lines = shown([record(0, dataset=f"npz:/data/{year}/graph.npz", **task) for year in (2025, 2026)])
    assert [line.split()[0] for line in lines if " 50.0" in line] == ["2025/graph.npz", "2026/graph.npz"]
