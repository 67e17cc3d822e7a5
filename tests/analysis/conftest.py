from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hagmeta.config import RunConfig, resolve
from hagmeta.protocol import PROTOCOLS

Write = Callable[..., Path]
TITLES = {
    **{"hag-meta": "HAG-Meta", "proto-gcn": "Proto-GCN", "proto-gat": "Proto-GAT", "meta-gnn": "Meta-GNN"},
    **{"gpn": "GPN", "er-gnn": "ER-GNN", "icarl": "iCaRL", "cec": "CEC", "sgc-ncm": "SGC-NCM"},
    **{"posterior-means": "Posterior means", "joint": "Joint", "frozen": "Frozen"},
}
ROLES = {"hag-meta": "studied", "posterior-means": "proposed", "joint": "bound", "frozen": "bound"}


def traits(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of its method."""
    method = config["method"]
    clause = "visible nodes without labels, queries among them, move its class means"
    moved = any(config.get(key) for key in ("unlabelled", "coupling")) and "unlabelled" in config
    return {
        "title": TITLES.get(method, method),
        "role": ROLES.get(method, "baseline"),
        "oracle": method == "joint",
        "transductive": clause if moved else "",
    }


def about(config: RunConfig) -> dict[str, Any]:
    """What the records of all seeds of a configuration say of it."""
    return {
        "config": config.canonical(),
        "config_hash": config.hash(),
        "leaks": PROTOCOLS[config.protocol].leaks,
        "given": config.given(),
        "unhashed": config.unhashed(),
        "births": config.births(),
        "revisions": config.revisions(),
        "traits": traits(config.canonical()),
    }


def figures(accuracy: Sequence[float]) -> dict[str, Any]:
    """Return the other fields of a record with these accuracies."""
    sessions = range(len(accuracy))
    drop = accuracy[0] - accuracy[-1]
    return {
        "accuracy": list(accuracy),
        "base_accuracy": list(accuracy),
        "novel_accuracy": [None, *accuracy[1:]],
        "new_accuracy": [None, *accuracy[1:]],
        "harmonic": [None, *accuracy[1:]],
        "matrix": [[accuracy[t]] * (t + 1) for t in sessions],
        "pd": drop,
        "rpd": drop / accuracy[0],
        "average_accuracy": sum(accuracy) / len(accuracy),
        "forgetting": [0.0] * (len(accuracy) - 1),
        "validation": {"gpil": None, "stream": None},
        "seconds": {"prepare": 0.5, "pretrain": 1.0, "gpil": 2.0, "evaluate": 0.5},
        "environment": {
            "device": "CPU",
            "seeds_in_pack": 2,
            "peak_gpu_bytes": 0,
            "peak_memory_bytes": 2**29,
            "torch": "2.13.0",
            "commit": "0" * 40,
        },
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes runs of one configuration to a study: ``write({seed: accuracies}, nla=False)``."""

    def runs(
        curves: dict[int, Sequence[float]],
        *,
        study: str = "study",
        record: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        config = resolve(RunConfig(**({"sessions": len(next(iter(curves.values()))) - 1} | settings)))
        folder, told = tmp_path / study, about(config)
        for seed, accuracy in curves.items():
            path = folder / "runs" / config.hash() / f"{seed}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(told | {"seed": seed} | figures(accuracy) | (record or {})))
        return folder

    return runs
