"""What the statistics say, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from analysis.across import across_words
from analysis.bounds import exceeded, oracle_words
from analysis.claims import MOMENTS, Claims, best_of, claims
from analysis.designs import Factorial, factorials, one_at_a_time, protocol_pairs, shots
from analysis.frame import Panel, Results
from analysis.inference import AHEAD, BEHIND, EQUIVALENT, TOO_FEW, UNDECIDED, Difference
from analysis.labels import readable
from analysis.margins import Margins, margins
from analysis.over_datasets import over_datasets_words
from analysis.statistics import adjusted_means, estimate
from analysis.words import a_look, effect, listed, points, size, some

MOST_OF_A_KIND = 4
VERDICTS = {
    EQUIVALENT: "equivalent to",
    UNDECIDED: "undecided against",
    BEHIND: "behind, on the seeds that both have,",
    TOO_FEW: "not tested, for too few seeds, against",
}
TRAINING_PAIRS = ("GPIL less supervised", "supervised less nothing", "GPIL less nothing")


def findings(results: Results) -> list[str]:
    """Sentences, the most telling first; each is made from the numbers of a table."""
    panels, told = results.panels(), claims(results)
    several = len(panels) > 1
    sentences = [
        *_looks(results),
        *(_margins(found) for found in margins(results)),
        *across_words(results),
        *over_datasets_words(results),
        *_some(text for panel in panels for text in _training(panel, told, several)),
        *_some(text for panel in panels for text in _ablation(panel, told, several)),
        *_some(text for panel in panels for text in _ranking(panel, told, several)),
        *_some(text for panel in panels for text in _bounds(panel, told, several)),
        *_some(_protocols(results, told)),
        *_some(_settings(results, told)),
        *_some(text for panel in panels for text in _sensitivity(panel, told, several)),
    ]
    # The badge alone says nothing of the results.
    return sentences if len(sentences) > len(_looks(results)) else [*sentences, *map(_level, panels)]


def _looks(results: Results) -> list[str]:
    """What is to be read first where no part of the report has enough seeds to decide anything."""
    panels = results.panels()
    if not all(panel.badge for panel in panels):
        return []
    return [f"{a_look(max(panel.enough for panel in panels))}."]


def _some(sentences: Iterator[str]) -> list[str]:
    """The first of a kind; a paragraph is no table."""
    kind = list(sentences)
    left = len(kind) - MOST_OF_A_KIND
    return kind if left <= 1 else [*kind[:MOST_OF_A_KIND], f"{left} more of this kind are in the tables."]


def _margins(found: Margins) -> str:
    """Who leads for which N and K."""
    cells = [cell for cell in found.cells if cell.lead.seeds]
    if not cells:
        return f"On {found.where}, {found.label} shares no seed with the best other in any cell of N and K."
    leads = [100 * cell.lead.mean for cell in cells]
    range_words = f"{min(leads):+.1f} to {max(leads):+.1f} points from the best other method"
    tested = [cell for cell in found.cells if cell.verdict != TOO_FEW]
    left = len(found.cells) - len(tested)
    if not tested:
        return (
            f"On {found.where}, {found.label} is {range_words} in {len(cells)} cells of N and K, not tested."
        )
    ahead, behind = ([cell.verdict for cell in tested].count(verdict) for verdict in (AHEAD, BEHIND))
    where = f"all {ahead}" if ahead == len(tested) else f"{ahead} of {len(tested)}"
    words = [f"ahead of every other method in {where}{' tested' if left else ''} cells of N and K"]
    if ahead < len(tested):
        words.append(f"behind one or more in {behind}")
    if left:
        words.append(f"with {left} more of too few seeds")
    return f"On {found.where}, {found.label} is {', '.join(words)}; it is {range_words}."


def _training(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    """GPIL's worth and the labels' worth, told apart where there was supervised training, too."""
    found = factorials(panel)
    for factorial in (each for each in found if "training" in each.factors):
        for moment, when in MOMENTS.items():
            words = _training_words(factorial, told.effects_of(factorial, moment), f"at {when}")
            yield f"{_place(factorial, several or len(found) > 1)}{words}."


def _training_words(factorial: Factorial, effects: dict[str, Difference], where: str) -> str:
    """«Of the 22.8 points that GPIL adds over nothing at session 0, 21.9 [20.1, 23.5] are the labels'»."""
    gpil, labels, both = (effects.get(pair) for pair in TRAINING_PAIRS)
    if both and labels and both.verdict == labels.verdict == AHEAD and labels.mean <= both.mean:
        new = set(factorial.runs.get("pretrain_on", ())) == {"base"}  # pre-training did not have them
        whose = (
            "are the labels' (supervised training adds them, too)" if new else "supervised training adds, too"
        )
        words = [f"Of the {size(both)} that GPIL adds over nothing {where}, {size(labels)} {whose}"]
    else:
        over_nothing = {"Supervised training": labels, "GPIL": both}
        words = [effect(name, e, f"over nothing {where}") for name, e in over_nothing.items() if e]
    if gpil:
        words.append(effect("GPIL", gpil, f"over supervised training on the same labels {where}"))
    return "; ".join(words)


