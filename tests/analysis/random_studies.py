"""Make random studies with known truth: missing seeds, ties, disjoint seeds and many shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from hagmeta.common.records.records import config_hash
from hagmeta.config.run_config import RunConfig, resolve
from tests.analysis.conftest import about, figures

METHODS = ("hag-meta", "gpn", "icarl", "cec", "sgc-ncm", "frozen", "posterior-means")
ARMS = (
    *({"learning_rate": 0.01}, {"learning_rate": 0.02}, {"hidden": 16}, {"hidden": 64}),
    *({"dropout": 0.1}, {"finetune_steps": 5}, {"smoothing": 0.5}),
)
KINDS = ("methods", "ablation", "training", "sensitivity", "grid", "protocols", "values")
SEEDS, DATASETS = (2, 12), (1, 10)


@dataclass(frozen=True)
class Truth:
    """What one configuration has on one dataset, with every seed."""

    settings: dict[str, Any]
    dataset: str
    first: float
    last: float


def truths(random: np.random.Generator) -> list[Truth]:
    """The configurations of a study, of a kind chosen at random."""
    kind = str(random.choice(KINDS))
    count = (
        int(random.integers(DATASETS[0], DATASETS[1] + 1))
        if kind == "methods"
        else int(random.integers(1, 4))
    )
    effect = random.choice([0.0, 0.005, 0.03, 0.2])
    alike = random.random() < 0.3  # the same order on all datasets
    configs = list(_configs(kind, random))
    shared = random.normal(size=len(configs))
    found = []
    for number in range(count):
        own = shared if alike else random.normal(size=len(configs))
        for config, offset in zip(configs, own, strict=True):
            oracle = config["method"] == "joint"
            last = 0.4 + 0.03 * number + effect * offset + 0.1 * oracle
            found.append(Truth(config, f"graph-{number}", last + 0.2, last))
    return found


def _configs(kind: str, random: np.random.Generator) -> Iterator[dict[str, Any]]:
    names = random.permutation(METHODS)[: int(random.integers(2, len(METHODS)))].tolist()
    if kind == "methods":
        yield from ({"method": name} for name in names)
        if random.random() < 0.4:
            yield {"method": "joint"}
    elif kind == "ablation":
        factors = random.permutation(["gpil", "nla", "tla"])[: int(random.integers(1, 4))].tolist()
        for bits in range(2 ** len(factors)):
            yield {"method": "hag-meta"} | {name: bool(bits >> i & 1) for i, name in enumerate(factors)}
    elif kind == "training":
        for nla in (False, True):
            yield {"method": "hag-meta", "nla": nla}
            yield {"method": "hag-meta", "nla": nla, "gpil": False}
            yield {"method": "hag-meta", "nla": nla, "gpil": False, "instead_of_gpil": "supervised"}
    elif kind == "sensitivity":
        yield {"method": "hag-meta"}
        for index in random.permutation(len(ARMS))[: int(random.integers(2, len(ARMS) + 1))]:
            yield {"method": "hag-meta"} | ARMS[index]
    elif kind == "grid":
        for name in names[:3]:
            yield from ({"method": name, "n_way": n, "k_shot": k} for n in (2, 3) for k in (1, 5))
    elif kind == "protocols":
        for name in names[:2]:
            yield from ({"method": name, "protocol": each} for each in ("strict", "released"))
    else:
        for name in names[:4]:
            yield from ({"method": name, "pretrain_on": each} for each in ("base", "known"))


@cache
def _about(settings: tuple[tuple[str, Any], ...], sessions: int) -> dict[str, Any]:
    return about(resolve(RunConfig.of(**dict(settings), sessions=sessions)))


def write_study(folder: Path, number: int) -> list[Truth]:
    """Write the records of study ``number`` under ``folder``; returns what is true of it."""
    random = np.random.default_rng(number)
    known = truths(random)
    seeds = int(random.integers(SEEDS[0], SEEDS[1] + 1))
    sessions = int(random.integers(1, 4))
    noise, hard = random.choice([0.0, 0.002, 0.01, 0.05]), random.choice([0.0, 0.02, 0.05])
    digits = int(random.choice([2, 3, 10]))  # ties, where there are few
    fate = random.choice(["whole", "whole", "missing", "easy", "disjoint"])
    ease = {seed: hard * each for seed, each in enumerate(random.normal(size=2 * seeds))}
    for truth in known:
        own = _seeds(fate, seeds, ease, random)
        base = _about(tuple(sorted(truth.settings.items())), sessions)
        config = {**base["config"], "dataset": truth.dataset}
        told = base | {
            "config": config,
            "config_hash": config_hash(config, base["unhashed"], base["revisions"]),
            "data": sha256(truth.dataset.encode()).hexdigest(),
        }
        place = folder / "runs" / told["config_hash"]
        place.mkdir(parents=True, exist_ok=True)
        for seed in own:
            ends = np.clip(
                np.array([truth.first, truth.last]) + ease[seed] + noise * random.normal(size=2), 0.01, 0.99
            )
            curve = np.round(np.linspace(ends[0], ends[1], sessions + 1), digits).tolist()
            record = told | {"seed": seed} | figures(curve)
            (place / f"{seed}.json").write_text(json.dumps(record))
    return known


def _seeds(fate: str, count: int, ease: dict[int, float], random: np.random.Generator) -> list[int]:
    """The seeds that one configuration has, at least one."""
    every = list(range(count))
    if fate == "missing" and random.random() < 0.5:
        return sorted(random.permutation(every)[: int(random.integers(1, count + 1))].tolist())
    if fate == "easy" and random.random() < 0.3:
        return sorted(sorted(every, key=lambda seed: -ease[seed])[: max(1, count // 2)])
    if fate == "disjoint" and random.random() < 0.5:
        return [seed + count for seed in every]
    return every
