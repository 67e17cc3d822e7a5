"""Play the story of docs/guides/learner.md: sections of Debian arrive over the weeks.

    python benchmarks/learner.py --method posterior-means

In week 0 the learner is fitted on the 24 largest sections, with a label for every second package. Every week
brings three other sections with their packages, and five labels for each. The table has a row per week: the
size of the graph, the processor time of `fit` or `learn`, of the first `predict` after loading the learner
from its file and of a second one, the accuracy on all unlabelled packages of sections met so far, and the
calibration error of the probabilities.

    python benchmarks/learner.py --method sgc-lda --nodes 10000

This prints a row for a random graph instead, with five edges per node: the processor time of `learn` and of
`predict` for new nodes, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import hagmeta
from hagmeta.protocol.evaluator import calibration_error

KNOWN, PER_WEEK, LABELS, ASKED = 24, 3, 5, 100


def packages_of(whole: hagmeta.Dataset, classes: np.ndarray) -> hagmeta.Dataset:
    """Return the graph of the packages in some sections."""
    return without(whole, ~np.isin(whole.labels, classes))


def without(whole: hagmeta.Dataset, late: np.ndarray) -> hagmeta.Dataset:
    """Return the graph without some nodes. The ids of the others are their rows in the whole graph."""
    there = ~late
    rows = np.flatnonzero(there)
    place = np.cumsum(there) - 1
    return replace(
        whole,
        edges=place[whole.edges[there[whole.edges].all(1)]],
        labels=whole.labels[rows],
        features=whole.features[rows],
        node_ids=tuple(rows.tolist()),
    )


def on_random_graph(learner: hagmeta.Learner, nodes: int) -> None:
    """Print a row about a random graph. A tenth of its nodes arrives after `learn`."""
    size = f"nodes={nodes},edges={5 * nodes},features=500,classes=30"
    whole = replace(hagmeta.load_dataset(f"synthetic:{size}"), node_ids=tuple(range(nodes)))
    late = np.arange(nodes) % 10 == 0
    graph, names = without(whole, late), whole.class_names
    known = [row for row in np.flatnonzero(whole.labels < KNOWN).tolist() if not late[row]][: nodes // 2]
    learner.fit(graph, {row: names[whole.labels[row]] for row in known})
    new = np.flatnonzero((whole.labels == KNOWN) & ~late)[:LABELS].tolist()
    started = time.process_time()
    learner.learn(graph, {names[KNOWN]: new})
    taught = time.process_time() - started
    started = time.process_time()
    learner.predict(whole, np.flatnonzero(late))
    asked = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"| {nodes:,} | {len(whole.edges):,} | {taught:.2f} s | {asked:.2f} s | {memory:.2f} GB |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="posterior-means")
    parser.add_argument("--weeks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--nodes", type=int, help="nodes of a random graph to use instead")
    options = parser.parse_args()
    if options.nodes:
        learner = hagmeta.Learner(options.method, seed=options.seed, device=options.device)
        on_random_graph(learner, options.nodes)
        return
    whole = hagmeta.load_dataset("debian")
    names, rng = whole.class_names, np.random.default_rng(options.seed)
    order = np.argsort(-whole.class_sizes, kind="stable")
    met, later = order[:KNOWN], rng.permutation(order[KNOWN:])
    labels = {
        int(row): names[whole.labels[row]] for c in met for row in np.flatnonzero(whole.labels == c)[::2]
    }
    labelled = set(labels)
    learner = hagmeta.Learner(options.method, seed=options.seed, device=options.device)
    print("| week | sections | packages | edges | learn | predict | again | accuracy | calibration error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for week in range(options.weeks + 1):
        started = time.process_time()
        if week == 0:
            graph = packages_of(whole, met)
            learner.fit(graph, labels)
        else:
            new = later[PER_WEEK * (week - 1) : PER_WEEK * week]
            met = np.concatenate([met, new])
            graph = packages_of(whole, met)
            told = {
                names[c]: rng.permutation(np.flatnonzero(whole.labels == c))[:LABELS].tolist() for c in new
            }
            labelled |= {node for nodes in told.values() for node in nodes}
            started = time.process_time()
            learner.learn(graph, told)
        taught = time.process_time() - started
        asked = [node for node in graph.node_ids or () if node not in labelled]
        with tempfile.TemporaryDirectory() as folder:
            learner = hagmeta.Learner.load(learner.save(Path(folder) / "learner"), device=options.device)
        started = time.process_time()
        learner.predict(graph, asked[:ASKED])
        first = time.process_time() - started
        started = time.process_time()
        learner.predict(graph, asked[:ASKED])
        again = time.process_time() - started
        _, found = learner.probabilities(graph, asked)
        right = np.array(learner.classes_)[found.argmax(1)] == np.array(names)[whole.labels[asked]]
        error = calibration_error(found.max(1), right)
        print(
            f"| {week} | {len(met)} | {graph.num_nodes:,} | {len(graph.edges):,} | {taught:.1f} s "
            f"| {first:.2f} s | {1000 * again:.0f} ms | {right.mean():.1%} | {error:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
