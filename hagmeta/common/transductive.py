"""Mark transductive runs: their predictions depend on unlabelled nodes, including queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SMOOTHED, REWEIGHTED, SELF_TRAINED = "smoothed", "re-weighted", "self-trained"
BY_ITSELF = "transductive"
# Settings of every method.
SET_BY = {SMOOTHED: "smoothing", REWEIGHTED: "prior", SELF_TRAINED: "self_training"}


def marks(config: Mapping[str, Any], clause: str = "") -> list[str]:
    """Return the marks of a run with transductive predictions.

    Args:
        config: The settings of the run. Settings that do not apply may be missing, None or NaN.
        clause: ``transductive`` of the method's traits; empty if the method itself is not transductive.
    """
    if config.get("unlabelled_nodes") == "training":  # then nothing is learnt from queries
        return []
    found = [mark for mark, key in SET_BY.items() if _is_on(config.get(key))]
    return [*found, BY_ITSELF] if clause else found


def _is_on(value: Any) -> bool:
    return bool(value) and value == value and value != "equal"  # NaN is not equal to itself
