"""Play the story of docs/guides/learner.md: sections of Debian get names over the weeks.

    python benchmarks/learner.py --method posterior-means

In week 0 the learner is fitted on the 12 largest sections, with a label for every second package. Every week,
two other sections get a name, and five labels each. A third of the visible packages belong to sections
without a name. The table has a row per week:

- the number of named sections, and of visible packages
- the processor time of `fit` or `learn`, and of the first `predict` after loading the learner from its file
- the accuracy on all unlabelled packages of named sections
- the calibration error of their probabilities, before and after temperature scaling
- how well packages of named and other sections are told apart (AUROC), and the shares of both that are called
  unknown
- the peak memory of the process so far

`--dataset` plays the same story on another graph.

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
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

import hagmeta
from hagmeta.scenarios.evaluator import calibration_error

KNOWN, PER_WEEK, LABELS, ASKED = 12, 2, 5, 100
KNOWN_OF_RANDOM = 24  # classes of a random graph, which has 30
UNNAMED = 1 / 3  # share of the visible packages whose sections have no name yet
HEADS = (
    *("week", "sections", "packages", "learn", "predict", "accuracy", "error before", "after"),
    *("AUROC", "found", "false alarms", "memory"),
)


def visible(whole: hagmeta.Dataset, named: np.ndarray, order: np.ndarray) -> hagmeta.Dataset:
    """Return the graph of all packages in named sections, and of some others, in the order of `order`."""
    hidden = ~np.isin(whole.labels, named)
    others = order[hidden[order]]
    hidden[others[: round(UNNAMED / (1 - UNNAMED) * (~hidden).sum())]] = False
    return without(whole, hidden)


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
    known = [row for row in np.flatnonzero(whole.labels < KNOWN_OF_RANDOM).tolist() if not late[row]][
        : nodes // 2
    ]
    learner.fit(graph, {row: names[whole.labels[row]] for row in known})
    new = np.flatnonzero((whole.labels == KNOWN_OF_RANDOM) & ~late)[:LABELS].tolist()
    started = time.process_time()
    learner.learn(graph, {names[KNOWN_OF_RANDOM]: new})
    taught = time.process_time() - started
    started = time.process_time()
    learner.predict(whole, np.flatnonzero(late))
    asked = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"| {nodes:,} | {len(whole.edges):,} | {taught:.2f} s | {asked:.2f} s | {memory:.2f} GB |")


def row_of(learner: hagmeta.Learner, graph: hagmeta.Dataset, labelled: set[int]) -> list[str]:
    """Return what a row of the table says about the answers for unlabelled packages."""
    asked = [node for node in graph.node_ids or () if node not in labelled]
    there = np.isin(np.array(graph.node_ids), asked)
    truth = np.array(graph.class_names)[graph.labels[there]]
    named = np.isin(truth, learner.classes_)
    _, found = learner.probabilities(graph, asked)
    found, answers = found[named], np.array(learner.classes_)
    right = answers[found.argmax(1)] == truth[named]
    before = softmax(np.log(found) * learner._fitted.temperature, axis=1)
    errors = [calibration_error(shares.max(1), right) for shares in (before, found)]
    _, strange = learner.unknown_probabilities(graph, asked)
    shares = [(strange[chosen] > 0.5).mean() for chosen in (~named, named)]
    return [
        f"{right.mean():.1%}",
        *(f"{error:.3f}" for error in errors),
        f"{roc_auc_score(~named, strange):.3f}",
        *(f"{share:.0%}" for share in shares),
    ]


def play_weeks(learner: hagmeta.Learner, whole: hagmeta.Dataset, weeks: int, seed: int) -> None:
    """Print the table of the story."""
    names, rng = whole.class_names, np.random.default_rng(seed)
    sections = np.argsort(-whole.class_sizes, kind="stable")
    named, later = sections[:KNOWN], rng.permutation(sections[KNOWN:])
    order = rng.permutation(whole.num_nodes)
    labels = {int(n): names[c] for c in named for n in np.flatnonzero(whole.labels == c)[::2]}
    labelled = set(labels)
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for week in range(weeks + 1):
        new = later[PER_WEEK * (week - 1) : PER_WEEK * week] if week else later[:0]
        named = np.concatenate([named, new])
        graph = visible(whole, named, order)
        told = {names[c]: order[whole.labels[order] == c][:LABELS].tolist() for c in new}
        labelled |= {node for nodes in told.values() for node in nodes}
        started = time.process_time()
        if week:
            learner.learn(graph, told)
        else:
            learner.fit(graph, labels)
        taught = time.process_time() - started
        with tempfile.TemporaryDirectory() as folder:
            learner = hagmeta.Learner.load(learner.save(Path(folder) / "learner"), device=learner.device)
        started = time.process_time()
        learner.predict(graph, (graph.node_ids or ())[:ASKED])
        asked = time.process_time() - started
        row = [str(week), str(len(named)), f"{graph.num_nodes:,}", f"{taught:.1f} s", f"{asked:.1f} s"]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        row += [*row_of(learner, graph, labelled), f"{memory:.2f} GB"]
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="posterior-means")
    parser.add_argument("--dataset", default="debian")
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--nodes", type=int, help="nodes of a random graph to use instead")
    options = parser.parse_args()
    learner = hagmeta.Learner(options.method, seed=options.seed, device=options.device)
    if options.nodes:
        on_random_graph(learner, options.nodes)
    else:
        play_weeks(learner, hagmeta.load_dataset(options.dataset), options.weeks, options.seed)


if __name__ == "__main__":
    main()
