"""Decide whether an oracle is an upper bound: it sees more labels, but another method can still win."""

from __future__ import annotations

from analysis.comparisons import Comparisons
from analysis.frame import Panel
from analysis.inference import AHEAD, BEHIND
from analysis.words import listed, points


def oracle_words(panel: Panel, told: Comparisons) -> dict[str, str]:
    """Return, for each oracle, whether it is an upper bound of the others at the last session."""
    return {oracle: _bound_words(panel, told, oracle) for oracle in sorted(panel.oracles)}


def exceeded(panel: Panel, told: Comparisons) -> list[str]:
    """Return the oracles that another configuration is ahead of."""
    rivals = {oracle: told.against(panel, oracle).values() for oracle in sorted(panel.oracles)}
    return [name for name, found in rivals.items() if any(each.verdict == AHEAD for each in found)]


def _bound_words(panel: Panel, told: Comparisons, oracle: str) -> str:
    given = f"{oracle} sees labels that the others never see."
    rivals = {
        label: each for label, each in told.against(panel, oracle).items() if label not in panel.oracles
    }
    above = [
        f"{label} ({points(each, unit=' points')})" for label, each in rivals.items() if each.verdict == AHEAD
    ]
    if above:
        return f"{given} It is not an upper bound here. Ahead of it: {', '.join(above)}."
    if not rivals:
        return f"{given} It is not ranked."
    open_ones = [label for label, each in rivals.items() if each.verdict != BEHIND]
    if open_ones:
        return f"{given} It is not ranked. It is not shown to be ahead of {listed(open_ones)}."
    return f"{given} It is an upper bound and is not ranked."
