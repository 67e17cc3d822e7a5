"""Figures: what is drawn is what the statistics say, and nothing is drawn from nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hagmeta.config import RunConfig
from hagmeta.pipeline import resolve

ON_OFF = (True, False)
FACTORIAL = [
    {"gpil": gpil, "nla": nla, "tla": tla} for gpil, nla, tla in itertools.product(ON_OFF, ON_OFF, ON_OFF)
]
GRID = [{"n_way": n, "k_shot": k} for n, k in itertools.product((1, 3, 5), (1, 5, 10))]
BOTH = [{"protocol": protocol} for protocol in ("strict", "released")]
AROUND = [
    {},
    *({"hidden": hidden} for hidden in (16, 64)),
    *({"learning_rate": rate} for rate in (0.001, 0.02)),
    *({"weight_decay": decay} for decay in (0.0, 0.005)),
    {"loss": "binary"},
    {"drop_small": False, "encoder": "gat"},
]
LONG = [
    {"dropout": d, "learning_rate": 0.001234, "finetune_rate": 0.00321, "hidden": h}
    for d in (0.1, 0.25)
    for h in (16, 64)
]


def record(config: RunConfig, seed: int, quality: float) -> dict[str, Any]:
    """A whole record: a falling curve that is better for better configurations, with the seed's own noise."""
    assert config.classes and config.n_way and config.sessions
    random = np.random.default_rng([int(config.hash()[:8], 16), seed])
    common = np.random.default_rng(seed)
    steps = np.arange(config.sessions + 1)
    drop = 0.25 * (1 - np.exp(-steps / 4))
    base = np.clip(
        0.75 + quality - drop + 0.03 * common.normal() + 0.01 * random.normal(size=len(steps)), 0, 1
    )
    new = np.clip(0.45 + quality + 0.05 * common.normal(size=len(steps)), 0, 1)
    matrix = [[float(base[t]), *(float(new[j] * 0.95 ** (t - j)) for j in range(1, t + 1))] for t in steps]
    known = config.classes[0] + config.classes[1]
    sizes = np.array([known] + [config.n_way] * config.sessions)
    accuracy = [float(np.average(row, weights=sizes[: len(row)])) for row in matrix]
    novel = [None, *(float(np.mean(row[1:])) for row in matrix[1:])]
    harmonic = [None, *(2 * row[0] * n / (row[0] + n) for row, n in zip(matrix[1:], novel[1:], strict=True))]
    return {
        "config": config.canonical(),
        "config_hash": config.hash(),
        "seed": seed,
        "accuracy": accuracy,
        "base_accuracy": [row[0] for row in matrix],
        "novel_accuracy": novel,
        "new_accuracy": [None, *(row[-1] for row in matrix[1:])],
        "harmonic": harmonic,
        "matrix": matrix,
        "pd": accuracy[0] - accuracy[-1],
        "rpd": 1 - accuracy[-1] / accuracy[0],
        "average_accuracy": float(np.mean(accuracy)),
        "forgetting": [],
        "validation": {"gpil": None, "stream": None},
        "seconds": {
            "pretrain": 2 + random.random(),
            "gpil": 10.0 * config.gpil,
            "evaluate": 3 + random.random(),
        },
        "environment": {"device": "test CPU", "seeds_in_pack": 3, "torch": "2", "commit": "abc"},
    }


def quality(config: RunConfig) -> float:
    value = 0.05 * config.gpil + 0.01 * config.nla - 0.01 * config.tla + 0.002 * (config.k_shot or 0)
    value += 0.1 * (config.protocol == "released") + 0.0002 * config.hidden
    return value - 0.1 * (config.method != "hag-meta")


def write_study(folder: Path, cases: Iterable[dict[str, Any]], seeds: Sequence[int] = range(4)) -> Path:
    """A study's folder with a record for each case and seed; a case's own `seeds` go before."""
    for case in cases:
        own = case.get("seeds", seeds)
        config = resolve(RunConfig(**{key: value for key, value in case.items() if key != "seeds"}))
        target = folder / "runs" / config.hash()
        target.mkdir(parents=True, exist_ok=True)
        for seed in own:
            (target / f"{seed}.json").write_text(json.dumps(record(config, seed, quality(config))))
    return folder
