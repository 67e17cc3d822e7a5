"""A run's name and its file: the same on any machine, and from one version to the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hagmeta.common.records import StudyFolder, config_hash, read_record
from hagmeta.config import RunConfig


def written(folder: Path, config: dict[str, Any], name: str, **more: Any) -> Path:
    kinds = ("accuracy", "base_accuracy", "novel_accuracy", "new_accuracy", "harmonic")
    series = {kind: [0.8] for kind in kinds}
    values = {**series, "matrix": [[0.8]], "pd": 0.0, "rpd": 0.0, "validation": {}, "seconds": {}}
    path = StudyFolder(folder).runs / name / "0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(values | {"config": config, "config_hash": name, "seed": 0} | more))
    return path


def test_the_names_of_configurations_are_those_that_records_on_disk_have() -> None:
    assert config_hash({"dataset": "debian", "k_shot": 5}) == "f8035a0a5af65a2a"
    assert config_hash({"k_shot": 5, "dataset": "debian"}) == "f8035a0a5af65a2a"
    config = RunConfig(nla=False)
    assert config_hash(config.canonical(), config.unhashed(), config.revisions()) == config.hash()


def test_a_setting_that_is_not_hashed_changes_no_name() -> None:
    old = {"dataset": "debian", "k_shot": 5}
    assert config_hash(old | {"young": 1}, unhashed=["young"]) == config_hash(old)
    assert config_hash(old | {"young": 1}) != config_hash(old)


def test_a_revision_makes_another_name_and_none_does_not() -> None:
    config = {"dataset": "debian", "k_shot": 5}
    assert config_hash(config, revisions={}) == config_hash(config)
    assert config_hash(config, revisions={"dataset": 2}) not in (
        config_hash(config),
        config_hash(config, revisions={"dataset": 3}),
    )


def test_a_record_is_read_by_its_own_unhashed_settings_and_revisions(tmp_path: Path) -> None:
    config = {"dataset": "debian", "method": "cec", "young": 1}
    name = config_hash({"dataset": "debian", "method": "cec"}, revisions={"dataset": 2})
    told: dict[str, Any] = {"unhashed": ["young"], "revisions": {"dataset": 2}}
    assert read_record(written(tmp_path / "whole", config, name, **told))["config"] == config
    for key in told:
        less = {other: value for other, value in told.items() if other != key}
        with pytest.raises(ValueError, match="another configuration"):
            read_record(written(tmp_path / key, config, name, **less))


@pytest.mark.parametrize("config", [None, [], "text"])
def test_a_config_that_is_no_mapping_is_damage(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ValueError, match="its config is"):
        read_record(written(tmp_path, config, "0" * 16))
