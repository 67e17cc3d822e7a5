"""A launch says which designs it has, so that reports need not guess them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from study.space import spaces as space
from study.space.spaces import Space

DEBIAN = {"datasets": ["debian"], "fixed": {"method": "hag-meta"}, "seeds": 1}


def designs(of: Space) -> dict[str, dict[str, Any]]:
    return {design.kind: json.loads(json.dumps(design.record())) for design in of.designs}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("ablation", ["factorial"]),
        ("comparison", ["ranking"]),
        ("encoders", ["factorial", "ranking"]),
        ("hyperparameters", ["free"]),
        ("labels", ["one-at-a-time", "ranking"]),
        ("nway_kshot", ["n-and-k", "ranking"]),
        ("nway_kshot_grid", ["n-and-k"]),
        ("protocol", ["protocols"]),
        ("sensitivity", ["one-at-a-time"]),
    ],
)
def test_designs_of_shipped_spaces_follow_from_their_axes(name: str, kinds: list[str]) -> None:
    found = space.read(name)
    assert [design.kind for design in found.designs] == kinds
    assert {config for design in found.designs for config in design.configs} == set(found.resolved)


def test_factorial_has_its_levels_and_what_they_depend_on() -> None:
    found = designs(space.read("ablation", quick=True))["factorial"]
    assert found["factors"] == ["gpil", "instead_of_gpil", "nla", "tla"]
    assert found["levels"]["instead_of_gpil"] == ["nothing", "supervised"]
    assert found["nested"] == {"instead_of_gpil": "gpil"} and found["repeated_for"] == ["pretrain_on"]
    assert len(found["configs"]) == 12


def test_one_at_a_time_has_its_centres() -> None:
    whole = space.read("sensitivity", quick=True)
    found = designs(whole)["one-at-a-time"]
    assert found["centres"] == [whole.resolved[0].hash()] and len(found["configs"]) == 7
    assert found["levels"]["hidden"] == [32, 64]  # the centre's value is the first


def test_a_space_may_name_its_design() -> None:
    grid = {"nla": [False, True], "tla": [False, True], "hidden": [16, 32]}
    said = {"kind": "factorial", "factors": ["nla", "tla"], "repeated_for": ["hidden"]}
    found = designs(space.read({**DEBIAN, "grid": grid, "design": said}))
    assert list(found) == ["factorial"] and found["factorial"]["factors"] == ["nla", "tla"]
    without = designs(space.read({**DEBIAN, "grid": grid, "design": {**said, "factors": ["nla"]}}))
    assert without["factorial"]["factors"] == ["nla"]
    derived = {"kind": "factorial", "repeated_for": ["hidden"]}
    assert designs(space.read({**DEBIAN, "grid": grid, "design": derived})) == found
    free = designs(space.read({**DEBIAN, "grid": grid, "design": {"kind": "free"}}))
    assert free["free"]["factors"] == [] and len(free["free"]["configs"]) == 8


def test_methods_of_a_command_line_are_ranked() -> None:
    found = designs(space.of_methods(["cec", "frozen"], ["debian"], seeds=(0,)))
    assert found["ranking"]["factors"] == [] and len(found["ranking"]["configs"]) == 2
    assert list(designs(space.of_methods(["cec"], ["debian"], seeds=(0,)))) == ["free"]


def test_designs_name_the_configurations_that_run_with_one_split() -> None:
    graph = "synthetic:nodes=600,edges=2500,features=80,classes=12,seed=1"
    found = space.read({"datasets": [graph], "grid": {"n_way": [1, 2], "k_shot": [1, 3]}, "seeds": 1})
    assert set(designs(found)["n-and-k"]["configs"]) == {config.hash() for config in found.resolved}
