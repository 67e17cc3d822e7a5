"""Word differences and verdicts in one way for tables, findings and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping

from analysis.inference import (
    AHEAD,
    BEHIND,
    EQUIVALENT,
    FEWEST_SEEDS,
    MOST_SEEDS,
    POWER,
    TOO_FEW,
    UNDECIDED,
    Difference,
)

NAMED_DATASETS = 4  # more are counted


def points(difference: Difference, *, sign: bool = True, unit: str = "") -> str:
    """Return "+1.2 [+0.8, +1.6]", with `unit` after the mean; no interval if `difference` has none."""
    if math.isnan(difference.mean):
        return "no common seed"
    form = "+.1f" if sign else ".1f"
    # Adding 0.0 removes the sign of a value that was rounded to zero.
    mean, low, high = (
        round(100 * each, 1) + 0.0 for each in (difference.mean, difference.low, difference.high)
    )
    limits = "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"
    return f"{mean:{form}}{unit}{limits}"


def size(difference: Difference) -> str:
    """Return "1.2 points [0.8, 1.6]" in the direction of the mean: a limit beyond zero is negative."""
    sign = -1 if difference.mean < 0 else 1
    mean, low, high = (
        round(100 * sign * each, 1) + 0.0 for each in (difference.mean, difference.low, difference.high)
    )
    limits = "" if math.isnan(low) else f" [{min(low, high):.1f}, {max(low, high):.1f}]"
    return f"{mean:.1f} points{limits}"


def verdict(difference: Difference, *, detects: bool = False) -> str:
    """Return the verdict; an open one names the seeds that would decide it.

    With `detects`, an undecided one also names the smallest difference that the test would detect.
    """
    word = difference.verdict
    if difference.seeds == 0:
        return "no common seed"
    if word in (AHEAD, BEHIND):
        return f"{word}, by less than {margin(difference)}" if difference.within_margin else word
    if word == EQUIVALENT:
        return word
    needed = f"needs {difference.needed:.0f} seeds"
    if math.isinf(difference.needed):
        needed = f"needs over {MOST_SEEDS:,} seeds"
    if word == TOO_FEW:
        return word if difference.seeds < 2 else f"{word}: {needed}"
    return f"{word}: detects {100 * difference.detectable:.1f}, {needed}" if detects else f"{word}: {needed}"


def a_look(seeds: int) -> str:
    """Return a badge for results with too few seeds to test; an empty string if there are enough."""
    if seeds >= FEWEST_SEEDS:
        return ""
    return f"{count_of_seeds(seeds)}: too few to test, at least {FEWEST_SEEDS} needed"


def count_of_seeds(seeds: int) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{seeds} seed{'s' * (seeds != 1)}"


def p_value(p: float) -> str:
    """Return "p = 0.031"."""
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def effect(name: str, found: Difference, when: str = "", over: str = "") -> str:
    """Return sentences such as "At session 0, GPIL adds 22.6 points [20.5, 24.7] over no training."

    `name` is the part, `when` the session, and `over` what the part is compared with. Leave `when` empty if
    the sentence before has the same session, and `over` if the part is compared with its absence.
    """
    words = _effect(name, found, over)
    return f"At {when}, {words}" if when else words[0].upper() + words[1:]


def _effect(name: str, found: Difference, over: str) -> str:
    compared = f" compared with {over}" if over else ""
    measured = points(found, unit=" points")
    if found.seeds == 0:
        without = over or "without it"
        return f"no seed has runs both with {name} and {without}."
    if found.verdict == EQUIVALENT:
        return f"{name} makes less than {margin(found)} of difference{compared}: {measured}."
    if found.verdict == UNDECIDED:
        return (
            f"the effect of {name}{compared} is undecided: {measured}. The test detects "
            f"{100 * found.detectable:.1f} points with {100 * POWER:.0f} % power."
        )
    change = f"adds {size(found)}" if found.mean >= 0 else f"costs {size(found)}"
    against = f" over {over}" if over and found.mean >= 0 else compared
    words = f"{name} {change}{against}."
    return words if found.tested else f"{words} {too_few(found.seeds)}"


def effects(told: Mapping[str, Difference]) -> str:
    """Return the sentences of several effects as one text.

    `told` has the effects by their sentences. If all of them have too few seeds, the text says so once.
    """
    counts = {each.seeds for each in told.values()}
    if len(told) > 1 and len(counts) == 1 and 0 < max(counts) < FEWEST_SEEDS:
        few = too_few(max(counts))
        sentences = [sentence.removesuffix(f" {few}") for sentence in told]
        return " ".join([*sentences, too_few(max(counts), "these effects")])
    return " ".join(told)


def too_few(seeds: int, what: str = "this") -> str:
    """Return "3 seeds are too few to test this."."""
    return f"{count_of_seeds(seeds)} {'is' if seeds == 1 else 'are'} too few to test {what}."


def margin(found: Difference) -> str:
    """Return "1 point", the margin within which `found` would be equivalent."""
    return "1 point" if found.margin == 0.01 else f"{100 * found.margin:g} points"


def some(labels: list[str], most: int = 4) -> str:
    """Return all of a few labels, or the first of many and the number of others."""
    if len(labels) <= most:
        return listed(labels)
    return f"{labels[0]} and {len(labels) - 1} others"


def listed(words: list[str]) -> str:
    """Return "A, B and C"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def datasets_words(names: list[str]) -> str:
    """Return "A, B and C", or "5 datasets" if there are many."""
    return listed(names) if len(names) <= NAMED_DATASETS else f"{len(names)} datasets"


def are(labels: list[str]) -> str:
    """Return "is" for one label and "are" for several."""
    return "is" if len(labels) == 1 else "are"
