"""Measure how often verdicts are false, and how much they find, on simulated results with a known truth.

    python benchmarks/claims.py --reports 500 --out claims.csv

Three kinds of reports: nine methods on some datasets, compared with the first (family `reference`) and with
each other (`pairs`); four maps of N and K of sixteen cells, one method compared with three others
(`margins`); three switches with all combinations (`effects`). Seeds have a part that all methods share, as
splits do, and each method a part of its own. "Any graph" is the truth over graphs, where a method's own part
is alike for all seeds of one: seeds cannot tell of that. "Before" are the tests of `planned_verdicts`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.references.planned import planned_verdicts
from analysis.statistics.inference import (
    BETTER,
    EQUIVALENT,
    INCONCLUSIVE,
    LEVEL,
    MARGIN,
    WORSE,
    Family,
    asymmetry,
    discoveries,
    planned,
)

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


def effects_of(
    seeds: int, effect: float, kind: str, random: np.random.Generator
) -> tuple[Differences, dict[Any, float]]:
    """Effects and interactions of three switches at two sessions; the first switch has an effect."""
    signs = np.array(list(product((-1, 1), repeat=3)))  # (cells, switches)
    cells = SHARED * random.normal(size=(2, seeds, 1)) + effect / 2 * signs[:, 0]
    cells = cells + OWN * noise(kind, (2, seeds, len(signs)), random)
    found, truth = {}, {}
    for moment, which in product(range(2), [c for n in (1, 2, 3) for c in combinations(range(3), n)]):
        contrast = signs[:, which].prod(axis=1) / (len(signs) / 2)
        found[moment, which] = pd.Series(cells[moment] @ contrast)
        truth[moment, which] = effect * (which == (0,))
    return found, truth


def false(verdict: str, truth: float) -> bool:
    """Whether a verdict is false."""
    sign = {BETTER: 1, WORSE: -1}.get(verdict)
    if sign:
        return sign * truth < 1e-12
    return verdict == EQUIVALENT and abs(truth) >= MARGIN - 1e-12


def judged(family: Family, truths: dict[Any, float], old: dict[Any, str]) -> dict[str, float]:
    """Return what one family says falsely, and how much it finds, next to the tests before (`old`)."""
    verdicts = {key: each.verdict for key, each in family.comparisons.items()}
    wrong = [false(verdict, truths[key]) for key, verdict in verdicts.items()]
    real = [key for key, truth in truths.items() if abs(truth) > 1e-12]
    none = [key for key in truths if key not in set(real)]

    def share(found: dict[Any, str], keys: list[Any], *wanted: str) -> float:
        return float(np.mean([found[key] in wanted for key in keys])) if keys else np.nan

    missed = [
        not each.low <= truths[key] <= each.high
        for key, each in family.comparisons.items()
        if each.verdict != INCONCLUSIVE
    ]
    return {
        "false discoveries": sum(wrong) / max(1, family.decided),
        "any false": float(any(wrong)),
        "any false before": float(any(false(old[key], truths[key]) for key in verdicts)),
        "false coverage": sum(missed) / max(1, family.decided),
        "found": share(verdicts, real, BETTER, WORSE),
        "found before": share(old, real, BETTER, WORSE),
        "called equivalent": share(verdicts, none, EQUIVALENT),
        "called equivalent before": share(old, none, EQUIVALENT),
    }


Asked = tuple[str, Differences, dict[Any, float], dict[Any, float] | None]


def report(
    kind: str,
    datasets: int,
    seeds: int,
    effect: float,
    noisy: str,
    alike: float,
    random: np.random.Generator,
) -> Iterator[Asked]:
    """Yield the families of a report: name, differences, the truth on these graphs, and on any graph."""
    if kind == "methods":
        found, here, anywhere = compared(datasets, seeds, effect, noisy, alike, random)
        for name, wanted in (("reference", True), ("pairs", False)):
            keys = [key for key in found if (key[2] == 0) == wanted]
            yield name, *({key: each[key] for key in keys} for each in (found, here, anywhere))  # type: ignore[misc]
    elif kind == "maps":
        yield "margins", *mapped(seeds, effect, noisy, random), None
    else:
        yield "effects", *effects_of(seeds, effect, noisy, random), None


def simulate(
    reports: int, kind: str, datasets: int, seeds: int, effect: str, noisy: str, alike: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield the rates of each family over many reports of one kind."""
    numbers = [datasets, seeds, list(EFFECTS).index(effect), NOISES.index(noisy), int(100 * alike), len(kind)]
    random = np.random.default_rng(numbers)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    skewed = []
    for _ in range(reports):
        families = list(report(kind, datasets, seeds, EFFECTS[effect], noisy, alike, random))
        every = {(name, key): each for name, asked, *_ in families for key, each in asked.items()}
        before = planned_verdicts(every)
        skewed.append(asymmetry(every.values()) < LEVEL)
        for name, asked, here, anywhere in families:
            tested = (planned if name == "effects" else discoveries)(asked, "", "")
            old = {key: before[name, key] for key in asked}
            found.setdefault((name, "this graph"), []).append(judged(tested, here, old))
            if alike and anywhere:
                found.setdefault((name, "any graph"), []).append(judged(tested, anywhere, old))
    for (name, of), each in found.items():
        what = {"family": name, "datasets": datasets, "seeds": seeds, "effect": effect, "noise": noisy}
        rates = pd.DataFrame(each).mean().to_dict()
        yield {**what, "truth of": of, "reports": reports, **rates, "warned": float(np.mean(skewed))}


def plan(reports: int) -> Iterator[tuple[Any, ...]]:
    """Yield which reports are simulated, and how many: half of the large ones, a fifth of correlated ones."""
    for seeds in (6, 10, 20):
        for effect in ("none", "one point"):
            for datasets in (1, 3):
                yield reports, "methods", datasets, seeds, effect, "normal"
            yield reports // 2, "maps", 0, seeds, effect, "normal"
            yield reports, "effects", 0, seeds, effect, "normal"
        yield reports // 5, "methods", 3, seeds, "five points", "normal"
    for noisy in NOISES[1:]:
        for seeds in (10, 20):
            for effect in ("none", "one point"):
                yield reports, "methods", 3, seeds, effect, noisy
                yield reports, "effects", 0, seeds, effect, noisy
    for seeds in (10, 20):
        yield reports // 5, "methods", 3, seeds, "none", "normal", ALIKE


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a report claims what is not so.")
    parser.add_argument("--reports", type=int, default=500, help="of a kind; of large ones half, or a fifth")
    parser.add_argument("--out", type=Path, default=Path("claims.csv"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for each in plan(options.reports):
        rows += simulate(*each)
        pd.DataFrame(rows).to_csv(options.out, index=False)
        print(rows[-1], flush=True)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
