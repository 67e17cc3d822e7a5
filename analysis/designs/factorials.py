"""Find factorials: runs of one method with every combination of some settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis.data.labels import (
    ALL_OFF,
    SWITCHES,
    TOGGLES,
    TRAINING,
    across,
    has_switches,
    readable,
    rows_of,
    slug,
    training,
    varied_settings,
)
from analysis.data.results import Panel
from analysis.designs.design import FACTORIAL, REPEATED_FOR, Design, of_kind
from analysis.statistics.estimates import Factor, contrasts, switch
from analysis.statistics.inference import DIGITS
from hagmeta.common.records.differences import sort_key

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
ABOUT_SETTINGS = (
    "The effect of a setting is the mean with its second value minus the mean with its first value. Numbers "
    "with more than two values have the effect of the whole range, and then one for each step."
)


@dataclass(frozen=True, eq=False)
class Factorial:
    """Runs of one method with every combination of the levels of some settings."""

    panel: Panel  # these runs only
    name: str  # the method and the settings that the combinations share, if the panel has several factorials
    levels: Mapping[str, list[Any]]  # by factor; the level of the reference is the first

    @property
    def factors(self) -> list[str]:
        """Return the factors; `training` replaces `gpil` if supervised training is a level."""
        return list(self.levels)

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
        return [factor.upper() if factor in TOGGLES else factor for factor in self.factors]

    @property
    def about(self) -> str:
        """Return a description of levels that are not just on and off."""
        training = f" {ABOUT_TRAINING}" if "training" in self.factors else ""
        settings = (
            f" {ABOUT_SETTINGS}" if any(each not in ("training", *TOGGLES) for each in self.factors) else ""
        )
        return training + settings

    @property
    def runs(self) -> pd.DataFrame:
        return self.panel.runs

    def label(self, cell: tuple[Any, ...]) -> str:
        """Return the parts that are on in a combination, and its other settings."""
        parts, settings = [], []
        for factor, name, level in zip(self.factors, self.names, cell, strict=True):
            if factor == "training":
                parts += [level] * (level != "nothing")
            elif factor in TOGGLES:
                parts += [name] * bool(level)
            else:
                settings.append(f"{name} {readable(level)}")
        switches = sum(factor in ("training", *TOGGLES) for factor in self.factors)
        none = ALL_OFF if switches == 3 else "neither" if switches == 2 else f"{self._only_switch} off"
        return ", ".join([*settings, *([" + ".join(parts) or none] if switches else [])])

    @property
    def _only_switch(self) -> str:
        return next((name for name in self.names if name.lower() in TOGGLES), "training")

    def places(self, cell: Iterable[Any]) -> list[int]:
        """Return the sort key of a combination: for each factor 0 for the level of the reference."""
        return [levels.index(level) for levels, level in zip(self.levels.values(), cell, strict=True)]

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
        factors = list(self.contrasts_of.values())
        return {moment: contrasts(self.cells(moment), factors) for moment in MOMENTS}

    @cached_property
    def contrasts_of(self) -> dict[str, Factor]:
        """Return the contrasts of each factor."""
        return {factor: self._contrasts(factor) for factor in self.factors}

    @property
    def main(self) -> list[str]:
        """Return the effects of whole factors: all contrasts of training, and the first of other factors."""
        return [
            name
            for factor, each in self.contrasts_of.items()
            for name in (list(each.contrasts) if factor == "training" else list(each.contrasts)[:1])
        ]

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
        levels = self.levels[factor]
        if factor in TOGGLES:
            return switch(factor.upper())
        if factor == "training":
            pairs = itertools.combinations(levels, 2)
            by_name = {f"{CALLED[one]} minus {CALLED[other]}": (one, other) for one, other in pairs}
            ordered = dict(sorted(by_name.items(), key=lambda item: item[1] == ("GPIL", "nothing")))
            return Factor(next(iter(ordered)), ordered)
        first, *rest = levels
        numbers = not any(isinstance(level, (str, bool, np.bool_)) for level in levels)
        steps = (
            [(first, rest[-1]), *itertools.pairwise(levels)]
            if numbers
            else [(first, other) for other in rest]
        )
        return Factor(factor, {f"{factor} {readable(a)} to {readable(b)}": (b, a) for a, b in steps})


def factorials(panel: Panel, designs: Sequence[Design]) -> list[Factorial]:
    """Return the factorials of all methods, one for each pre-training.

    A method has none if a setting varies that is no factor, a combination is missing, or no seed has all
    combinations. A single setting that is no switch is no factorial: its values are compared directly.
    """
    found: dict[str, list[Factorial]] = {}
    for design in of_kind(designs, FACTORIAL):
        runs = panel.runs
        if design.configs:
            runs = runs[runs["config_hash"].map(lambda name: name.partition("-")[0]).isin(design.configs)]
        for _, own in runs.groupby("method", sort=False):
            found.setdefault(own["traits"].iloc[0].title, []).extend(_factorials(panel, own, design))
    several = sum(map(bool, found.values())) > 1
    return [
        replace(each, name=", ".join(filter(None, (title, each.name)))) if several else each
        for title, own in found.items()
        for each in own
    ]


def _factorials(panel: Panel, runs: pd.DataFrame, design: Design) -> list[Factorial]:
    """Return the factorials of one method."""
    differ = varied_settings(runs.drop_duplicates("config_hash"), panel.keys, panel.scopes)
    repeated = [key for key in differ if key in (*REPEATED_FOR, *design.repeated_for)]
    factors = [key for key in differ if key not in repeated]
    if not factors or not set(factors) <= {*(design.factors or factors)}:
        return []
    if set(factors) <= {*SWITCHES} and not all(has_switches(run) for run in rows_of(runs)):
        return []
    called = across(runs, repeated, panel.scopes, SWITCHES) if repeated else pd.Series("", index=runs.index)
    runs = runs.assign(training=[training(run) for run in rows_of(runs)])
    groups = runs.groupby(called, sort=False)
    found = [_factorial(panel, str(name), group, factors) for name, group in groups]
    return [each for each in found if each is not None] if all(found) else []


def _factorial(panel: Panel, name: str, runs: pd.DataFrame, varied: Sequence[str]) -> Factorial | None:
    first = ["training" if "supervised" in set(runs["training"]) else "gpil"]
    others = [key for key in varied if key not in SWITCHES]
    wanted = [*others, *(first if {"gpil", "instead_of_gpil"} & set(varied) else []), "nla", "tla"]
    factors = [key for key in wanted if key in runs and runs[key].nunique() > 1]
    combinations = len(runs[factors].drop_duplicates()) if factors else 0
    if not combinations or combinations != runs[factors].nunique().prod():
        return None
    if len(factors) < 2 and factors[0] not in ("training", *TOGGLES):
        return None
    if not (runs.groupby("seed").size() == combinations).any():
        return None  # effects need a seed with all combinations
    if runs.duplicated(["seed", *factors]).any():
        return None  # a setting that is no factor differs
    sessions = panel.sessions[panel.sessions["run"].isin(runs["run"])]
    own = replace(panel, runs=runs, sessions=sessions)
    return Factorial(own, name, {factor: _levels(runs, factor) for factor in factors})


def _levels(runs: pd.DataFrame, factor: str) -> list[Any]:
    """Return the levels of a factor, beginning with that of the reference; numbers are in order."""
    if factor == "training":
        return [level for level in TRAINING if level in set(runs["training"])]
    if factor in TOGGLES:
        return [True, False]
    levels = sorted(set(runs[factor]), key=sort_key)
    first = runs[factor].iloc[0]  # the reference comes first
    if isinstance(first, (str, bool)):
        return [first, *(level for level in levels if level != first)]
    return levels[::-1] if first == levels[-1] else levels
