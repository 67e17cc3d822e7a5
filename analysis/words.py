"""Word differences and verdicts in one way for tables, findings and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping

from analysis.statistics.inference import (
    AHEAD,
    BEHIND,
    EQUIVALENT,
    FEWEST_SEEDS,
    MOST_SEEDS,
    TOO_FEW,
    UNDECIDED,
    Difference,
)

NAMED_DATASETS = 4  # more are counted
NO_COMMON_SEED = "no common seed"
STANDING = {  # how a configuration compares with others, by verdict
    AHEAD: "ahead of {}",
    EQUIVALENT: "equivalent to {}",
    UNDECIDED: "undecided against {}",
    BEHIND: "behind {}",
    TOO_FEW: "not tested against {} (too few seeds)",
    NO_COMMON_SEED: "not comparable with {} (no common seed)",
}


def points(difference: Difference, *, sign: bool = True, unit: str = "") -> str:
    """Return "+1.2 [+0.8, +1.6]", with `unit` after the mean; no interval if `difference` has none."""
    if math.isnan(difference.mean):
        return NO_COMMON_SEED
    form = "+.1f" if sign else ".1f"
    # Adding 0.0 removes the sign of a value that was rounded to zero.
    mean, low, high = (
        round(100 * each, 1) + 0.0 for each in (difference.mean, difference.low, difference.high)
    )
    limits = "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"
    return f"{mean:{form}}{unit}{limits}"


def verdict(difference: Difference, *, detects: bool = False) -> str:
    """Return the verdict; an open one names the seeds that would decide it.

    With `detects`, an undecided one also names the smallest difference that the test would detect.
    """
    word = difference.verdict
    if difference.seeds == 0:
        return NO_COMMON_SEED
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


def margin(found: Difference) -> str:
    """Return "1 point", the margin within which `found` would be equivalent."""
    return "1 point" if found.margin == 0.01 else f"{100 * found.margin:g} points"


def by_verdict(tests: Mapping[str, Difference]) -> dict[str, list[str]]:
    """Return the names by verdict, in the order of `STANDING`."""
    found: dict[str, list[str]] = {verdict: [] for verdict in STANDING}
    for name, test in tests.items():
        found[test.verdict if test.seeds else NO_COMMON_SEED].append(name)
    return {verdict: names for verdict, names in found.items() if names}


def standing_words(groups: Mapping[str, list[str]]) -> str:
    """Return "ahead of A and B; undecided against C" from names by verdict."""
    if len(groups) == 1:
        ((verdict, names),) = groups.items()
        return STANDING[verdict].format(f"all {len(names)} others" if len(names) > 1 else names[0])
    return "; ".join(STANDING[verdict].format(some(names)) for verdict, names in groups.items())


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
