"""How often a report claims what is not so: made results of which the truth is known.

    python benchmarks/claims.py --reports 300 --out claims.csv

A report has the reference and eight rivals on some datasets. Seeds have a part that all methods share, as
splits do, and each method a part of its own. «Before» are the rules that reports had first: Wilcoxon's test,
Holm-corrected within a dataset, from five seeds on, and percentile bootstrap intervals.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats

from analysis.claims import claims
from analysis.frame import Results, read
from analysis.inference import AHEAD, BEHIND, EQUIVALENT, LEVEL, MARGIN, TOO_FEW, UNDECIDED, holm
from hagmeta.common.records import config_hash

METHODS = ("hag-meta", "proto-gcn", "proto-gat", "meta-gnn", "gpn", "er-gnn", "icarl", "cec", "frozen")
EFFECTS = {"none": 0.0, "small": 0.01, "large": 0.05}  # of every second rival
SEEDS, DATASETS = (3, 5, 10, 20), (1, 3, 10)
SHARED, OWN = 0.02, 0.01  # deviations
ALIKE = 0.3  # correlation of a method's own part between seeds, where they are not independent
RESAMPLES = 2_000


def template(datasets: int, seeds: int) -> Results:
    """Results of that shape, read from records; only accuracies are drawn anew."""
    with tempfile.TemporaryDirectory() as place:
        for number in range(datasets):
            for method in METHODS:
                config = {"dataset": f"graph-{number}", "method": method, "protocol": "strict"}
                config |= {"n_way": 3, "k_shot": 5, "sessions": 1}
                name = config_hash(config)
                folder = Path(place) / "runs" / name
                folder.mkdir(parents=True)
                for seed in range(seeds):
                    record = {"config": config, "config_hash": name, "seed": seed, "given": [], "seconds": {}}
                    record |= {"accuracy": [0.5, 0.5], "matrix": [[0.5], [0.5, 0.5]], "pd": 0.0, "rpd": 0.0}
                    (folder / f"{seed}.json").write_text(json.dumps(record | {"validation": {}}))
        return read([Path(place)])


def drawn(
    results: Results, effect: float, alike: float, random: np.random.Generator
) -> tuple[Results, pd.Series]:
    """Results with accuracies drawn anew, and of each dataset and method what it has on that very graph."""
    runs = results.runs
    place = pd.MultiIndex.from_frame(runs[["dataset", "method"]])
    truth = {}
    for dataset in runs["dataset"].unique():
        for number, method in enumerate(METHODS):
            own_of_graph = np.sqrt(alike) * OWN * random.normal()
            truth[dataset, method] = effect * (number % 2) + own_of_graph
    on_graph = pd.Series(truth)
    common = {key: SHARED * random.normal() for key in set(zip(runs["dataset"], runs["seed"], strict=True))}
    shared = [common[key] for key in zip(runs["dataset"], runs["seed"], strict=True)]
    own = np.sqrt(1 - alike) * OWN * random.normal(size=len(runs))
    last = 0.5 + on_graph.reindex(place).to_numpy() + np.array(shared) + own
    return replace(results, runs=runs.assign(last=last)), on_graph


def judged(low: float, high: float, verdict: str, truth: float) -> dict[str, float]:
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


def after(results: Results, truth: pd.Series) -> list[dict[str, float]]:
    """By the report's own rules."""
    methods = dict(zip(results.runs["label"], results.runs["method"], strict=True))
    datasets = {panel.title: panel.runs["dataset"].iloc[0] for panel in results.panels()}
    told = []
    for (title, one, other), found in claims(results).pairs.comparisons.items():
        dataset = datasets[title]
        so = truth[dataset, methods[one]] - truth[dataset, methods[other]]
        asked = METHODS[0] in (methods[one], methods[other])  # before any result was seen
        told.append(judged(found.low, found.high, found.verdict, so) | {"planned": asked})
    return told


def before(results: Results, truth: pd.Series, random: np.random.Generator) -> list[dict[str, float]]:
    """By the rules that reports had first."""
    told = []
    for dataset, runs in results.runs.groupby("dataset"):
        last = runs.pivot(index="seed", columns="method", values="last")
        apart = [last[method].to_numpy() - last[METHODS[0]].to_numpy() for method in METHODS[1:]]
        enough = len(last) >= 5
        p = holm([scipy.stats.wilcoxon(each).pvalue if enough else 1.0 for each in apart])
        for method, each, corrected in zip(METHODS[1:], apart, p, strict=True):
            picks = random.integers(len(each), size=(RESAMPLES, len(each)))
            low, high = np.quantile(each[picks].mean(axis=1), [0.025, 0.975])
            verdict = (AHEAD if each.mean() > 0 else BEHIND) if corrected < LEVEL else UNDECIDED
            so = truth[dataset, method] - truth[dataset, METHODS[0]]
            told.append(judged(low, high, verdict, so) | {"planned": True})
    return told


def simulate(reports: int, datasets: int, seeds: int, effect: str, alike: float) -> list[dict[str, object]]:
    """Rates over many reports of one kind, before and after."""
    random = np.random.default_rng([datasets, seeds, list(EFFECTS).index(effect), int(100 * alike)])
    shape, told = template(datasets, seeds), []
    for number in range(reports):
        results, on_graph = drawn(shape, EFFECTS[effect], alike, random)
        anywhere = pd.Series({key: EFFECTS[effect] * (METHODS.index(key[1]) % 2) for key in on_graph.index})
        for truth, of in ((on_graph, "this graph"), (anywhere, "any graph"))[: 2 if alike else 1]:
            for rules, judged_all in (
                ("before", before(results, truth, random)),
                ("after", after(results, truth)),
            ):
                told += [{"report": number, "rules": rules, "truth of": of, **each} for each in judged_all]
    frame = pd.DataFrame(told)
    rows = []
    for (rules, of), group in frame.groupby(["rules", "truth of"], sort=False):
        planned = group[group["planned"]]
        real = planned[planned["real"]]
        rows.append(
            {
                "datasets": datasets, "seeds": seeds, "effect": effect, "correlated": alike, "truth of": of,
                "rules": rules,
                "reports with a false claim": group.groupby("report")["false"].any().mean(),
                "coverage": planned["covered"].mean(),
                "power": real["found"].mean() if len(real) else np.nan,
                **{name: planned[name].mean() for name in ("equal", "falsely equal", "undecided", "too few")},
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a report claims what is not so.")
    parser.add_argument("--reports", type=int, default=300, help="of each kind without effects")
    parser.add_argument("--out", type=Path, default=Path("claims.csv"))
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for datasets in DATASETS:
        for seeds in SEEDS:
            for effect in EFFECTS:
                fewer = 1 if effect == "none" else 5
                rows += simulate(options.reports // fewer, datasets, seeds, effect, 0.0)
            rows += simulate(options.reports // 3, datasets, seeds, "none", ALIKE)
            pd.DataFrame(rows).to_csv(options.out, index=False)
            print(pd.DataFrame(rows[-10:]).round(3).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
