"""How often a report claims what is not so: made results of which the truth is known.

    python benchmarks/claims.py --reports 500 --out claims.csv
    python benchmarks/claims.py --ratings

Three kinds of reports: nine methods on some datasets, all pairs compared (`methods`); four maps of N and K
of sixteen cells, one method compared with three others (`maps`); both in one report (`both`). Seeds have a
part that all methods share, as splits do, and each method a part of its own. «Any graph» is the truth over
graphs, where a method's own part is alike for all seeds of one: seeds cannot tell of that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics.inference import AHEAD, BEHIND, EQUIVALENT, LEVEL, MARGIN, Tested, families
from analysis.statistics.over_datasets import OverDatasets, ratings_of

METHODS, MAPS, CELLS, OTHERS = 9, 4, 16, 3
# Of every second method. Differences of exactly one point are the hardest not to call equivalent.
EFFECTS = {"none": 0.0, "one point": MARGIN, "five points": 0.05}
NOISES = ("normal", "unequal", "skewed", "unequal and skewed")
SHARED, OWN = 0.02, 0.01  # deviations
UNEQUAL = (0.2, 2.0)  # the least and the largest own part, as shares of OWN
ALIKE = 0.3  # correlation of a method's own part between seeds, where they are not independent
Differences = dict[Any, pd.Series]


def noise(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """A method's own part, methods last: of mean 0, and of deviation 1 on average."""
    drawn = random.exponential(size=shape) - 1 if "skewed" in kind else random.normal(size=shape)
    return drawn * np.linspace(*UNEQUAL, shape[-1]) if "unequal" in kind else drawn


def compared(
    datasets: int, seeds: int, effect: float, kind: str, alike: float, random: np.random.Generator
) -> tuple[Differences, dict[Any, float], dict[Any, float]]:
    """All pairs of methods on every dataset, with what is true on that graph, and on any."""
    of_graph = np.sqrt(alike) * OWN * random.normal(size=(datasets, METHODS))
    truth = effect * (np.arange(METHODS) % 2)
    scores = SHARED * random.normal(size=(datasets, seeds, 1)) + (truth + of_graph)[:, None]
    scores = scores + np.sqrt(1 - alike) * OWN * noise(kind, (datasets, seeds, METHODS), random)
    pairs = [(d, one, other) for d in range(datasets) for other, one in combinations(range(METHODS), 2)]
    found = {(d, i, j): pd.Series(scores[d, :, i] - scores[d, :, j]) for d, i, j in pairs}
    here = {(d, i, j): (truth + of_graph[d])[i] - (truth + of_graph[d])[j] for d, i, j in pairs}
    return found, here, {(d, i, j): truth[i] - truth[j] for d, i, j in pairs}


def mapped(
    seeds: int, effect: float, kind: str, random: np.random.Generator
) -> tuple[Differences, dict[Any, float]]:
    """One method less every other, in every cell of some maps; other cells have other splits."""
    truth = effect * (np.arange(OTHERS + 1) % 2)
    shape = (MAPS, CELLS, seeds, OTHERS + 1)
    scores = SHARED * random.normal(size=(*shape[:-1], 1)) + truth + OWN * noise(kind, shape, random)
    keys = [(m, cell, other) for m in range(MAPS) for cell in range(CELLS) for other in range(1, OTHERS + 1)]
    found = {(m, cell, j): pd.Series(scores[m, cell, :, 0] - scores[m, cell, :, j]) for m, cell, j in keys}
    return found, {(m, cell, j): truth[0] - truth[j] for m, cell, j in keys}


def judged(tested: Tested, truths: dict[str, dict[Any, float]]) -> dict[str, float]:
    """Of one report: what was said falsely, and how much was found."""
    told = [(each, truths[kind][key]) for kind, family in tested.families.items()
            for key, each in family.comparisons.items()]  # fmt: skip
    claimed = {AHEAD: 1, BEHIND: -1}
    false = any(claimed.get(each.verdict, 0) * truth < 0 or (claimed.get(each.verdict) and abs(truth) < 1e-12)
                for each, truth in told)  # fmt: skip
    alike = any(each.verdict == EQUIVALENT and abs(truth) >= MARGIN - 1e-12 for each, truth in told)
    real = [claimed.get(each.verdict, 0) * truth > 0 for each, truth in told if abs(truth) > 1e-12]
    none = [each.verdict == EQUIVALENT for each, truth in told if abs(truth) <= 1e-12]
    return {
        "false ahead or behind": float(false),
        "falsely equivalent": float(alike),
        "any false verdict": float(false or alike),
        "found": float(np.mean(real)) if real else np.nan,
        "called equivalent": float(np.mean(none)) if none else np.nan,
        "covered": float(np.mean([each.low <= truth <= each.high for each, truth in told])),
        "said to be skewed": float(tested.asymmetry < LEVEL),
    }