def _ablation(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    found = factorials(panel)
    for factorial in found:
        place = _place(factorial, several or len(found) > 1)
        first, last = (told.effects_of(factorial, moment) for moment in MOMENTS)
        for name in (name for name in last if " x " not in name and " less " not in name):
            words = [effect(name, last[name], "at the last session")]
            words.append(effect("it", first[name], "at session 0"))
            yield f"{place}{words[0]}; {words[1]}."
        joint = [name for name in last if " x " in name and last[name].significant]
        if joint:
            yield f"{place}Parts change each other's effect at the last session: {', '.join(joint)}."


def _ranking(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    """Who has the highest mean, and compared with whom that is more than chance."""
    best = best_of(panel)
    if best is None or "method" not in panel.varied():
        return
    means = adjusted_means(panel.by_seed("last")[panel.rivals]).sort_values(ascending=False)
    tests = {str(label): told.pair(panel, best, str(label)) for label in means.index if label != best}
    found = {label: test for label, test in tests.items() if test is not None}
    asked = [pair for pair in told.pairs.of(panel.title) if set(panel.rivals) >= set(pair)]
    if len(asked) < comb(len(panel.rivals), 2):
        return  # not all pairs were asked: too many, or a map of margins tells who leads
    place, level = _place(panel, several), f"{100 * means[best]:.1f} %"
    ahead = [label for label, test in found.items() if test.verdict == AHEAD]
    if len(ahead) == len(found):
        others = "every other system" if len(ahead) > 1 else ahead[0]
        yield f"{place}{best} is ahead of {others} at the last session, {level}."
        return
    groups = {"ahead of": ahead}  # each highest first
    for verdict, words in VERDICTS.items():
        groups[words] = [k for k, test in found.items() if test.verdict == verdict and test.seeds]
    groups["without a common seed with"] = [k for k, test in found.items() if not test.seeds]
    parts = [f"{words} {some(labels)}" for words, labels in groups.items() if labels]
    level_with = [
        str(label) for label in means.index if means[label] >= means[best] - 1e-10 and label != best
    ]
    who = f"{best} has" if not level_with else f"{listed([best, *level_with])} have"
    yield f"{place}{who} the highest mean at the last session, {level}: {'; '.join(parts)}."


def _bounds(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    words = oracle_words(panel, told)
    yield from (_place(panel, several) + words[oracle] for oracle in exceeded(panel, told))


def _protocols(results: Results, told: Claims) -> Iterator[str]:
    for where, label, strict, released in protocol_pairs(results):
        if not strict.index.intersection(released.index).size:
            continue  # the table says so
        leaks = {when: told.protocols[where, label, moment] for moment, when in MOMENTS.items()}
        parts = [f"{points(leak)} points at {when} ({leak.verdict})" for when, leak in leaks.items()]
        yield f"{label} on {where}: released less strict is {' and '.join(parts)}."


def _settings(results: Results, told: Claims) -> Iterator[str]:
    for where, name, n_way, few, many, _ in shots(results):
        gain = told.shots[where, name, n_way]
        if gain.seeds:
            words = effect(f"K = {many} instead of {few}", gain, "at the last session")
            yield f"{name} on {where}, {n_way}-way: {words}."


def _sensitivity(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    arms = {
        key: [label for label in labels if label not in panel.oracles]
        for key, labels in one_at_a_time(panel).items()
    }
    if len(arms) < 2:
        return
    configs = panel.runs.drop_duplicates("label").set_index("label")
    tests = {
        (key, readable(configs.loc[label, key])): test
        for key, labels in arms.items()
        for label in labels
        if (test := told.pair(panel, label, panel.reference)) is not None
    }
    start = f"{_place(panel, several)}Of {len(arms)} settings varied one at a time around the reference"
    known = {name: test for name, test in tests.items() if test.tested}
    if not known:
        seen = {name: test for name, test in tests.items() if test.seeds}
        if seen:
            yield f"{start}, not tested, {_most(seen)}."
        return
    left = {key for key, _ in tests} - {key for key, _ in known}
    rest = f"; {len(left)} have too few seeds to test" if left else ""
    changed = {name: test for name, test in known.items() if test.significant}
    if not changed:
        alike = sum(test.verdict == EQUIVALENT for test in known.values())
        values = f"of {len(known)} values {alike} are equivalent to it and {len(known) - alike} undecided"
        yield f"{start}, none is found to change the last session: {values}{rest}."
        return
    count = len({key for key, _ in changed})
    verb = "changes" if count == 1 else "change"
    yield f"{start}, {count} {verb} the last session; {_most(changed)}{rest}."


def _most(tests: dict[tuple[str, str], Difference]) -> str:
    (key, value), most = max(tests.items(), key=lambda item: abs(item[1].mean))
    return f"the largest change is {points(most)} points, with {key} {value}"


def _level(panel: Panel) -> str:
    ends = [estimate(panel.by_seed(moment)[panel.reference]) for moment in MOMENTS]
    first, last = (f"{100 * end.mean:.1f}" for end in ends)
    return f"{panel.title}: {panel.reference} goes from {first} % at session 0 to {last} % at the last."


def _place(where: Panel | Factorial, several: bool) -> str:
    return f"On {where.title}: " if several else ""
