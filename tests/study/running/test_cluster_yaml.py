from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

pytest.importorskip("ray", reason="Ray is not installed: it is Ray that checks the cluster's files")
jsonschema = pytest.importorskip("jsonschema", reason="Ray checks a cluster's file with jsonschema")
from ray.autoscaler._private.util import prepare_config, validate_config  # noqa: E402

ROOT = Path(__file__).parents[3]
DOCKER = ["cluster.yaml", "cluster-local.yaml"]
FILES = [*DOCKER, "cluster-ssh.yaml"]
SENT = [
    "hagmeta/config/run_config.py",
    "hagmeta/datasets/embedded/data/debian.npz",
    "study/launch.py",
    "search_spaces/smoke.yaml",
]
SENT += ["analysis/report.py", "constraints.txt", "pyproject.toml", "README.md", "LICENSE"]
KEPT_BACK = [".git/config", ".venv/bin/python", "results/ablation/runs/0a/0.json"]
KEPT_BACK += ["hagmeta.egg-info/PKG-INFO", "hagmeta/__pycache__/config.cpython-312.pyc"]


def read(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return config


def pinned(package: str) -> str:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    return pins[package]


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def images(config: dict[str, Any]) -> list[str]:
    return [value for key, value in config["docker"].items() if key.endswith("image")]


def home(config: dict[str, Any]) -> str:
    return "/home/ray" if "docker" in config else "~"


def commands(config: dict[str, Any]) -> list[str]:
    return [command for key in config if key.endswith("_commands") for command in config[key]]


def is_excluded(path: str, patterns: list[str]) -> bool:
    """As rsync has it: a pattern with a leading slash is for the first folder, any other for every part."""
    parts = path.split("/")
    return any(
        fnmatch(parts[0], pattern[1:])
        if pattern.startswith("/")
        else any(fnmatch(part, pattern) for part in parts)
        for pattern in patterns
    )


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_the_file(name: str) -> None:
    validate_config(prepare_config(read(name)))


@pytest.mark.parametrize("name", FILES)
def test_ray_would_not_accept_any_file(name: str) -> None:
    # The check above is worth something only if it can fail.
    misspelt = read(name)
    misspelt["rsync_excludes"] = misspelt.pop("rsync_exclude")
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepare_config(misspelt))


@pytest.mark.parametrize("name", DOCKER)
def test_images_hold_the_pinned_ray_and_a_python_that_the_project_takes(name: str) -> None:
    for image in images(read(name)):
        tag = re.fullmatch(r"rayproject/ray:([\d.]+)-py(\d)(\d+)(-gpu)?", image)
        assert tag, image
        assert tag[1] == pinned("ray")
        assert f"{tag[2]}.{tag[3]}" in SpecifierSet(project()["requires-python"])


@pytest.mark.parametrize("name", FILES)
def test_nodes_receive_the_project_without_what_belongs_to_this_machine(name: str) -> None:
    config = read(name)
    assert config["file_mounts"][f"{home(config)}/hagmeta"] == "."
    assert not [path for path in SENT if is_excluded(path, config["rsync_exclude"])]
    assert not [path for path in KEPT_BACK if not is_excluded(path, config["rsync_exclude"])]


@pytest.mark.parametrize("name", FILES)
def test_token_authentication_is_on_on_every_node(name: str) -> None:
    config = read(name)
    assert config["file_mounts"][f"{home(config)}/.ray/auth_token"] == "~/.ray/auth_token"
    if "docker" in config:
        assert "-e RAY_AUTH_MODE=token" in config["docker"]["run_options"]
        assert not [command for command in commands(config) if "RAY_AUTH" in command]
    else:
        assert [command for command in config["setup_commands"] if "export RAY_AUTH_MODE=token" in command]


@pytest.mark.parametrize("name", FILES)
def test_mps_is_started_before_ray_and_its_absence_stops_nothing(name: str) -> None:
    start = read(name)["worker_start_ray_commands"]
    daemon = next(i for i, command in enumerate(start) if command.startswith("nvidia-cuda-mps-control -d"))
    assert "||" in start[daemon]
    assert daemon < next(i for i, command in enumerate(start) if "ray start" in command)
    if name in DOCKER:
        assert "--ipc=host" in read(name)["docker"]["run_options"]
