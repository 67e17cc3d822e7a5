"""Whether an oracle bounds the others, as it is there for: it knows more, and need not make more of it."""

from __future__ import annotations

from analysis.frame import Panel
from analysis.statistics import Difference, against


def above_oracles(panel: Panel) -> dict[str, dict[str, Difference]]:
    """Of each oracle, who is significantly above it at the last session, and by how much.

    Paired by seed, Wilcoxon signed-rank, Holm-corrected over all who might be.
    """
    last = panel.by_seed("last")
    rivals = [label for label in panel.labels if label not in panel.oracles]
    tests = {oracle: against(last[[oracle, *rivals]], oracle) for oracle in sorted(panel.oracles)}
    return {
        oracle: {label: test for label, test in found.items() if test.significant and test.mean > 0}
        for oracle, found in tests.items()
    }


def bound_words(oracle: str, above: dict[str, Difference]) -> str:
    """What an oracle's accuracy says of the others'."""
    if not above:
        return f"{oracle} is given labels that the others never see: an upper bound, not a rival."
    names = ", ".join(f"{label} ({points(test)})" for label, test in above.items())
    return (
        f"{oracle} is given labels that the others never see, and is no upper bound here: significantly "
        f"above it at the last session, in points: {names}."
    )


def points(test: Difference) -> str:
    """«+1.2 [+0.8, +1.6]»."""
    return f"{100 * test.mean:+.1f} [{100 * test.low:+.1f}, {100 * test.high:+.1f}]"
