"""Say in sentences where a method lands among the references, and write a paragraph for a paper."""

from __future__ import annotations

from analysis.findings import Finding
from analysis.references.place import Placed, Standing
from analysis.references.references import TUNED
from analysis.statistics.estimates import estimate
from analysis.statistics.inference import BETTER, EQUIVALENT, INCONCLUSIVE, LEVEL, TOO_FEW, WORSE
from analysis.words import by_verdict, count_of_seeds, points, standing_words
from hagmeta.common.version import __version__

TO_THE_BEST = {  # how a method compares with the best reference of a graph
    BETTER: "significantly better than",
    EQUIVALENT: "equivalent to",
    INCONCLUSIVE: "not significantly different from",
    WORSE: "significantly worse than",
    TOO_FEW: "not tested against",
}
SOFTWARE = (
    "The hagmeta contributors. hagmeta: graph few-shot class-incremental learning without leaks. Version "
    f"{__version__}."
)
HAG_META = (
    "Zhen Tan, Kaize Ding, Ruocheng Guo and Huan Liu. Graph Few-shot Class-incremental Learning. WSDM 2022."
)


def findings(placed: Placed) -> list[Finding]:
    """Return where each method lands on each graph: its rank, its accuracy and the verdicts."""
    first = {placed.of(label)[0] for label in placed.labels}
    return [_on_graph(each, named=each in first or len(placed.labels) > 1) for each in placed.standings]


def _on_graph(standing: Standing, *, named: bool) -> Finding:
    own = estimate(standing.panel.by_seed("last")[standing.label])
    who = standing.label if named else "it"
    interval = f" ± {100 * own.half:.1f}" if own.half == own.half else ""
    tests = {label: standing.tests[label] for label in standing.rivals}
    rank = f"{standing.rank} of {len(standing.rivals) + 1}"
    text = (
        f"On {standing.dataset}, {who} ranks {rank} with {100 * own.mean:.1f}{interval} % at the last "
        f"session. It is {standing_words(by_verdict(tests))}. The difference from {standing.best}, the best "
        f"reference, is {points(standing.lead, unit=' points')}."
    )
    values = {"dataset": standing.dataset, "label": standing.label, "rank": standing.rank, "tests": tests}
    return Finding("landing", values, text)


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
        "with the settings that a search chose per graph, or defaults where there was none,"
        if placed.kind == TUNED
        else "with their default settings"
    )
    first = (
        f"We compare {label} with {rivals} methods {how}, using the reference results of hagmeta "
        f"{number[SOFTWARE]}. All methods solve the same tasks of graph few-shot class-incremental learning "
        f"{number[HAG_META]} under its {protocol} protocol, with {count} in common. We report "
        f"{placed.analysis.results.metric} at the last session."
    )
    found = [_in_paper(each, number, placed) for each in standings]
    family = placed.analysis.comparisons.reference
    tests = (
        f"Differences are paired by seed and tested by t-tests. Of {family.tested} comparisons, "
        f"{family.decided} are decided, with a false discovery rate of {100 * LEVEL:g} %."
        if family.tested
        else "There are too few common seeds to test the differences."
    )
    return " ".join([first, *found, tests])


def _in_paper(standing: Standing, number: dict[str, str], placed: Placed) -> str:
    own, best = (estimate(standing.panel.by_seed("last")[label]) for label in (standing.label, standing.best))
    runs = standing.panel.runs
    method = runs.loc[runs["label"] == standing.best, "method"].iloc[0]
    cited = number.get(_citation(placed, method), "")
    if standing.better_than_all:
        verdict = f"significantly better than all {len(standing.rivals)} methods. The best of them is"
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
