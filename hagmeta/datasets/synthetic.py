"""Generate random graphs of any size from a seed, for tests and for scaling benchmarks.

Class sizes follow a power law. Degrees are heavy-tailed (a degree-corrected block model), and most edges stay
within a class. Features are a bag of words, some from the topic of the class and some common to all classes.
Dense features are normal around the mean of the class. One node in ten has the edges and features of another
class, so that no method can be perfect.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError, shown
from hagmeta.datasets.base import Dataset, DatasetInfo, make_dataset
from hagmeta.datasets.clean import sorted_unique
from hagmeta.datasets.features import MOST_FEATURES, Features

SMALLEST_CLASS = 100  # nodes, if the graph is large enough
CLASS_SIZE_EXPONENT = 0.8
DEGREE_EXPONENT = 2.0
HOMOPHILY = 0.6  # share of edges drawn within a class
MISFITS = 0.1  # share of nodes with edges and features of another class
WORDS_PER_NODE = 30
TOPIC_SHARE = 0.1  # share of words drawn from the topic of the class
WORDS_PER_TOPIC = 50
COPIES = 4  # copies of the arrays in memory at the peak
CENTRE_SCALE = 0.05  # standard deviation of class means, relative to that of nodes


@dataclass(frozen=True)
class SyntheticConfig:
    """The parameters of ``synthetic:nodes=2000,edges=8000,features=300,classes=20,seed=1``."""

    nodes: int
    edges: int
    features: int
    classes: int
    seed: int = 0
    dense: int = 0  # 1: normally distributed features instead of words

    def __post_init__(self) -> None:
        most_edges = self.nodes * (self.nodes - 1) // 4  # half of all pairs; beyond that, sampling gets slow
        for key, value, low, high in (
            ("nodes", self.nodes, 4, 10**8),
            ("edges", self.edges, 1, most_edges),
            ("features", self.features, 1, MOST_FEATURES),
            ("classes", self.classes, 2, self.nodes // 2),
            ("seed", self.seed, 0, 2**63 - 1),
            ("dense", self.dense, 0, 1),
        ):
            if not low <= value <= high:
                raise UserError(f"synthetic: {key}={value}; expected {low} to {high}.")

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        per_node = 4 * self.features if self.dense else 8 * WORDS_PER_NODE
        return 16 * self.edges + per_node * self.nodes


PRESETS = {
    "synthetic-amazon-clothing": SyntheticConfig(nodes=24_919, edges=91_680, features=9_034, classes=77),
    "synthetic-dblp": SyntheticConfig(nodes=40_672, edges=288_270, features=7_202, classes=137),
    "synthetic-reddit": SyntheticConfig(nodes=232_965, edges=11_606_919, features=602, classes=41, dense=1),
}
SOURCE = "generated"
_SETTINGS = {  # class split, n-way and k-shot of the datasets that they imitate
    "synthetic-amazon-clothing": ((20, 30, 27), 3, 5),
    "synthetic-dblp": ((37, 50, 50), 5, 5),
    "synthetic-reddit": ((11, 10, 20), 2, 3),
}
INFOS = tuple(
    DatasetInfo(
        name,
        f"random graph of the size of {name.removeprefix('synthetic-')}",
        SOURCE,
        *(preset.nodes, preset.edges, preset.features, preset.classes),
        *_SETTINGS[name],
    )
    for name, preset in PRESETS.items()
)


def parse(text: str) -> SyntheticConfig:
    """Read ``key=value,key=value``."""
    valid = [field.name for field in fields(SyntheticConfig)]
    given: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in valid:
            raise UserError(f"synthetic: unknown key {shown(key)}; expected {', '.join(valid)}.")
        if key in given:
            raise UserError(f"synthetic: {key} is given twice; expected each key once.")
        try:
            given[key] = int(value)
        except ValueError:
            raise UserError(f"synthetic: {key}={shown(value)}; expected a whole number.") from None
    missing = [key for key in ("nodes", "edges", "features", "classes") if key not in given]
    if missing:
        raise UserError(
            f"synthetic: {', '.join(missing)} missing; expected nodes, edges, features and classes."
        )
    return SyntheticConfig(**given)


def generate(name: str, config: SyntheticConfig) -> Dataset:
    """Generate the graph ``name`` with exactly the counts in ``config``. Equal configs give equal graphs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if COPIES * config.size > memory:
        raise UserError(
            f"synthetic: generating {config.nodes:,} nodes and {config.edges:,} edges takes about "
            f"{COPIES * config.size / 1e9:.0f} GB of memory, but this machine has {memory / 1e9:.0f} GB."
        )
    rng = np.random.default_rng(config.seed)
    labels = np.repeat(np.arange(config.classes), _class_sizes(config.nodes, config.classes))
    labels = rng.permutation(labels)
    behaviour = np.where(
        rng.random(config.nodes) < MISFITS, rng.integers(config.classes, size=config.nodes), labels
    )
    return make_dataset(
        name,
        edges=_edges(behaviour, config, rng),
        labels=labels,
        features=(_dense_features if config.dense else _words)(behaviour, config, rng),
        source=name,
    )


