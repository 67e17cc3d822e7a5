"""Use a classifier with the interface of scikit-learn as a method: `sklearn:package.module:Class`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, make_dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hagmeta.common.errors import UserError, shown
from hagmeta.common.settings.domains import Value
from hagmeta.common.settings.setting import PLAIN, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import Shared, Sizes, Task
from hagmeta.methods.closed_form.base import ClosedFormSettings, OnFeatures, labels_of
from hagmeta.methods.transductive.base import Encoded
from hagmeta.sparse.graph import Graph, View

PREFIX = "estimator__"
TINY = 1e-12  # a probability can be zero
LONGEST = 200  # characters of an estimator's error


@dataclass(frozen=True, kw_only=True)
class SklearnSettings(ClosedFormSettings):
    """Settings of all estimators. Those of one estimator are added to them."""

    pretrained_elsewhere: bool = setting(
        False, "say in records and tables that the estimator was pre-trained on other data", scope="method"
    )

    def check(self) -> None:
        if self.rehearsed == 0:
            raise UserError(
                "a sklearn: method fits its estimator again in every session, so it needs labels of earlier "
                "classes; rehearsal: none is not possible."
            )


class SklearnMethod(OnFeatures):
    """An estimator, fitted to the labels that may be read in each session.

    The features are those of the closed-form methods. Labels have the weights that the estimator gives them,
    usually equal ones. Many estimators have `class_weight`. Seeds run one by one, in plain mode, and the
    estimator computes on the CPU. If it has the parameter `random_state`, it gets the seed.
    """

    packs = False
    estimator_class: ClassVar[Any]

    def __init__(self, settings: Any, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        defaults = _defaults(self.estimator_class)
        given = {name: getattr(settings, PREFIX + name) for name in defaults}
        self.arguments = {name: value for name, value in given.items() if value != defaults[name]}
        if "random_state" in inspect.signature(self.estimator_class).parameters:
            self.arguments["random_state"] = seed % 2**32

    @classmethod
    def traits_of(cls, settings: Any) -> MethodTraits:
        return replace(super().traits_of(settings), pretrained_elsewhere=settings.pretrained_elsewhere)

    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        return self.all_features(graph, view)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Encoded:
        return Encoded(self.features_of(shared, view), view)

    def classify(self, shared: Shared, encoded: Encoded, task: Task) -> Tensor:
        features, view = encoded
        labels = labels_of(shared, view, task)
        known = labels.any(-1).nonzero().squeeze(-1)
        # A node that self-training added to several classes counts for the first.
        parts = features[known], labels[known].argmax(-1), features[task.query]
        rows, target, query = (part.cpu().numpy() for part in parts)
        logits = self._logits(rows, target, query, labels.shape[-1])
        return torch.from_numpy(logits).to(features)

    def _logits(self, rows: np.ndarray, target: np.ndarray, query: np.ndarray, classes: int) -> np.ndarray:
        """Return the logits (queries, classes) of an estimator that is fitted to labelled rows."""
        name = self.estimator_class.__name__
        try:
            model = self.estimator_class(**self.arguments).fit(rows, target)
            if hasattr(model, "predict_proba"):
                found = np.log(np.maximum(model.predict_proba(query), TINY))
            else:
                found = np.asarray(model.decision_function(query))
        except Exception as error:  # an estimator may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
            size = f"{classes} classes, {len(rows)} labelled rows and {rows.shape[1]} columns"
            raise UserError(f"sklearn: {name} fails with {size}: {reason}") from error
        if found.ndim == 1 and classes == 2:
            found = np.stack([-found, found], 1)
        if found.shape != (len(query), classes):
            expected = f"expected {(len(query), classes)}, a column per class"
            raise UserError(f"sklearn: {name} returns scores of shape {found.shape}; {expected}.")
        return found


@cache
def adapted(estimator: Any) -> type[SklearnMethod]:
    """Return the method class for an estimator class."""
    name = getattr(estimator, "__name__", shown(estimator))
    scores = any(hasattr(estimator, part) for part in ("predict_proba", "decision_function"))
    if not (isinstance(estimator, type) and hasattr(estimator, "fit") and scores):
        raise UserError(
            f"method {name}: expected a class with fit, and with predict_proba or decision_function, as the "
            "classifiers of scikit-learn have."
        )
    declared = [
        (
            PREFIX + key,
            "bool | int | float | str | None",
            setting(default, f"parameter {key} of {name}", Value(default), scope="method"),
        )
        for key, default in _defaults(estimator).items()
    ]
    own = make_dataclass(f"{name}Settings", declared, bases=(SklearnSettings,), frozen=True, kw_only=True)
    members: dict[str, Any] = {
        "estimator_class": estimator,
        "own_settings": own,
        "traits": MethodTraits(title=name, citation=f"{estimator.__module__}.{name}"),
        "__doc__": estimator.__doc__,
        "__module__": estimator.__module__,
    }
    return type(name, (SklearnMethod,), members)


def _defaults(estimator: Any) -> dict[str, Any]:
    """Return the parameters that settings can change, with their defaults."""
    found = {key: each.default for key, each in inspect.signature(estimator).parameters.items()}
    return {key: value for key, value in found.items() if isinstance(value, PLAIN) and key != "random_state"}
