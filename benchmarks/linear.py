"""Does a dataset need its graph? Logistic regression on the features alone, and on those of two hops.

    python benchmarks/linear.py metamath wordnet [--seeds 3]

Both are given the labels of all classes at once, for 60 % of the nodes; 20 % choose the strength of the
regularisation and 20 % are asked for. Also: the share of edges within a class, and the feature that by itself
comes nearest to telling a class (the lower of its precision and recall, its highest over all pairs).
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

import hagmeta
from hagmeta.datasets import Dataset

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)  # of the fit; the higher, the less regularised


def two_hops(dataset: Dataset) -> scipy.sparse.csr_matrix:
    """The features, averaged over neighbours twice, as a GCN does it."""
    root = scipy.sparse.diags(1 / np.sqrt(dataset.adjacency.sum(axis=1).A1))
    propagation = root @ dataset.adjacency @ root
    return propagation @ (propagation @ dataset.features)


def macro_accuracy(features: scipy.sparse.csr_matrix, labels: np.ndarray, seed: int) -> float:
    """Percent, the mean over classes, on the nodes that neither fit nor choice has seen."""
    features = normalize(features)
    train, rest = train_test_split(np.arange(len(labels)), train_size=0.6, stratify=labels, random_state=seed)
    validation, test = train_test_split(rest, train_size=0.5, stratify=labels[rest], random_state=seed)
    scores = []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, tol=1e-3).fit(features[train], labels[train])
        scores.append(
            [
                balanced_accuracy_score(labels[nodes], model.predict(features[nodes]))
                for nodes in (validation, test)
            ]
        )
    return 100 * max(scores)[1]


def most_telling_feature(dataset: Dataset) -> float:
    """Of all features and classes, the highest lower one of precision and recall."""
    present = scipy.sparse.csr_matrix(dataset.features != 0, dtype=np.float64)
    classes = np.eye(dataset.num_classes)[dataset.labels]
    both = present.T @ classes  # (features, classes) nodes
    precision = both / np.maximum(present.sum(axis=0).A1, 1)[:, None]
    return float(np.minimum(precision, both / classes.sum(axis=0)).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in arguments.datasets:
        dataset = hagmeta.load(name)
        within = np.mean(dataset.labels[dataset.edges[:, 0]] == dataset.labels[dataset.edges[:, 1]])
        print(f"{name}: {within:.2f} of the edges within a class; ", end="")
        print(f"the most telling feature {most_telling_feature(dataset):.2f}", flush=True)
        for what, features in (("features alone", dataset.features), ("two hops", two_hops(dataset))):
            found = [macro_accuracy(features, dataset.labels, seed) for seed in range(arguments.seeds)]
            print(
                f"  {what}: {np.mean(found):.1f} (" + ", ".join(f"{x:.1f}" for x in found) + ")", flush=True
            )


if __name__ == "__main__":
    main()