def _class_sizes(nodes: int, classes: int) -> np.ndarray:
    smallest = max(1, min(SMALLEST_CLASS, nodes // (2 * classes)))
    weights = np.arange(1, classes + 1) ** -CLASS_SIZE_EXPONENT
    sizes: np.ndarray = smallest + ((nodes - smallest * classes) * weights / weights.sum()).astype(np.int64)
    sizes[: nodes - sizes.sum()] += 1  # distribute the nodes lost by rounding down
    return sizes


def _edges(behaviour: np.ndarray, config: SyntheticConfig, rng: np.random.Generator) -> np.ndarray:
    """Draw pairs until there are enough distinct ones, then drop the surplus."""
    by_class = np.argsort(behaviour, kind="stable")  # sort nodes by class, so that a class is a range
    weights = 1 + rng.pareto(DEGREE_EXPONENT, config.nodes)
    pairs = np.empty(0, dtype=np.int64)  # smaller node * nodes + larger node
    rounds = 0
    while len(pairs) < config.edges:
        if rounds == 10:  # by now, heavy nodes and small classes have no free pairs left
            weights = np.ones(config.nodes)
        wanted = int(1.1 * (config.edges - len(pairs))) + 100
        first, second = _draw_pairs(behaviour[by_class], weights, wanted, config.classes, rng)
        first, second = by_class[first], by_class[second]
        lower, upper = np.minimum(first, second), np.maximum(first, second)
        drawn = (lower * config.nodes + upper)[lower != upper]
        pairs = sorted_unique(np.concatenate([pairs, drawn]))
        rounds += 1
    surplus = rng.choice(len(pairs), size=len(pairs) - config.edges, replace=False)
    pairs = np.delete(pairs, surplus)
    return np.stack([pairs // config.nodes, pairs % config.nodes], axis=1)


def _draw_pairs(
    classes_in_order: np.ndarray, weights: np.ndarray, count: int, classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw both ends by weight. With probability HOMOPHILY, the second is in the class of the first."""
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    first = _places(cumulative, rng.random(count) * cumulative[-1])
    starts = cumulative[np.searchsorted(classes_in_order, np.arange(classes + 1))]
    own = classes_in_order[first]
    same = rng.random(count) < HOMOPHILY
    low = np.where(same, starts[own], 0.0)
    high = np.where(same, starts[own + 1], cumulative[-1])
    second = _places(cumulative, low + rng.random(count) * (high - low))
    # Rounding may exceed the range of the last node.
    last = len(weights) - 1
    return np.minimum(first, last), np.minimum(second, last)


def _places(cumulative: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the node of each value. Most of the time goes into this search, so all cores share it."""
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        parts = pool.map(
            lambda part: np.searchsorted(cumulative, part, side="right") - 1, np.array_split(values, cores)
        )
        return np.concatenate(list(parts))


def _words(behaviour: np.ndarray, config: SyntheticConfig, rng: np.random.Generator) -> Features:
    topics = rng.integers(config.features, size=(config.classes, WORDS_PER_TOPIC))
    lengths = 1 + rng.poisson(WORDS_PER_NODE - 1, size=config.nodes)
    node = np.repeat(np.arange(config.nodes), lengths)
    own = topics[behaviour[node], rng.integers(WORDS_PER_TOPIC, size=len(node))]
    # Zipf's law by inversion: the word's rank is exponential in a uniform number.
    common = (config.features ** rng.random(len(node))).astype(np.int64) % config.features
    word = np.where(rng.random(len(node)) < TOPIC_SHARE, own, common)
    matrix = scipy.sparse.csr_matrix(
        (np.ones(len(node), dtype=np.float32), (node, word)), shape=(config.nodes, config.features)
    )
    matrix.data[:] = 1  # a repeated word counts once
    return matrix


def _dense_features(behaviour: np.ndarray, config: SyntheticConfig, rng: np.random.Generator) -> Features:
    centres = rng.normal(0, CENTRE_SCALE, size=(config.classes, config.features)).astype(np.float32)
    features = rng.standard_normal((config.nodes, config.features), dtype=np.float32)
    features += centres[behaviour]
    return features
