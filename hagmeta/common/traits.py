"""What a method says about itself: its title, its source, and how to read its results."""

from __future__ import annotations

from dataclasses import dataclass

from hagmeta.common.errors import choose

ROLES = {
    "studied": "the method that the study is about",
    "baseline": "a method to compare with",
    "proposed": "a method of our own",
    "bound": "a lower or upper bound for the others",
}
COSTS = {
    "light": "no meta-training",
    "medium": "meta-training, with one pass over the graph per step",
    "heavy": "meta-training, with several passes over the graph per step",
}


@dataclass(frozen=True, kw_only=True)
class MethodTraits:
    """Facts about a method. Every record has them, so that reports need to know no method by name."""

    title: str  # as reports write it
    citation: str = ""  # authors, title, venue and year
    role: str = "baseline"  # one of ROLES
    oracle: bool = False  # it knows train labels that no method may know
    transductive: str = ""  # why its answers depend on nodes without labels, as a clause; "": they do not
    closed_form: bool = False  # its head is computed from statistics of features, without gradient steps
    cost: str = ""  # one of COSTS; "": by the meta-training and the passes of a configuration
    revision: int = 1  # raise it when the same settings would give other results

    def __post_init__(self) -> None:
        choose("role of a method", self.role, ROLES)
        choose("cost of a method", self.cost, ["", *COSTS])
