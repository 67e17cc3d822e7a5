"""Say in sentences where a method lands among the references, and write a paragraph for a paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.compare import Placed, Standing
from analysis.inference import AHEAD, BEHIND, EQUIVALENT, LEVEL, TOO_FEW, UNDECIDED
from analysis.references import TUNED
from analysis.statistics import estimate
from analysis.words import count_of_seeds, listed, points, some
from hagmeta.common.version import __version__

TO_THE_BEST = {  # how a method compares with the best reference of a graph
    AHEAD: "ahead of",
    EQUIVALENT: "level with",
    UNDECIDED: "not separated from",
    BEHIND: "behind",
    TOO_FEW: "not tested against",
}
SOFTWARE = (
    "The hagmeta contributors. hagmeta: graph few-shot class-incremental learning without leaks. Version "
    f"{__version__}."
)
HAG_META = (
    "Zhen Tan, Kaize Ding, Ruocheng Guo and Huan Liu. Graph Few-shot Class-incremental Learning. WSDM 2022."
)


def sentences(placed: Placed) -> Iterator[str]:
    """Yield the sentences at the top of the page: where each method lands, then each graph."""
    for label in placed.labels:
        yield landing(placed.of(label))
    for each in placed.standings:
        yield on_graph(each, named=len(placed.labels) > 1)


def landing(standings: Sequence[Standing]) -> str:
    """Return "Mine is level with RanPAC on debian, and behind FeCAM on foldoc. These are ..."."""
    parts, named = [], []
    for verdict, words in TO_THE_BEST.items():
        where: dict[str, list[str]] = {}  # graphs by who is compared there
        for each in standings:
            if each.lead.verdict == verdict:
                who = "every reference" if each.ahead_of_all else each.best
                named += [] if each.ahead_of_all else [each.best]
                where.setdefault(who, []).append(each.dataset)
        parts += [f"{words} {who} on {listed(names)}" for who, names in where.items()]
    told = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"
    one = len(set(named)) == 1
    which = f"{named[0]} is the best reference there." if one else "These are the best references there."
    return f"{standings[0].label} is {told}." + f" {which}" * bool(named)


def on_graph(standing: Standing, *, named: bool = False) -> str:
    """Return the rank, the accuracy and the verdicts of a method on one graph."""
    own = estimate(standing.panel.by_seed("last")[standing.label])
    who = standing.label if named else "it"
    words = f"On {standing.dataset}, {who} ranks {standing.rank} of {len(standing.rivals) + 1}"
    interval = f" ± {100 * own.half:.1f}" if own.half == own.half else ""
    words += f" with {100 * own.mean:.1f}{interval} % at the last session."
    counts = {verdict: standing.with_verdict(verdict) for verdict in (AHEAD, EQUIVALENT, UNDECIDED, BEHIND)}
    told = [
        f"{verb} {_some(counts[verdict], 8 if verdict in (EQUIVALENT, UNDECIDED) else 3)}"
        for verdict, verb in (
            (AHEAD, "ahead of"),
            (EQUIVALENT, "equivalent to"),
            (UNDECIDED, "undecided against"),
            (BEHIND, "behind"),
        )
        if counts[verdict]
    ]
    if not told:
        return f"{words} {count_of_seeds(own.seeds).capitalize()} are too few to test differences."
    rival = f"{standing.best}, the best reference"
    lead = points(standing.lead, unit=" points")
    return f"{words} It is {'; '.join(told)}. The difference from {rival}, is {lead}."


def _some(labels: list[str], most: int) -> str:
    return some(labels, most) if len(labels) <= most else f"{len(labels)} references"


def paragraph(placed: Placed, label: str) -> str:
    """Return a paragraph for a paper, with numbers that point to `citations`."""
    standings = placed.of(label)
    order = citations(placed, label)
    number = {text: f"[{place}]" for place, text in enumerate(order, 1)}
    rivals = len(set().union(*(each.rivals for each in standings)))
    seeds = sorted({each.lead.seeds for each in standings})
    count = count_of_seeds(seeds[-1]) if len(seeds) == 1 else f"{seeds[0]} to {count_of_seeds(seeds[-1])}"
    protocol = standings[0].panel.runs["protocol"].iloc[0]
    how = (
        "whose hyperparameters were tuned per graph"
        if placed.kind == TUNED
        else "with their default settings"
    )
    first = (
        f"We compare {label} with {rivals} methods {how}, using the reference results of hagmeta "
        f"{number[SOFTWARE]}. All methods solve the same tasks of graph few-shot class-incremental learning "
        f"{number[HAG_META]} under its {protocol} protocol, with {count} in common. We report "
        f"{placed.results.metric} at the last session."
    )
    found = [_in_paper(each, number, placed) for each in standings]
    tests = (
        f"Differences are paired by seed. Verdicts come from a sign-flip test, corrected over all "
        f"{placed.tests.total} comparisons; {100 * LEVEL:g} % bounds the chance of any false verdict."
        if placed.tests.total
        else "There are too few common seeds to test the differences."
    )
    return " ".join([first, *found, tests])


def _in_paper(standing: Standing, number: dict[str, str], placed: Placed) -> str:
    own, best = (estimate(standing.panel.by_seed("last")[label]) for label in (standing.label, standing.best))
    runs = standing.panel.runs
    method = runs.loc[runs["label"] == standing.best, "method"].iloc[0]
    cited = number.get(_citation(placed, method), "")
    if standing.ahead_of_all:
        verdict = f"ahead of all {len(standing.rivals)} methods. The best of them is"
    else:
        verdict = f"{TO_THE_BEST[standing.lead.verdict]} the best of them,"
    rival = f"{standing.best} {cited}".strip()
    return (
        f"On {standing.dataset}, {standing.label} reaches {100 * own.mean:.1f} %, rank {standing.rank} of "
        f"{len(standing.rivals) + 1}. It is {verdict} {rival} with {100 * best.mean:.1f} % (difference "
        f"{points(standing.lead)} points)."
    )


def citations(placed: Placed, label: str) -> list[str]:
    """Return the citations of the paragraph: the software, the task, and the best reference of each graph."""
    methods = []
    for each in placed.of(label):
        runs = each.panel.runs
        methods.append(str(runs.loc[runs["label"] == each.best, "method"].iloc[0]))
    found = [_citation(placed, method) for method in methods]
    return list(dict.fromkeys([SOFTWARE, HAG_META, *filter(None, found)]))


def _citation(placed: Placed, method: str) -> str:
    """Return the citation of a reference, or an empty string."""
    for each in placed.references.records:
        if each["config"]["method"] == method:
            return str(each["traits"].get("citation", ""))
    return ""
