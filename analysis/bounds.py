"""Whether an oracle bounds the others, as it is there for: it knows more, and need not make more of it."""

from __future__ import annotations

from analysis.claims import Claims
from analysis.frame import Panel
from analysis.inference import AHEAD, BEHIND
from analysis.words import points


def oracle_words(panel: Panel, told: Claims) -> dict[str, str]:
    """By oracle, what its accuracy at the last session says of the others'."""
    return {oracle: _bound_words(panel, told, oracle) for oracle in sorted(panel.oracles)}


def exceeded(panel: Panel, told: Claims) -> list[str]:
    """Oracles below a rival."""
    rivals = {oracle: told.beside(panel, oracle).values() for oracle in sorted(panel.oracles)}
    return [name for name, found in rivals.items() if any(each.verdict == AHEAD for each in found)]


def _bound_words(panel: Panel, told: Claims, oracle: str) -> str:
    given = f"{oracle} is given labels that the others never see"
    rivals = {label: each for label, each in told.beside(panel, oracle).items() if label not in panel.oracles}
    above = [f"{label} ({points(each)})" for label, each in rivals.items() if each.verdict == AHEAD]
    if above:
        return f"{given}, and is no upper bound here: ahead of it, in points: {', '.join(above)}."
    if not rivals:
        return f"{given}: no rival."
    open_ones = [label for label, each in rivals.items() if each.verdict != BEHIND]
    if open_ones:
        return f"{given}: no rival; whether it is above {', '.join(open_ones)} is not certain here."
    return f"{given}: an upper bound, not a rival."
