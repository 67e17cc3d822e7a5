"""`hagmeta.Learner`: a method for one growing graph, with the interface of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hagmeta.api.calls import Graph, as_device
from hagmeta.common.errors import UserError, shown
from hagmeta.common.files.files import expanded
from hagmeta.common.plugins.identity import without_hash
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.cache import Fits
from hagmeta.engine.engine import SessionEngine
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import check_features, pretrain
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.learner.calibration import Answers, answers_of, calibrated, key_of
from hagmeta.learner.evidence import check_unknown, labels_by_class, labels_by_node, own_labels
from hagmeta.learner.fitting import check_classes, draw_evidence
from hagmeta.learner.state import (
    State,
    answers,
    engine_of,
    learn_session,
    learns_once,
    make_context,
    new_engine,
)
from hagmeta.learner.storage import load, save
from hagmeta.learner.table import (
    Columns,
    NodeId,
    Table,
    as_graph,
    check_nodes,
    ids_of,
    kept_slots,
    listed_ids,
    make_table,
    slots_of,
    warn_of_other_nodes,
    warn_of_unknown_features,
)
from hagmeta.methods import METHODS
from hagmeta.packs.capture import stream_of
from hagmeta.packs.pack import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd

LIKELY = 0.5  # a node with a higher probability belongs to no known class
NAME = "learner@000000000000"  # the dataset of the configuration: no registered one
N_WAY = 3  # new classes per session, unless set
# Settings of the study that a learner does not have, and what it does instead.
NOT_HERE = {
    "dataset": "the graph is an argument of `fit`",
    "protocol": "a learner reads the labels that it is given",
    "classes": "the labels decide which classes are known",
    "split": "the labels decide which classes are known",
    "drop_small": "the labels decide which classes are known",
    "sessions": "every call of `learn` is a session",
    "queries_per_class": "`predict` takes the nodes",
    "val_classes": "some labels of each class validate the training",
    "scored_on": "nothing is scored",
    "mislabelled": "labels are used as given",
    "rehearsal": "a learner keeps all labels",
    "self_training": "predicted labels are not kept",
}


class Learner:
    """A method that learns the classes of one growing graph and predicts its nodes.

    A learner knows nodes by their ids: ``Dataset.node_ids``, ``n_id`` of a PyG ``Data``, or the positions of
    the nodes. So nodes may be added, removed and reordered between calls. It knows features by
    ``Dataset.feature_names``, if both graphs have them. All nodes of a given graph are visible. The labels of
    a graph are read only by `fit` without labels.

    Args:
        method: The method: a name, a reference such as ``my.py:Mine``, or a subclass of `hagmeta.Method`.
        seed: The seed of all random draws.
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or a ``torch.device``.
        **settings: Settings of the method and of its training, such as ``n_way``, ``k_shot`` or ``hidden``.

    Raises:
        UserError: The method or a setting is unknown, or a learner cannot use it.

    Example:
        >>> import hagmeta
        >>> data = hagmeta.load_dataset("synthetic:nodes=300,edges=1200,features=40,classes=10")
        >>> names = [data.class_names[label] for label in data.labels]
        >>> labels = {node: name for node, name in enumerate(names) if name < "6" and node % 3}
        >>> learner = hagmeta.Learner("sgc-ncm", features="propagated").fit(data, labels)
        >>> new = [node for node, name in enumerate(names) if name == "9"][:5]
        >>> learner.learn(data, {"nine": new}).classes_[-1]
        'nine'
        >>> len(learner.predict(data, [0, 3, 6]))
        3
    """

    def __init__(
        self,
        method: Any = "posterior-means",
        *,
        seed: int = 0,
        device: str | torch.device | None = "auto",
        **settings: Any,
    ) -> None:
        name = METHODS.name_of(method)
        for key in settings:
            if key in NOT_HERE:
                raise UserError(f"{key} is not a setting of a learner: {NOT_HERE[key]}.")
        if not isinstance(seed, int) or seed < 0:
            raise UserError(f"seed is {shown(seed)}; expected a whole number from 0.")
        self._config = RunConfig.of({"method": name, "dataset": NAME, **settings})
        if METHODS[name].traits.oracle:
            raise UserError(
                f"{without_hash(name)} is an oracle: it reads labels that a learner is not given. "
                "Use another method."
            )
        self.seed, self.device = seed, as_device(device)
        self._state: State | None = None
        self._last: Answers | None = None  # of the last graph
        self._reported: set[str] = set()

    def __repr__(self) -> str:
        if self._state is None:
            return f"Learner({self._config.method!r}), not fitted"
        return f"Learner({self._config.method!r}): {self.summary()}"

    def summary(self) -> str:
        """Return the numbers of classes and labels as text."""
        evidence = self._fitted.evidence
        return f"{len(evidence.class_names):,} classes, {len(evidence.class_of):,} labels"

    @property
    def classes_(self) -> list[str]:
        """Return the names of all classes that the learner knows, in the order in which it met them."""
        return [*self._fitted.evidence.class_names]

    @property
    def _fitted(self) -> State:
        if self._state is None:
            raise UserError("the learner is not fitted; call `fit` first.")
        return self._state

    def fit(
        self,
        data: Graph,
        labels: Mapping[NodeId, str] | None = None,
        *,
        validation: Mapping[NodeId, str] | None = None,
        progress: Progress = no_progress,
    ) -> Learner:
        """Train on the labelled nodes of a graph. This forgets everything that was learnt before.

        Args:
            data: The graph, in any form that `hagmeta.run` accepts.
            labels: The class names of some nodes, by node id. Other nodes are unlabelled. None, NaN, -1 and
                blank text mean no label. Without labels, those of ``data`` are used.
            validation: More labels, which decide when to stop the training and calibrate probabilities.
                By default, these are one of five labels of each class.
            progress: A function that takes the phase, the steps done, the total steps and some values.

        Returns:
            The learner.

        Raises:
            UserError: A label is invalid, or a class has too few labels for the method.
        """
        dataset = as_graph(data)
        given = own_labels(dataset) if labels is None else labels_by_node(labels, argument="labels")
        held_out = None if validation is None else labels_by_node(validation, argument="validation")
        check_nodes(dataset, [*given, *(held_out or ())], "labels")
        config = self._resolved(check_classes(given))
        evidence = draw_evidence(given, held_out, config, self.seed)
        check_features(config, dataset)
        columns = Columns.of(dataset)
        table = make_table(dataset, {}, columns)
        evidence.check_present(table.rows, dataset.name)
        fits = Fits(dataset.num_nodes, {})
        state = State(config, self.seed, evidence, columns, table.rows, set(), fits)
        with stream_of(self.device):
            context = make_context(state, table, RunOptions(device=self.device, progress=progress))
            pack = pretrain(context)
            meta_train(context, pack)
            found = learn_session(state, table, new_engine(context, pack))
        self._last = calibrated(dataset, state, table, found)
        self._state, self._reported = state, set()
        return self

    def learn(self, data: Graph, labels: Mapping[str, Sequence[NodeId]]) -> Learner:
        """Learn new classes, more labels of known classes, or corrected labels.

        A node that has a label gets the new one. The setting ``n_way`` is the maximum number of new classes
        per session. With more new classes, the learner takes several sessions.

        Args:
            data: The graph as it is now. It must have a labelled node of every class.
            labels: Node ids by class name. Names that are equal as text, such as 7 and "7", are one class.

        Returns:
            The learner.

        Raises:
            UserError: A label is invalid, or a class has no labelled node in the graph. Then the learner
                stays as it was.
        """
        state = self._fitted
        by_name = labels_by_class(labels, argument="labels")
        dataset = as_graph(data)
        check_nodes(dataset, [node for nodes in by_name.values() for node in nodes], "labels")
        self._report(dataset)
        slots = kept_slots(slots_of(ids_of(dataset), state.slots), state.slots)
        table = make_table(dataset, slots, state.columns)
        evidence = state.evidence.copy()
        new, changed = evidence.add_labels(by_name)
        if changed and learns_once(METHODS[state.config.method]):
            raise UserError(
                f"{without_hash(state.config.method)} learns the labels of a class only once, so it cannot "
                "learn more or corrected labels of known classes. Use another method, or fit again."
            )
        evidence.check_present(table.rows, dataset.name)
        left = {node for node in slots if node not in table.rows}
        state = replace(state, evidence=evidence, slots=slots, left=left)
        assert state.config.n_way
        with stream_of(self.device):
            if not new:
                found = answers(state, self._engine(state, table))
            while new:
                evidence.sessions.append(len(new[: state.config.n_way]))
                new = new[state.config.n_way :]
                found = learn_session(state, table, self._engine(state, table))
        self._last = calibrated(dataset, state, table, found)
        self._state = state
        return self

    def predict(
        self, data: Graph, nodes: Iterable[NodeId] | None = None, *, unknown: str | None = None
    ) -> np.ndarray:
        """Return the most likely class of each node.

        The first call on a graph computes the answers for all its nodes. Later calls on the same graph look
        them up.

        Args:
            data: The graph as it is now. Nodes may be new to the learner.
            nodes: Node ids. By default, all nodes of the graph in their order.
            unknown: A name for nodes that more likely belong to none of the known classes. By default, every
                node gets the name of a known class.

        Returns:
            An array of class names, one per node.

        Raises:
            UserError: A node is not in the graph, the graph lacks the labelled nodes of a class, or
                ``unknown`` is the name of a known class.
        """
        if unknown is None:
            _, found = self.probabilities(data, nodes)
            return np.array(self.classes_)[found.argmax(-1)]
        check_unknown(unknown, self.classes_, "unknown")
        asked, strange = self.unknown_probabilities(data, nodes)
        _, found = self.probabilities(data, asked)
        return np.where(strange > LIKELY, unknown, np.array(self.classes_)[found.argmax(-1)])

    def predict_proba(self, data: Graph, nodes: Iterable[NodeId] | None = None) -> pd.DataFrame:
        """Return the probability of each class for each node.

        Probabilities are calibrated on the validation labels of `fit` by temperature scaling.

        Args:
            data: The graph as it is now. Nodes may be new to the learner.
            nodes: Node ids. By default, all nodes of the graph in their order.

        Returns:
            A pandas DataFrame with the columns node, class and probability. Each node has a row per class.

        Raises:
            UserError: A node is not in the graph, or the graph lacks the labelled nodes of a class.
        """
        import pandas as pd

        asked, probabilities = self.probabilities(data, nodes)
        ids = pd.Series(asked, dtype=None if asked else object)
        return pd.DataFrame(
            {
                "node": ids.repeat(len(self.classes_)).reset_index(drop=True),
                "class": self.classes_ * len(asked),
                "probability": probabilities.ravel(),
            }
        )

    def predict_unknown(self, data: Graph, nodes: Iterable[NodeId] | None = None) -> pd.DataFrame:
        """Return how likely each node belongs to none of the known classes.

        The probability depends on how well the node fits the class that it fits best. It is calibrated on
        the validation labels of `fit`, by playing their classes as unknown.

        Args:
            data: The graph as it is now. Nodes may be new to the learner.
            nodes: Node ids. By default, all nodes of the graph in their order.

        Returns:
            A pandas DataFrame with the columns node and unknown. Each node has a row.

        Raises:
            UserError: A node is not in the graph, or the graph lacks the labelled nodes of a class.
        """
        import pandas as pd

        asked, strange = self.unknown_probabilities(data, nodes)
        return pd.DataFrame({"node": pd.Series(asked, dtype=None if asked else object), "unknown": strange})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the learner to a file, with its labels and node ids, but without the graph.

        The format is an archive of arrays and JSON. It has no pickled objects, so loading runs no code.

        Args:
            path: The file to write. It is replaced if it exists.

        Returns:
            The path.

        Raises:
            UserError: The learner is not fitted, or the file cannot be written.
        """
        target = expanded(os.fspath(path))
        save(self._fitted, target)
        return target

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str | torch.device | None = "auto",
        method: Any = None,
        encoder: Any = None,
    ) -> Learner:
        """Return the learner that `save` wrote. It may have been on another device.

        Args:
            path: The file.
            device: The device to compute on, as for `Learner`.
            method: The method, if it is your own and not loaded yet, such as ``my.py:Mine``.
            encoder: The encoder, if it is your own or of PyG and not loaded yet.

        Returns:
            The learner.

        Raises:
            UserError: The file is missing, damaged, from a newer version, or not a saved learner.
        """
        own: dict[str, tuple[Any, Any]] = {"method": (METHODS, method), "encoder": (ENCODERS, encoder)}
        given = {kind: registry.name_of(each) for kind, (registry, each) in own.items() if each is not None}
        target, chosen = expanded(os.fspath(path)), as_device(device)
        state = load(target, given)
        learner = cls(state.config.method, seed=state.seed, device=chosen)
        learner._config, learner._state = state.config, state
        return learner

    def probabilities(
        self, data: Graph, nodes: Iterable[NodeId] | None = None
    ) -> tuple[list[NodeId], np.ndarray]:
        """Return the same as `predict_proba`, without pandas.

        Returns:
            The node ids, and an array (nodes, classes). Its columns are those of ``classes_``.
        """
        state = self._fitted
        asked, last = self._asked(data, nodes)
        if last is None:
            return [], np.empty((0, len(self.classes_)))
        return asked, last.probabilities(asked, state.temperature)

    def unknown_probabilities(
        self, data: Graph, nodes: Iterable[NodeId] | None = None
    ) -> tuple[list[NodeId], np.ndarray]:
        """Return the same as `predict_unknown`, without pandas.

        Returns:
            The node ids, and an array (nodes,).
        """
        state = self._fitted
        asked, last = self._asked(data, nodes)
        if last is None:
            return [], np.empty(0)
        return asked, state.novelty.probability(last.fits(asked))

    def _asked(self, data: Graph, nodes: Iterable[NodeId] | None) -> tuple[list[NodeId], Answers | None]:
        """Return the ids of the nodes, and the answers for their graph; no answers if there is no node."""
        dataset = as_graph(data)
        asked = ids_of(dataset) if nodes is None else listed_ids(nodes, "nodes")
        check_nodes(dataset, asked, "nodes")
        return asked, self._answers(dataset) if asked else None

    def _answers(self, dataset: Dataset) -> Answers:
        """Return the answers for all nodes of a graph, from the last call if the graph is the same."""
        if self._last is None or self._last.key != key_of(dataset):
            self._report(dataset)
            state = self._fitted
            table = make_table(dataset, state.slots, state.columns)
            state.evidence.check_present(table.rows, dataset.name)
            with stream_of(self.device):
                found = answers(state, self._engine(state, table))
            self._last = answers_of(dataset, state, table, found)
        return self._last

    def _report(self, dataset: Dataset) -> None:
        """Warn if a graph has few of the learner's nodes, or features that the learner does not know."""
        state = self._fitted
        warn_of_other_nodes(dataset, [node for node in state.slots if node not in state.left])
        self._reported |= warn_of_unknown_features(dataset, state.columns, self._reported)

    def _engine(self, state: State, table: Table) -> SessionEngine:
        return engine_of(state, table, make_context(state, table, RunOptions(device=self.device)))

    def _resolved(self, classes: int) -> RunConfig:
        """Return the configuration for this number of known classes."""
        n_way = self._config.n_way or N_WAY
        config = resolve(self._config.replace(n_way=n_way, classes=(classes, 0, n_way)))
        if METHODS[config.method].traits_of(config).oracle:
            raise UserError(
                f"{without_hash(config.method)} is an oracle with these settings; a learner cannot be one."
            )
        return config
