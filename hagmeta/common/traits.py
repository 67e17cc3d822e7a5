"""Facts about a method: its title, its citation, and how to read its results."""

from __future__ import annotations

from dataclasses import dataclass

from hagmeta.common.errors import choose

ROLES = {
    "studied": "the method that the study is about",
    "baseline": "a method to compare with",
    "proposed": "a method that this project proposes",
    "bound": "a lower or upper bound for the others",
}
COSTS = {
    "light": "no meta-training",
    "medium": "meta-training, with one pass over the graph per step",
    "heavy": "meta-training, with several passes over the graph per step",
}


@dataclass(frozen=True, kw_only=True)
class MethodTraits:
    """Facts about a method. Every record stores them, so reports do not depend on method names.

    Attributes:
        title: The name in reports.
        citation: Authors, title, venue and year.
        role: One of ``ROLES``: studied, baseline, proposed or bound.
        oracle: Whether the method uses labels that other methods may not use.
        transductive: Why predictions depend on unlabelled nodes, as a clause; empty if they do not.
        closed_form: Whether the head is computed from feature statistics, without gradient steps.
        pretrained_elsewhere: Whether it has weights that were trained on other data.
        cost: One of ``COSTS``; if empty, the configuration decides.
        revision: Increase it when the same settings give different results.
    """

    title: str
    citation: str = ""
    role: str = "baseline"
    oracle: bool = False
    transductive: str = ""
    closed_form: bool = False
    pretrained_elsewhere: bool = False
    cost: str = ""
    revision: int = 1

    def __post_init__(self) -> None:
        choose("role of a method", self.role, ROLES)
        choose("cost of a method", self.cost, ["", *COSTS])
