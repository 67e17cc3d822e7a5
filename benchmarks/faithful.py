"""Does `released` give what the authors' published code gives? And what does `strict` give there?

    python benchmarks/faithful.py PREFIX

PREFIX names the 20-class piece of Amazon-Clothing in the .mat layout. Nodes without neighbours are dropped,
as they were for the authors' code, which cannot take them. `authors_curves.csv` is what that code printed
there: classes 6/6/8, 2-way 5-shot, 20 queries a class, 300 or 600 episodes, five seeds.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from hagmeta import datasets
from hagmeta.api.display import percent
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.testing import records_of


def without_isolated_nodes(dataset: Dataset) -> Dataset:
    kept = np.unique(dataset.edges)
    position = np.full(dataset.num_nodes, -1)
    position[kept] = np.arange(len(kept))
    return Dataset(
        name=dataset.name,
        edges=position[dataset.edges],
        labels=dataset.labels[kept],
        features=dataset.features[kept],
        class_names=dataset.class_names,
    )


def authors_means() -> list[float]:
    by_session = defaultdict(list)
    with (Path(__file__).parent / "authors_curves.csv").open() as file:
        for row in csv.DictReader(file):
            by_session[int(row["session"])].append(float(row["accuracy"]))
    return [float(np.mean(by_session[session])) for session in sorted(by_session)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prefix")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    name = f"mat:{options.prefix}"
    dataset = without_isolated_nodes(datasets.load(name, Path()))
    print(f"{dataset.num_nodes} nodes, {len(dataset.edges)} edges, {dataset.num_classes} classes")
    authors = authors_means()
    print(f"{'session':22} " + " ".join(f"{s:>12}" for s in range(len(authors) + 1)))
    print(f"{'authors code, 5 seeds':22} {'':>12} " + " ".join(f"{100 * value:12.1f}" for value in authors))
    for protocol in ("released", "strict"):
        config = RunConfig.of(
            dataset=name, protocol=protocol, classes=(6, 6, 8), n_way=2, k_shot=5, episodes=300
        )
        records = records_of(config, range(options.seeds), dataset)
        curve = [[record["accuracy"][session] for record in records] for session in range(len(authors) + 1)]
        print(f"{protocol:22} " + " ".join(f"{percent(values):>12}" for values in curve))
        if protocol == "released":
            gaps = [100 * (np.mean(curve[s + 1]) - authors[s]) for s in range(len(authors))]
            print(f"{'released less authors':22} {'':>12} " + " ".join(f"{gap:+12.1f}" for gap in gaps))


if __name__ == "__main__":
    main()
