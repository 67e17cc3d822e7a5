from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hagmeta.config import RunConfig, resolve
from hagmeta.protocol import PROTOCOLS

Write = Callable[..., Path]


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
    }


def figures(accuracy: Sequence[float]) -> dict[str, Any]:
    """What a run writes beside, with these accuracies."""
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
