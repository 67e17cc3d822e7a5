"""A run's name and its file: the same on any machine, and from one version to the next."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.common.records import record_schema
from hagmeta.common.records.metrics import MetricDeclaration, to_record
from hagmeta.common.records.records import StudyFolder, config_hash, read_record
from hagmeta.common.settings.left_out import OLD_NAMES
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.packs.environment import environment
from tests.analysis.conftest import figures


def written(folder: Path, config: dict[str, Any], name: str, **more: Any) -> Path:
    values = {**figures([0.8]), "data": "0" * 64, "leaks": False, "oracle": False, "traits": {"title": "CEC"}}
    values |= {"given": [], "unhashed": [], "scopes": {}, "revisions": {}}
    path = StudyFolder(folder).runs / name / "0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(values | {"config": config, "config_hash": name, "seed": 0} | more))
    return path


def test_the_names_of_configurations_are_those_that_records_on_disk_have() -> None:
    assert config_hash({"dataset": "debian", "k_shot": 5}) == "f8035a0a5af65a2a"
    assert config_hash({"k_shot": 5, "dataset": "debian"}) == "f8035a0a5af65a2a"
    config = resolve(RunConfig.of(nla=False))
    assert config_hash(config.canonical(), config.unhashed(), config.revisions()) == config.hash()


def test_a_record_is_read_by_its_own_unhashed_settings_and_revisions(tmp_path: Path) -> None:
    config = {"dataset": "debian", "method": "cec", "young": 1}
    name = config_hash({"dataset": "debian", "method": "cec"}, revisions={"dataset": 2})
    told: dict[str, Any] = {"unhashed": ["young"], "revisions": {"dataset": 2}}
    assert read_record(written(tmp_path / "whole", config, name, **told))["config"] == config
    for key in told:
        less = told | {key: type(told[key])()}
        with pytest.raises(ValueError, match="another configuration"):
            read_record(written(tmp_path / key, config, name, **less))


ENVIRONMENT = environment(torch.device("cpu"), pack=2) | {"plain": False}


@pytest.mark.parametrize("made", [ENVIRONMENT, {}, {"commit": None, "device": "CPU"}, {"of later code": 1.5}])
def test_an_environment_of_this_or_other_code_is_read(tmp_path: Path, made: dict[str, Any]) -> None:
    config = {"dataset": "debian", "method": "cec"}
    path = written(tmp_path, config, config_hash(config), environment=made)
    assert read_record(path)["environment"] == made
    assert record_schema._holds(made, record_schema.schema()["properties"]["environment"]), "at a glance"


@pytest.mark.parametrize(
    ("key", "value"),
    [("commit", 5), ("device", 1.0), ("torch", True), ("peak_memory_bytes", "much"), ("peak_gpu_bytes", -1)]
    + [("peak_gpu_bytes", True), ("peak_memory_bytes", 10**30), ("seeds_in_pack", "2"), ("plain", "no")],
)
def test_an_environment_that_a_report_cannot_show_is_damage(tmp_path: Path, key: str, value: Any) -> None:
    config = {"dataset": "debian", "method": "cec"}
    path = written(tmp_path, config, config_hash(config), environment=ENVIRONMENT | {key: value})
    with pytest.raises(ValueError, match=f"^its environment {key} is {json.dumps(value)}$"):
        read_record(path)


def test_a_record_that_is_no_file_is_damage(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.json")  # to open it would wait for ever
    with pytest.raises(ValueError, match="not readable: it is not a regular file"):
        read_record(tmp_path / "0.json")


@pytest.mark.parametrize("config", [None, [], "text"])
def test_a_config_that_is_no_mapping_is_damage(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ValueError, match="its config is"):
        read_record(written(tmp_path, config, "0" * 16))


@pytest.mark.parametrize("setting", sorted(OLD_NAMES))
def test_record_with_an_old_setting_names_the_commit(tmp_path: Path, setting: str) -> None:
    config = {"dataset": "debian", "method": "cec", setting: 1}
    path = written(tmp_path, config, config_hash(config))
    with pytest.raises(UserError, match=rf"{setting} has another name .* with commit [0-9a-f]{{7}}\.$"):
        read_record(path)


BY_SESSION = to_record(MetricDeclaration("lift", "lift", by_session=True), "Lift@012345678901")
PER_RUN = to_record(MetricDeclaration("lift", "lift", by_session=False), "Lift@012345678901")
TRAITS = {"title": "CEC", "role": "baseline", "oracle": False, "transductive": "", "revision": 1}


@pytest.mark.parametrize(
    "said",
    [
        {"metrics": {"lift": BY_SESSION}, "lift": [-12.5]},
        {"metrics": {"lift": BY_SESSION}, "lift": [None]},
        {"metrics": {"lift": PER_RUN}, "lift": 12},
        {"metrics": {"lift": PER_RUN}, "lift": None},
        {"traits": TRAITS},
        {"traits": TRAITS | {"of later code": [1]}},
    ],
)
def test_declared_metrics_and_traits_are_read_at_a_glance(tmp_path: Path, said: dict[str, Any]) -> None:
    config = {"dataset": "debian", "method": "cec"}
    assert said.items() <= read_record(written(tmp_path, config, config_hash(config), **said)).items()
    known, others = record_schema.schema()["properties"], record_schema.schema()["additionalProperties"]
    assert all(record_schema._holds(value, known.get(key, others)) for key, value in said.items())


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"lift": 0.5}, "its lift is 0.5, but no metric of this name is declared"),
        ({"metrics": {"lift": PER_RUN}}, "its lift is declared as a metric, but is missing"),
        ({"metrics": {"lift": PER_RUN}, "lift": [0.5]}, "its lift is [0.5], but is declared as one value"),
        ({"metrics": {"lift": BY_SESSION}, "lift": 0.5}, "its lift is 0.5, but is declared by session"),
        (
            {"metrics": {"lift": BY_SESSION}, "lift": [1, 2]},
            "its lift has 2 sessions, but its accuracy has 1",
        ),
        ({"metrics": {"lift": BY_SESSION}, "lift": ["x"]}, 'its lift[0] is "x"'),
        ({"metrics": {"pd": PER_RUN}}, "its pd is a built-in value, but is declared as an additional metric"),
        ({"metrics": {"lift": {"title": "lift"}}, "lift": 1}, 'its metrics lift is {"title": "lift"}'),
        ({"traits": TRAITS | {"title": 5}}, "its traits title is 5"),
    ],
)
def test_a_value_that_is_not_as_declared_is_damage(
    tmp_path: Path, said: dict[str, Any], problem: str
) -> None:
    config = {"dataset": "debian", "method": "cec"}
    with pytest.raises(ValueError) as error:
        read_record(written(tmp_path, config, config_hash(config), **said))
    assert str(error.value) == problem


TWO_SESSIONS: dict[str, Any] = {
    **{
        "accuracy": [0.8, 0.5],
        "macro_f1": [0.8, 0.5],
        "matrix": [[0.8], [0.6, 0.2]],
        "pd": 0.3,
        "rpd": 0.375,
    },
    **{"base_accuracy": [0.8, 0.6], "novel_accuracy": [None, 0.2], "new_accuracy": [None, 0.2]},
    **{"harmonic": [None, 0.3], "average_accuracy": 0.65, "forgetting": [0.2], "backward_transfer": -0.2},
    **{"class_accuracy": [[1.0, 0.6, None], [0.5, 0.7, None, 0.2]], "macro_accuracy": [0.8, 1.4 / 3]},
    **{"macro_base_accuracy": [0.8, 0.6], "macro_novel_accuracy": [None, 0.2], "macro_harmonic": [None, 0.3]},
}


def test_values_that_follow_from_others_are_read(tmp_path: Path) -> None:
    config = {"dataset": "debian", "method": "cec"}
    rounded = {**TWO_SESSIONS, "average_accuracy": 0.65 + 1e-9}
    assert read_record(written(tmp_path, config, config_hash(config), **rounded))["pd"] == 0.3


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("average_accuracy", 0.99, "its average_accuracy is 0.99; expected 0.65"),
        ("pd", 0.2, "its pd is 0.2; expected 0.3"),
        ("rpd", None, "its rpd is null; expected 0.37"),
        ("base_accuracy", [0.8, 0.7], "its base_accuracy is [0.8, 0.7]; expected [0.8, 0.6]"),
        ("new_accuracy", [None, 0.3], "its new_accuracy is [null, 0.3]; expected [null, 0.2]"),
        ("harmonic", [0.3, 0.3], "its harmonic is [0.3, 0.3]; expected "),
        ("forgetting", [], "its forgetting is []; expected [0.2"),
        ("backward_transfer", 0.2, "its backward_transfer is 0.2; expected -0.2"),
        ("macro_accuracy", [0.8, 0.9], "its macro_accuracy is [0.8, 0.9]; expected [0.8, 0.46"),
        ("macro_base_accuracy", [0.8, 0.7], "its macro_base_accuracy is [0.8, 0.7]; expected [0.8, 0.6]"),
        (
            "macro_novel_accuracy",
            [None, 0.3],
            "its macro_novel_accuracy is [null, 0.3]; expected [null, 0.2]",
        ),
        ("macro_harmonic", [None, 0.4], "its macro_harmonic is [null, 0.4]; expected [null, "),
    ],
)
def test_value_that_other_values_contradict_is_damage(
    tmp_path: Path, key: str, value: Any, problem: str
) -> None:
    config = {"dataset": "debian", "method": "cec"}
    with pytest.raises(ValueError) as error:
        read_record(written(tmp_path, config, config_hash(config), **{**TWO_SESSIONS, key: value}))
    assert str(error.value).startswith(problem)
