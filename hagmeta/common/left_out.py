"""Which settings a configuration's hash leaves out, so that a new setting changes no earlier hash.

Hashes name records, and those of searches seed their proposals. So this table is closed: an entry never
changes. A new setting that many methods share adds one entry, the value that describes all earlier runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEFT_OUT_AT: Mapping[str, Any] = {
    "split": "drawn",
    "scored_on": "test",
    "visibility": "arriving",
    "mislabelled": 0,
    "unlabelled_nodes": "all",
    "pretrain_on": "base",
    "rehearsal": "all",
    "inputs": "raw",
    "normalisation": "visible",
    "classifier": "linear",
    "self_training": 0,
    "double_prototypes": True,
    "smoothing": 0.0,
    "logit_adjustment": 0.0,
    "prior": "equal",
    "instead_of_gpil": "nothing",
    "nla_degree": "visible",
    "nla_weights": "softmax",
    "nla_rate": "common",
    "nla_decay": "common",
    "tla_weights": "learnt",
    "tla_layers": "three",
    "tla_tasks": "transposed",
    "tla_vectors": "linear",
    "tla_gradients": "fresh",
    "refitted": False,
    "tukey": 1.0,
    "random_features": 0,
    "played": False,
    "background": False,
    "limited_penalty": False,
}
# A setting without effect is recorded with its default, but there are two exceptions. They never change.
KEPT_IF_IDLE: Mapping[str, str] = {"heads": "encoder"}  # keeps its value if the other setting makes it idle
ABSENT_IF_IDLE = frozenset({"instead_of_gpil"})


def left_out(config: Mapping[str, Any]) -> list[str]:
    """Return the settings of `config` that its hash leaves out."""
    return [name for name, value in config.items() if name in LEFT_OUT_AT and LEFT_OUT_AT[name] == value]