def simulate(
    reports: int, kind: str, datasets: int, seeds: int, effect: str, noisy: str, alike: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Rates over many reports of one kind."""
    numbers = [datasets, seeds, list(EFFECTS).index(effect), NOISES.index(noisy), int(100 * alike), len(kind)]
    random = np.random.default_rng(numbers)
    told: dict[str, list[dict[str, float]]] = {}
    for _ in range(reports):
        asked: dict[str, Differences] = {}
        here: dict[str, dict[Any, float]] = {}
        anywhere: dict[str, dict[Any, float]] = {}
        if kind in ("methods", "both"):
            asked["pairs"], here["pairs"], anywhere["pairs"] = compared(
                datasets, seeds, EFFECTS[effect], noisy, alike, random
            )
        if kind in ("maps", "both"):
            asked["margins"], here["margins"] = mapped(seeds, EFFECTS[effect], noisy, random)
        tested = families(asked, dict.fromkeys(asked, ""), "")
        told.setdefault("this graph", []).append(judged(tested, here))
        if alike:
            told.setdefault("any graph", []).append(judged(tested, anywhere))
    for of, each in told.items():
        what = {"report": kind, "datasets": datasets, "seeds": seeds, "effect": effect, "noise": noisy}
        yield {**what, "alike": alike, "truth of": of, "reports": reports} | pd.DataFrame(
            each
        ).mean().to_dict()


def plan(reports: int) -> Iterator[tuple[Any, ...]]:
    """Which reports are made, and how many: of large ones half, and a fifth where rates are near 0 or 1."""
    for seeds in (6, 10, 20):
        for effect in ("none", "one point"):
            for datasets in (1, 3):
                yield reports, "methods", datasets, seeds, effect, "normal"
            yield reports // 2, "maps", 0, seeds, effect, "normal"
            yield reports // 2, "both", 3, seeds, effect, "normal"
        yield reports // 5, "methods", 3, seeds, "five points", "normal"
    for noisy in NOISES[1:]:
        for seeds in (10, 20):
            yield reports, "methods", 3, seeds, "none", noisy
            yield reports, "methods", 3, seeds, "one point", noisy
    for seeds in (10, 20):
        yield reports // 5, "methods", 3, seeds, "none", "normal", ALIKE


def ratings(reports: int, random: np.random.Generator) -> Iterator[dict[str, Any]]:
    """How often intervals of ratings cover the rating over many datasets like these."""

    def made(datasets: int) -> OverDatasets:
        of_graph = 0.01 * np.arange(5) + 0.02 * random.normal(size=(datasets, 5))
        scores = of_graph[:, None] + 0.01 * random.normal(size=(datasets, 10, 5))
        return OverDatasets({str(d): pd.DataFrame(each) for d, each in enumerate(scores)}, "", pd.DataFrame())

    truth = made(4000).improvement.to_numpy()
    for datasets in (6, 10, 20):
        covered, wide = [], []
        for _ in range(reports):
            found = made(datasets)
            rating = found.ratings
            expected = ratings_of(truth, 0.5 / (10 * datasets))
            known = rating["low"].notna()
            covered += list(((rating["low"] <= expected) & (expected <= rating["high"]))[known])
            wide += list((rating["high"] - rating["low"])[known])
        yield {
            "datasets": datasets,
            "covered": np.mean(covered),
            "width": np.mean(wide),
            "intervals": len(wide),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a report claims what is not so.")
    parser.add_argument("--reports", type=int, default=500, help="of a kind; of large ones half, or a fifth")
    parser.add_argument(
        "--ratings", action="store_true", help="how often intervals of ratings cover, instead"
    )
    parser.add_argument("--out", type=Path, default=Path("claims.csv"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.ratings:
        rows = list(ratings(options.reports, np.random.default_rng(0)))
    else:
        for each in plan(options.reports):
            rows += simulate(*each)
            pd.DataFrame(rows).to_csv(options.out, index=False)
            print(rows[-1], flush=True)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
