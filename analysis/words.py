"""Word differences and verdicts in one way for tables, findings and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping

from analysis.statistics.estimates import Estimate
from analysis.statistics.inference import (
    BETTER,
    EQUIVALENT,
    FEWEST_SEEDS,
    INCONCLUSIVE,
    TOO_FEW,
    WORSE,
    Difference,
)

NAMED_DATASETS = 4  # more are counted
NO_COMMON_SEED = "no common seed"
STANDING = {  # how a configuration compares with others, by verdict
    BETTER: f"{BETTER} than {{}}",
    EQUIVALENT: "equivalent to {}",
    INCONCLUSIVE: "inconclusive against {}",
    WORSE: f"{WORSE} than {{}}",
    TOO_FEW: "not tested against {} (too few seeds)",
    NO_COMMON_SEED: "not comparable with {} (no common seed)",
}


def points(difference: Difference | Estimate, *, sign: bool = True, unit: str = "") -> str:
    """Return "+1.2 [+0.8, +1.6]", with `unit` after the mean; no interval if `difference` has none."""
    if math.isnan(difference.mean):
        return NO_COMMON_SEED
    form = "+.1f" if sign else ".1f"
    # Adding 0.0 removes the sign of zero. Limits that are rounded to zero keep it: "-0.0" is below zero.
    # If the interval excludes zero, such a limit has one more digit.
    mean, low, high = (100 * each + 0.0 for each in (difference.mean, difference.low, difference.high))
    mean = round(mean, 1) + 0.0
    near = form.replace("1", "2") if low > 0 or high < 0 else form
    shown = [f"{each:{near if abs(each) < 0.05 else form}}" for each in (low, high)]
    limits = "" if math.isnan(low) else f" [{', '.join(shown)}]"
    return f"{mean:{form}}{unit}{limits}"


def verdict(difference: Difference, *, detects: bool = False) -> str:
    """Return the verdict; without one, name the number of seeds that would give one, and which.

    With `detects`, an inconclusive one also names the smallest difference that the test would detect.
    """
    word = difference.verdict
    if difference.seeds == 0:
        return NO_COMMON_SEED
    if word in (BETTER, WORSE):
        return f"{word}, by less than {margin(difference)}" if difference.within_margin else word
    if word == EQUIVALENT:
        return word
    parts = [f"detects {100 * difference.detectable:.1f}"] * (detects and word == INCONCLUSIVE)
    seeds, other = difference.needed
    if difference.seeds > 1 and math.isfinite(seeds):
        parts.append(f"needs {seeds:.0f} seeds for {other.removeprefix('significantly ')}")
    return f"{word}: {', '.join(parts)}" if parts else word


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
    """Return "significantly better than A and B; inconclusive against C" from names by verdict."""
    if len(groups) == 1:
        ((verdict, names),) = groups.items()
        return STANDING[verdict].format(f"all {len(names)} others" if len(names) > 1 else names[0])
    return "; ".join(STANDING[verdict].format(some(names)) for verdict, names in groups.items())


def sentence(text: str) -> str:
    """Return `text` with a capital letter at its beginning, unless that is a name such as "iCaRL"."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


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
