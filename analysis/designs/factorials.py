"""Find factorials: runs of one method with every combination of its switches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.data.labels import (
    SWITCHES,
    TRAINING,
    across,
    has_switches,
    rows_of,
    slug,
    training,
    varied_settings,
)
from analysis.data.results import Panel
from analysis.designs.design import FACTORIAL, REPEATED_FOR, Design, of_kind
from analysis.statistics.estimates import Factor, contrasts, switch
from analysis.statistics.inference import DIGITS

MOMENTS = {"first": "session 0", "last": "the last session"}
CALLED = {"GPIL": "GPIL", "supervised": "supervised training", "nothing": "no training"}
TRAINING_PAIRS = (
    "GPIL minus supervised training",
    "supervised training minus no training",
    "GPIL minus no training",
)
ABOUT_TRAINING = (
    "The training between pre-training and the sessions is GPIL, supervised training on the same labels, or "
    "none. GPIL minus supervised training is the gain of GPIL itself. Supervised training minus no training "
    "is the gain of the labels, if pre-training did not see them. Interactions of training use GPIL minus "
    "supervised training."
)


@dataclass(frozen=True, eq=False)
class Factorial:
    """Runs that differ only in switches and training, with every combination."""

    panel: Panel  # these runs only
    name: str  # the settings that the combinations share, if the panel has several factorials
    factors: list[str]  # includes `training` if supervised training is a level, otherwise `gpil`

    @property
    def title(self) -> str:
        return f"{self.panel.title}; {self.name}" if self.name else self.panel.title

    @property
    def slug(self) -> str:
        """Return the title as a file name."""
        return slug(self.panel.slug, self.name)

    @property
    def names(self) -> list[str]:
        """Return the names of the factors for readers."""
        return [factor if factor == "training" else factor.upper() for factor in self.factors]

    @property
    def about_training(self) -> str:
        """Return a description of the levels of training, if there are more than in the paper."""
        return f" {ABOUT_TRAINING}" if "training" in self.factors else ""

    @property
    def runs(self) -> pd.DataFrame:
        return self.panel.runs

    def parts(self, cell: tuple[Any, ...]) -> list[str]:
        """Return the parts that are on in a combination."""
        levels = zip(self.names, cell, strict=True)
        named = [level if isinstance(level, str) else name for name, level in levels if level]
        return [part for part in named if part != "nothing"]

    def cells(self, moment: str) -> dict[tuple[Any, ...], pd.Series]:
        """Return the accuracies by seed for each combination, at the `first` or the `last` session."""
        return {
            tuple(cell): runs.set_index("seed")[moment].sort_index()
            for cell, runs in self.runs.groupby(self.factors, sort=False)
        }

    def contrasts(self, moment: str) -> dict[str, pd.Series]:
        """Return effects and interactions by seed, at the `first` or the `last` session."""
        return self._by_moment[moment]

    @cached_property
    def _by_moment(self) -> dict[str, dict[str, pd.Series]]:
        factors = [self._contrasts(factor) for factor in self.factors]
        return {moment: contrasts(self.cells(moment), factors) for moment in MOMENTS}

    def aliases(self, moment: str) -> dict[str, str]:
        """Return effects that equal another effect for every seed, with the first of the equal effects.

        NLA and TLA do nothing at session 0 if GPIL is off, so each equals its interaction with GPIL.
        """
        names: dict[tuple[float, ...], str] = {}
        found = {}
        for name, values in self.contrasts(moment).items():
            seen = names.setdefault(tuple(values.round(DIGITS) + 0.0), name)
            if seen != name:
                found[name] = seen
        return found

    def _contrasts(self, factor: str) -> Factor:
        if factor != "training":
            return switch(factor.upper())
        there = [level for level in TRAINING if level in set(self.runs["training"])]
        pairs = itertools.combinations(there, 2)
        by_name = {f"{CALLED[one]} minus {CALLED[other]}": (one, other) for one, other in pairs}
        return dict(sorted(by_name.items(), key=lambda item: item[1] == ("GPIL", "nothing")))


def place(level: bool | str) -> int:
    """Return the sort key of a level: 0 for the level that the paper uses."""
    return TRAINING.index(level) if isinstance(level, str) else int(not level)


def factorials(panel: Panel, designs: Sequence[Design]) -> list[Factorial]:
    """Return the factorials of all methods with switches, one for each pre-training.

    A method has none if another setting varies, a combination is missing, or no seed has all combinations.
    Only switches are factors yet, and settings for whose values the design is repeated.
    """
    varied = {
        name for design in of_kind(designs, FACTORIAL) for name in (*design.factors, *design.repeated_for)
    }
    allowed = varied & {*SWITCHES, *REPEATED_FOR}
    if not allowed:
        return []
    switched = panel.runs[[has_switches(run) for run in rows_of(panel.runs)]]
    several = switched["method"].nunique() > 1
    return [
        each
        for _, runs in switched.groupby("method", sort=False)
        for each in _factorials(panel, runs, allowed, runs["traits"].iloc[0].title if several else "")
    ]


def _factorials(panel: Panel, runs: pd.DataFrame, allowed: Set[str], title: str) -> list[Factorial]:
    """Return the factorials of one method; `title` names it if several methods have some."""
    differ = varied_settings(runs.drop_duplicates("config_hash"), panel.keys, panel.scopes)
    if not allowed >= set(differ):
        return []
    others = [key for key in differ if key in REPEATED_FOR]
    called = across(runs, others, panel.scopes, SWITCHES) if others else pd.Series("", index=runs.index)
    runs = runs.assign(training=[training(run) for run in rows_of(runs)])
    groups = runs.groupby(called, sort=False)
    found = [_factorial(panel, ", ".join(filter(None, (title, str(name)))), group) for name, group in groups]
    return [each for each in found if each is not None] if all(found) else []


def _factorial(panel: Panel, name: str, runs: pd.DataFrame) -> Factorial | None:
    first = "training" if "supervised" in set(runs["training"]) else "gpil"
    factors = [key for key in (first, "nla", "tla") if key in runs and runs[key].nunique() > 1]
    combinations = len(runs[factors].drop_duplicates()) if factors else 0
    if not combinations or combinations != runs[factors].nunique().prod():
        return None
    if not (runs.groupby("seed").size() == combinations).any():
        return None  # effects need a seed with all combinations
    sessions = panel.sessions[panel.sessions["run"].isin(runs["run"])]
    return Factorial(replace(panel, runs=runs, sessions=sessions), name, factors)
