"""How differences and verdicts read, everywhere the same."""

from __future__ import annotations

import math

from analysis.inference import (
    AHEAD,
    BEHIND,
    EQUIVALENT,
    FEWEST_SEEDS,
    MOST_SEEDS,
    TOO_FEW,
    UNDECIDED,
    Difference,
)


def points(difference: Difference, *, sign: bool = True) -> str:
    """«+1.2 [+0.8, +1.6]»; without an interval where there is none."""
    if math.isnan(difference.mean):
        return "no common seed"
    form = "+.1f" if sign else ".1f"
    # A zero has no sign, whatever was rounded to it.
    mean, low, high = (
        round(100 * each, 1) + 0.0 for each in (difference.mean, difference.low, difference.high)
    )
    return f"{mean:{form}}" if math.isnan(low) else f"{mean:{form}} [{low:{form}}, {high:{form}}]"


def size(difference: Difference) -> str:
    """«1.2 points [0.8, 1.6]», in the direction of the mean: a limit beyond zero is negative."""
    sign = -1 if difference.mean < 0 else 1
    mean, low, high = (
        round(100 * sign * each, 1) + 0.0 for each in (difference.mean, difference.low, difference.high)
    )
    limits = "" if math.isnan(low) else f" [{min(low, high):.1f}, {max(low, high):.1f}]"
    return f"{mean:.1f} points{limits}"


def verdict(difference: Difference, *, finds: bool = False) -> str:
    """The verdict; of what is open, how many seeds would decide it, and what would have been found."""
    word = difference.verdict
    if difference.seeds == 0:
        return "no common seed"
    if word in (AHEAD, BEHIND):
        return f"{word}, by less than {100 * difference.margin:g}" if difference.within_margin else word
    if word == EQUIVALENT:
        return word
    needed = f"needs {difference.needed:.0f} seeds"
    if math.isinf(difference.needed):
        needed = f"needs over {MOST_SEEDS:,} seeds"
    if word == TOO_FEW:
        return word if difference.seeds < 2 else f"{word}: {needed}"
    return f"{word}: finds {100 * difference.detectable:.1f}, {needed}" if finds else f"{word}: {needed}"


def a_look(seeds: int) -> str:
    """A badge for what too few seeds show; empty where they can decide."""
    if seeds >= FEWEST_SEEDS:
        return ""
    return f"{seeds} seed{'s' * (seeds != 1)}: a look, not a claim; {FEWEST_SEEDS} decide"


def p_value(p: float) -> str:
    """«p = 0.031»."""
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def effect(name: str, found: Difference, where: str) -> str:
    """«GPIL adds 22.6 points [20.5, 24.7] at session 0»."""
    if found.seeds == 0:
        return f"{name} has no seed with and without it {where}"
    if found.verdict in (AHEAD, BEHIND):
        return f"{name} {'adds' if found.mean > 0 else 'costs'} {size(found)} {where}"
    if found.verdict == EQUIVALENT:
        return f"{name} makes less than {margin(found)} of difference {where} ({points(found)})"
    if found.verdict == UNDECIDED:
        least = f"{100 * found.detectable:.1f} would have been found"
        return f"{name} has an undecided effect {where} ({points(found)}; {least})"
    seeds = "1 seed" if found.seeds == 1 else f"{found.seeds} seeds"
    return f"{name} changes {points(found)} points {where} ({seeds}, not tested)"


def margin(found: Difference) -> str:
    """«1 point»."""
    return "1 point" if found.margin == 0.01 else f"{100 * found.margin:g} points"


def some(labels: list[str], most: int = 4) -> str:
    """A few names, or the first of many and how many others."""
    if len(labels) <= most:
        return ", ".join(labels)
    return f"{labels[0]} and {len(labels) - 1} others"


def listed(words: list[str]) -> str:
    """«A, B and C»."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
