"""How often a report claims what is not so: made results of which the truth is known.

    python benchmarks/claims.py --reports 500 --out claims.csv

A report has the reference and eight rivals on some datasets. Seeds have a part that all methods share, as
splits do, and each method a part of its own. «Before» are the rules that reports had first: Wilcoxon's test,
Holm-corrected within a dataset, from five seeds on, and percentile bootstrap intervals. «Any graph» is the
truth over graphs, where a method's own part is alike for all seeds of one: seeds cannot tell of that.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from analysis.inference import AHEAD, BEHIND, EQUIVALENT, LEVEL, MARGIN, TOO_FEW, UNDECIDED, family, holm

METHODS = 9  # the first is the reference
EFFECTS = {"none": 0.0, "small": 0.01, "large": 0.05}  # of every second rival
SEEDS, DATASETS = (3, 5, 10, 20), (1, 3, 10)
SHARED, OWN = 0.02, 0.01  # deviations
ALIKE = 0.3  # correlation of a method's own part between seeds, where they are not independent
RESAMPLES = 500


def drawn(
    datasets: int, seeds: int, effect: float, alike: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Scores (datasets, seeds, methods), and what each method has on that very graph (datasets, methods)."""
    of_graph = np.sqrt(alike) * OWN * random.normal(size=(datasets, METHODS))
    truth = effect * (np.arange(METHODS) % 2) + of_graph
    shared = SHARED * random.normal(size=(datasets, seeds, 1))
    own = np.sqrt(1 - alike) * OWN * random.normal(size=(datasets, seeds, METHODS))
    return 0.5 + truth[:, None] + shared + own, truth


def judged(low: float, high: float, verdict: str, truth: float) -> dict[str, Any]:
    """Of one comparison: whether what is said of it is so."""
    claimed = {AHEAD: 1, BEHIND: -1}.get(verdict, 0)
    return {
        "false": bool(claimed and claimed * truth <= 0),
        "found": claimed * np.sign(truth) > 0,
        "real": truth != 0,
        "covered": low <= truth <= high,
        "equal": verdict == EQUIVALENT,
        "falsely equal": verdict == EQUIVALENT and abs(truth) >= MARGIN,
        "undecided": verdict == UNDECIDED,
        "too few": verdict == TOO_FEW,
    }


Said = dict[tuple[int, int, int], tuple[float, float, str]]  # by dataset and pair: an interval, a verdict


def after(scores: np.ndarray) -> Said:
    """By the rules of today: all pairs of a comparison of methods are one family, over all datasets."""
    pairs = [(d, one, other) for d in range(len(scores)) for other, one in combinations(range(METHODS), 2)]
    differences = {
        (d, one, other): pd.Series(scores[d, :, one] - scores[d, :, other]) for d, one, other in pairs
    }
    compared = family(differences, "", "").comparisons
    return {pair: (found.low, found.high, found.verdict) for pair, found in compared.items()}


def before(scores: np.ndarray, random: np.random.Generator) -> Said:
    """By the rules that reports had first."""
    said = {}
    for dataset, table in enumerate(scores):
        apart = table[:, 1:] - table[:, [0]]  # (seeds, rivals)
        p = scipy.stats.wilcoxon(apart).pvalue if len(apart) >= 5 else np.ones(METHODS - 1)
        means = apart[random.integers(len(apart), size=(RESAMPLES, len(apart)))].mean(axis=1)
        limits = np.quantile(means, [0.025, 0.975], axis=0)
        for rival, corrected in enumerate(holm(p)):
            verdict = (AHEAD if apart[:, rival].mean() > 0 else BEHIND) if corrected < LEVEL else UNDECIDED
            said[dataset, rival + 1, 0] = (*limits[:, rival], verdict)
    return said


def simulate(reports: int, datasets: int, seeds: int, effect: str, alike: float) -> list[dict[str, Any]]:
    """Rates over many reports of one kind, before and after."""
    random = np.random.default_rng([datasets, seeds, list(EFFECTS).index(effect), int(100 * alike)])
    told = []
    for number in range(reports):
        scores, on_graph = drawn(datasets, seeds, EFFECTS[effect], alike, random)
        anywhere = np.tile(EFFECTS[effect] * (np.arange(METHODS) % 2), (datasets, 1))
        truths = {"this graph": on_graph} | ({"any graph": anywhere} if alike else {})
        said = {"before": before(scores, random), "after": after(scores)}
        told += [
            {"report": number, "rules": rules, "truth of": of, "planned": other == 0}
            | judged(*found, truth[dataset, one] - truth[dataset, other])
            for of, truth in truths.items()
            for rules, by_pair in said.items()
            for (dataset, one, other), found in by_pair.items()
        ]
    rows = []
    for (rules, of), group in pd.DataFrame(told).groupby(["rules", "truth of"], sort=False):
        planned = group[group["planned"]]
        real = planned[planned["real"]]
        kind = {"datasets": datasets, "seeds": seeds, "effect": effect, "correlated": alike, "truth of": of}
        rates = {"false claim": group.groupby("report")["false"].any().mean()}
        rates |= {
            "coverage": planned["covered"].mean(),
            "power": real["found"].mean() if len(real) else np.nan,
        }
        rates |= {name: planned[name].mean() for name in ("equal", "falsely equal", "undecided", "too few")}
        rows.append({**kind, "rules": rules, "reports": reports, **rates})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a report claims what is not so.")
    parser.add_argument(
        "--reports", type=int, default=500, help="of those without effects; of others a fifth"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--datasets", type=int, nargs="+", default=DATASETS)
    parser.add_argument("--out", type=Path, default=Path("claims.csv"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seeds in options.seeds:
        for datasets in options.datasets:
            for effect in EFFECTS:
                rows += simulate(
                    options.reports // (1 if effect == "none" else 5), datasets, seeds, effect, 0.0
                )
            rows += simulate(options.reports // 5, datasets, seeds, "none", ALIKE)
            pd.DataFrame(rows).to_csv(options.out, index=False)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
