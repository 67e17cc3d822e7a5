"""Write the findings of a report: sentences that state what its tables show, with the values behind them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import comb
from typing import Any, NamedTuple

from analysis.comparisons import Analysis, best_of
from analysis.data.labels import TOGGLES, readable
from analysis.data.results import Panel
from analysis.designs.datasets import common_labels, oracles_of
from analysis.designs.factorials import MOMENTS, Factorial
from analysis.statistics.estimates import adjusted_means, estimate
from analysis.statistics.inference import BETTER, EQUIVALENT, INCONCLUSIVE, TOO_FEW, WORSE, Difference
from analysis.tables.across import Across, compared_effects, compared_methods
from analysis.tables.cells import exceeded, oracle_words
from analysis.tables.margins import margins
from analysis.tables.over_datasets import FEWEST_FOR_TESTS, friedman_words, limit_words, paired_tests
from analysis.words import (
    a_look,
    are,
    by_verdict,
    datasets_words,
    listed,
    points,
    sentence,
    some,
    standing_words,
)

MOST_OF_A_KIND = 4
SOME = "conclusive on some datasets only"
ORDER = (BETTER, WORSE, EQUIVALENT, SOME)  # of verdicts; the others follow


class Finding(NamedTuple):
    """A finding: its kind, the values that it states, and one or more sentences.

    Tests compare the values with the cells of tables. Nothing reads the text but people.
    """

    kind: str
    values: Mapping[str, Any]
    text: str


def findings(analysis: Analysis) -> list[Finding]:
    """Return the findings, the most important first; at most a few of each kind."""
    warning = list(_few_seeds(analysis))
    kinds: tuple[Callable[[Analysis], Iterator[Finding]], ...] = (
        *(_margins, _over_datasets, _control, _across, _verdicts, _effects, _tuning, _best),
        *(_bounds, _protocols, _shots, _one_at_a_time),
    )
    found = [finding for kind in kinds for finding in _shortened(kind(analysis))]
    return [*warning, *(found or _levels(analysis))]


def _shortened(found: Iterable[Finding]) -> list[Finding]:
    """Return the first few findings of a kind, and how many more the tables have."""
    kind = list(found)
    left = len(kind) - MOST_OF_A_KIND
    if left <= 1:
        return kind
    more = Finding("more", {"left": left}, f"The tables have {left} more findings of this kind.")
    return [*kind[:MOST_OF_A_KIND], more]


def _few_seeds(analysis: Analysis) -> Iterator[Finding]:
    """Yield a warning if no part of the report has enough seeds to test anything."""
    if all(panel.badge for panel in analysis.panels):
        seeds = max(panel.enough for panel in analysis.panels)
        yield Finding("few seeds", {"seeds": seeds}, f"{a_look(seeds)}.")


def _margins(analysis: Analysis) -> Iterator[Finding]:
    """Yield for how many combinations of N and K a method leads, and by how much."""
    for found in margins(analysis):
        cells = [cell for cell in found.cells if cell.lead.seeds]
        start = f"On {found.where}, {found.label}"
        values: dict[str, Any] = {"where": found.where, "method": found.label}
        if not cells:
            text = f"{start} shares no seed with the best other method for any N and K."
            yield Finding("margins", values | {"leads": [], "verdicts": {}}, text)
            continue
        leads = sorted(cell.lead.mean for cell in cells)
        verdicts = Counter(cell.verdict for cell in found.cells)
        parts = {
            "{} {are} significantly better than every other method": verdicts[BETTER],
            "{} {are} significantly worse than at least one": verdicts[WORSE],
            "{} {are} not better than all": verdicts[""],
            "{} {have} too few seeds to test": verdicts[TOO_FEW],
        }
        text = (
            f"{start} has a margin of {100 * leads[0]:+.1f} to {100 * leads[-1]:+.1f} points over the best "
            f"other method. {_counts(parts, 'combinations of N and K')}"
        )
        yield Finding("margins", values | {"leads": leads, "verdicts": verdicts}, text)


def _over_datasets(analysis: Analysis) -> Iterator[Finding]:
    """Yield which method has the best mean rank, and which methods the tests separate from it."""
    found = analysis.over_datasets
    if found is None:
        return
    ranks = found.ranks.mean().sort_values()
    level = [str(name) for name in ranks.index if ranks[name] == ranks.iloc[0]]
    has = "has" if len(level) == 1 else "share"
    values = {"best": level, "rank": float(ranks.iloc[0]), "apart": found.apart}
    yield Finding(
        "ranks",
        values,
        f"Over {len(found.scores)} datasets, {some(level)} {has} the best mean rank: {ranks.iloc[0]:.1f} of "
        f"{len(ranks)}. Nemenyi's test finds {some(found.apart) if found.apart else 'no other method'} "
        f"significantly worse than {level[0]}. {friedman_words(found)}",
    )


def _control(analysis: Analysis) -> Iterator[Finding]:
    """Yield which methods the paired tests over datasets find better and worse than the control."""
    found = analysis.over_datasets
    if found is None or len(found.scores) < FEWEST_FOR_TESTS:
        return
    verdicts = {each.method: each.verdict for each in paired_tests(found)}
    start = f"Over {len(found.scores)} datasets, paired tests compare each method with {found.methods[0]}."
    parts = [start, _are(verdicts), limit_words(found)]
    values = {"control": found.methods[0], "verdicts": verdicts}
    yield Finding("control", values, " ".join(filter(None, parts)))


def _across(analysis: Analysis) -> Iterator[Finding]:
    """Yield where the verdicts of the datasets agree, for methods and for effects."""
    panels = analysis.by_dataset
    if not panels:
        return
    start = f"On {datasets_words(list(panels))}"
    if methods := compared_methods(analysis):
        reference, oracles = common_labels(panels)[0], oracles_of(panels)
        rivals = sorted((each for each in methods if each.name not in oracles), key=lambda each: -each.mean)
        if rivals:
            words = f"{start}, compared with {reference} at the last session: {_agreement(rivals)}"
            yield Finding("across methods", _agreed(rivals) | {"reference": reference}, words)
    for moment, when in reversed(MOMENTS.items()):
        for name, effects in compared_effects(analysis, moment).items():
            words = f"{start}, effects at {when}{f', {name}' if name else ''}: {_agreement(effects)}"
            yield Finding("across effects", _agreed(effects) | {"moment": moment, "name": name}, words)


def _agreed(compared: list[Across]) -> dict[str, Any]:
    return {"verdicts": {each.name: each.verdict for each in compared}}


def _agreement(compared: list[Across]) -> str:
    """Return "GPIL is positive on all. NLA and TLA are conclusive on some datasets only."."""
    short = {}
    for each in compared:
        whole = [word for word, there in each.verdicts.items() if len(there) == len(each.found)]
        short[each.name] = f"{whole[0]} on all" if whole else SOME if each.verdicts else each.open
    return _are(short)


def _are(verdicts: Mapping[str, str]) -> str:
    """Return "A is significantly better. B and C are inconclusive." from verdicts by name."""
    groups: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        groups.setdefault(verdict, []).append(name)
    return " ".join(
        sentence(f"{some(groups[verdict])} {are(groups[verdict])} {verdict}.")
        for verdict in sorted(
            groups, key=lambda verdict: [verdict.startswith(word) for word in ORDER], reverse=True
        )
    )


def _verdicts(analysis: Analysis) -> Iterator[Finding]:
    """Yield the verdicts on all parts of HAG-Meta at the last session, if there is one factorial of them."""
    found = [each for panel in analysis.panels for each in analysis.factorials(panel)]
    if len(found) != 1 or not {"training", *TOGGLES} >= set(found[0].factors) or len(found[0].main) < 2:
        return
    effects = analysis.comparisons.effects_of(found[0], "last")
    tests = {name: effects[name] for name in found[0].main}
    if all(each.tested for each in tests.values()):
        told = {EQUIVALENT: f"{EQUIVALENT} to no effect"}
        words = _are({name: told.get(each.verdict, each.verdict) for name, each in tests.items()})
        sentences = [each[0].upper() + each[1:] for each in re.split(r"(?<=\.) ", words)]
        values = {"title": found[0].title, "tests": tests}
        yield Finding("verdicts", values, f"Effects at the last session: {' '.join(sentences)}")


def _effects(analysis: Analysis) -> Iterator[Finding]:
    """Yield the main effects of factorials at both sessions, and the interactions at the last."""
    told = analysis.comparisons
    for factorial in (each for panel in analysis.panels for each in analysis.factorials(panel)):
        where = _place(analysis, factorial)
        first, last = (told.effects_of(factorial, moment) for moment in MOMENTS)
        names = factorial.main
        if not {"training", *TOGGLES} >= set(factorial.factors):
            names = sorted(names, key=lambda name: -abs(last[name].mean))
        for name in names:
            what = name if " minus " in name else f"the effect of {name}"
            values = {"title": factorial.title, "name": name}
            yield _change("effect", values, f"{where}{what}", {"last": last[name], "first": first[name]})
        joint = [name for name in last if " x " in name and last[name].significant]
        if joint:
            text = f"{where}Settings interact at the last session: {', '.join(joint)}."
            yield Finding("interactions", {"title": factorial.title, "names": joint}, text)


def _tuning(analysis: Analysis) -> Iterator[Finding]:
    """Yield what each method gains over its own default, the largest gain first."""
    for panel in analysis.panels:
        own = [each for each in analysis.tuned if each.panel is panel]
        found = {each.method: analysis.comparisons.tuning[each.key] for each in own}
        gains = {
            name: each for name, each in sorted(found.items(), key=lambda pair: -pair[1].mean) if each.seeds
        }
        if gains:
            told = [
                f"{name} {points(each, unit=' points')} ({each.verdict})"
                for name, each in list(gains.items())[:MOST_OF_A_KIND]
            ]
            left = len(gains) - len(told)
            others = [f"{left} other{'s' * (left > 1)} less"] * bool(left)
            text = f"{_place(analysis, panel)}Tuning gains {listed([*told, *others])}, at the last session."
            yield Finding("tuning", {"title": panel.title, "tests": gains}, text)


def _protocols(analysis: Analysis) -> Iterator[Finding]:
    tests = analysis.comparisons.protocols
    for where, label, *_ in analysis.protocol_pairs:
        found = {moment: tests[where, label, moment] for moment in MOMENTS}
        if found["last"].seeds:  # otherwise the table says so
            values = {"where": where, "configuration": label}
            yield _change("protocols", values, f"On {where}: released minus strict for {label}", found)


def _shots(analysis: Analysis) -> Iterator[Finding]:
    for where, name, n_way, few, many, _ in analysis.shots:
        gain = analysis.comparisons.shots[where, name, n_way]
        if gain.seeds:
            values = {"where": where, "configuration": name, "n_way": n_way, "few": few, "many": many}
            start = f"On {where}, {n_way}-way: K = {many} minus K = {few} for {name}"
            yield _change("shots", values, start, {"last": gain})


def _change(kind: str, values: Mapping[str, Any], what: str, found: Mapping[str, Difference]) -> Finding:
    """Return "On debian: the effect of NLA is +2.0 points [+1.0, +3.0] at the last session (equivalent)."."""
    parts = [
        f"{points(each, unit=' points')} at {MOMENTS[moment]} ({each.verdict})"
        for moment, each in found.items()
    ]
    text = f"{what} is {', and '.join(parts)}."
    return Finding(kind, {**values, **found}, sentence(text))


def _best(analysis: Analysis) -> Iterator[Finding]:
    """Yield which configuration has the highest mean, and how it compares with each of the others."""
    told = analysis.comparisons
    for panel in analysis.panels:
        best = best_of(panel)
        asked = [
            (one, other)
            for place, one, other in told.configurations
            if place == panel.title and {one, other} <= set(panel.rivals)
        ]
        if (
            best is None
            or not (panel.pooled or "method" in panel.varied())
            or len(asked) < comb(len(panel.rivals), 2)
        ):
            continue  # not all pairs were compared: too many, or the margins over N and K answer this
        means = adjusted_means(panel.by_seed("last")[panel.rivals]).sort_values(ascending=False)
        others = [str(label) for label in means.index if label != best]
        tests = {label: test for label in others if (test := told.pair(panel, best, label)) is not None}
        equals = [label for label in others if means[label] >= means[best] - 1e-10]
        who = f"{listed([best, *equals])} rank" if equals else f"{best} ranks"
        place, mean = _place(analysis, panel), estimate(panel.by_seed("last")[best]).mean
        text = (
            f"{place}{who} first at the last session, with {100 * mean:.1f} %. "
            f"{best if equals else 'It'} is {standing_words(by_verdict(tests))}."
        )
        values = {"title": panel.title, "best": [best, *equals], "mean": mean, "tests": tests}
        yield Finding("best", values, text)


def _bounds(analysis: Analysis) -> Iterator[Finding]:
    for panel in analysis.panels:
        words = oracle_words(panel, analysis.comparisons)
        for oracle in exceeded(panel, analysis.comparisons):
            values = {"title": panel.title, "oracle": oracle}
            yield Finding("bound", values, _place(analysis, panel) + words[oracle])


def _one_at_a_time(analysis: Analysis) -> Iterator[Finding]:
    """Yield how many values of settings change accuracy, and which changes it most."""
    for panel in analysis.panels:
        arms = {
            key: [label for label in labels if label not in panel.oracles]
            for key, labels in analysis.one_at_a_time(panel).items()
        }
        if len(arms) < 2:
            continue
        configs = panel.runs.drop_duplicates("label").set_index("label")
        against = analysis.comparisons.against(panel, panel.reference)
        tests = {
            f"{key} {readable(configs.loc[label, key])}": against[label]
            for key, labels in arms.items()
            for label in labels
            if label in against
        }
        counts = Counter(test.verdict for test in tests.values())
        parts = {
            "{} {are} significantly better or worse at the last session": counts[BETTER] + counts[WORSE],
            "{} {are} equivalent to the reference": counts[EQUIVALENT],
            "{} {are} inconclusive": counts[INCONCLUSIVE],
            "{} {have} too few seeds to test": counts[TOO_FEW],
        }
        text = (
            f"{_place(analysis, panel)}{len(arms)} settings were varied one at a time around the reference. "
            f"{_counts(parts, 'values')}"
        )
        changed = {name: test for name, test in tests.items() if test.significant}
        most = max(changed, key=lambda name: abs(changed[name].mean), default="")
        if most:
            text += f" The largest change is {points(changed[most], unit=' points')}, with {most}."
        values = {"title": panel.title, "settings": len(arms), "tests": tests, "most": most}
        yield Finding("one at a time", values, text)


def _counts(parts: Mapping[str, int], what: str) -> str:
    """Return "Of 9 values, 2 are equivalent and 7 are inconclusive." from counts by words."""
    said = {words: count for words, count in parts.items() if count}
    if len(said) == 1:
        ((words, count),) = said.items()
        return (
            f"{_agreeing(words, f'All {count} {what}' if count > 1 else f'The only one of {what}', count)}."
        )
    told = [_agreeing(words, str(count), count) for words, count in said.items()]
    return f"Of {sum(said.values())} {what}, {listed(told)}."


def _agreeing(words: str, subject: str, count: int) -> str:
    """Return `words` about a subject, with a verb for one or for several."""
    verbs = {"are": "is", "have": "has"}
    return words.format(subject, **{verb: one if count == 1 else verb for verb, one in verbs.items()})


def _levels(analysis: Analysis) -> Iterator[Finding]:
    """Yield the accuracies of the references, for a report that compares nothing."""
    for panel in analysis.panels:
        first, last = (estimate(panel.by_seed(moment)[panel.reference]).mean for moment in MOMENTS)
        text = (
            f"{panel.title}: {panel.reference} goes from {100 * first:.1f} % at session 0 to "
            f"{100 * last:.1f} % at the last session."
        )
        values = {"title": panel.title, "configuration": panel.reference, "first": first, "last": last}
        yield Finding("level", values, text)


def _place(analysis: Analysis, where: Panel | Factorial) -> str:
    """Return "On debian, strict, 3-way 5-shot: ", or nothing if the report has only one such place."""
    places = [*analysis.panels, *(each for panel in analysis.panels for each in analysis.factorials(panel))]
    several = sum(isinstance(each, type(where)) for each in places) > 1 or len(analysis.panels) > 1
    return f"On {where.title}: " if several else ""
