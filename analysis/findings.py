"""What the statistics say, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from analysis.across import across_words
from analysis.bounds import exceeded, oracle_words
from analysis.claims import MOMENTS, Claims, claims, highest
from analysis.designs import Factorial, factorials, one_at_a_time, protocol_pairs, shots
from analysis.frame import Panel, Results
from analysis.inference import AHEAD, BEHIND, EQUIVALENT, TOO_FEW, UNDECIDED, Difference
from analysis.labels import readable
from analysis.margins import Margins, margins
from analysis.statistics import estimate
from analysis.words import effect, points, size, some

MOST_OF_A_KIND = 4
TRAINING_PAIRS = ("GPIL less supervised", "supervised less nothing", "GPIL less nothing")


def findings(results: Results) -> list[str]:
    """Sentences, the most telling first; each is made from the numbers of a table."""
    panels, told = results.panels(), claims(results)
    several = len(panels) > 1
    sentences = [
        *(_margins(found) for found in margins(results)),
        *across_words(results),
        *_some(text for panel in panels for text in _training(panel, told, several)),
        *_some(text for panel in panels for text in _ablation(panel, told, several)),
        *_some(text for panel in panels for text in _ranking(panel, told, several)),
        *_some(text for panel in panels for text in _bounds(panel, told, several)),
        *_some(_protocols(results, told)),
        *_some(_settings(results, told)),
        *_some(text for panel in panels for text in _sensitivity(panel, told, several)),
    ]
    return sentences or [_level(panel) for panel in panels]


def _some(sentences: Iterator[str]) -> list[str]:
    """The first of a kind; a paragraph is no table."""
    kind = list(sentences)
    left = len(kind) - MOST_OF_A_KIND
    return kind if left <= 1 else [*kind[:MOST_OF_A_KIND], f"{left} more of this kind are in the tables."]


def _margins(found: Margins) -> str:
    """Who leads for which N and K."""
    cells = range(len(found.cells))
    leads = [100 * found.lead(index).mean for index in cells]
    verdicts = [found.verdict(index) for index in cells]
    ahead, behind = (verdicts.count(verdict) for verdict in (AHEAD, BEHIND))
    where = f"all {ahead}" if ahead == len(cells) else f"{ahead} of {len(cells)}"
    less = (
        ""
        if ahead == len(cells)
        else f", and behind {f'one in {behind}' if behind else 'none in the others'}"
    )
    return (
        f"On {found.where}, {found.label} is ahead of every other method in {where} cells of N and K{less}; "
        f"beside the best other {min(leads):+.1f} to {max(leads):+.1f} points."
    )


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
            words.append(effect(name, first[name], "at session 0").replace(f"{name} ", "it ", 1))
            words[1] = words[1].replace(f"{name}'s effect", "its effect")
            yield f"{place}{words[0]}; {words[1]}."
        joint = [name for name in last if " x " in name and last[name].significant]
        if joint:
            yield f"{place}Parts change each other's effect at the last session: {', '.join(joint)}."


def _ranking(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    """Who has the highest mean, and beside whom that is more than chance."""
    best = highest(panel)
    if best is None or "method" not in panel.varied():
        return
    ends = panel.by_seed("last").mean().sort_values(ascending=False)
    tests = {label: told.pair(panel, best, label) for label in ends.index if label not in panel.oracles}
    verdicts = {label: test.verdict for label, test in tests.items() if test is not None}
    asked = [pair for pair in told.pairs.of(panel.title) if tests.keys() >= set(pair)]
    if len(asked) < comb(len(tests), 2):
        return  # not all pairs were asked: too many, or a map of margins tells who leads
    level = f"{100 * ends[best]:.1f} %"
    place = _place(panel, several)
    ahead = [label for label, verdict in verdicts.items() if verdict == AHEAD]
    if len(ahead) == len(verdicts):
        others = "every other system" if len(ahead) > 1 else ahead[0]
        yield f"{place}{best} is ahead of {others} at the last session, {level}."
        return
    groups = {"ahead of": ahead}  # each highest first
    for verdict, words in ((EQUIVALENT, "equivalent to"), (UNDECIDED, "undecided beside")):
        groups[words] = [label for label, found in verdicts.items() if found == verdict]
    groups["over too few seeds to compare with"] = [k for k, found in verdicts.items() if found == TOO_FEW]
    parts = [f"{words} {some(labels)}" for words, labels in groups.items() if labels]
    yield f"{place}{best} has the highest mean at the last session, {level}: {'; '.join(parts)}."


def _bounds(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    words = oracle_words(panel, told)
    yield from (_place(panel, several) + words[oracle] for oracle in exceeded(panel, told))


def _protocols(results: Results, told: Claims) -> Iterator[str]:
    for where, label, _, _ in protocol_pairs(results):
        leaks = {when: told.protocols[where, label, moment] for moment, when in MOMENTS.items()}
        parts = [f"{points(leak)} points at {when}" for when, leak in leaks.items()]
        yield f"{label} on {where}: the released protocol reads {' and '.join(parts)} beside the strict one."


def _settings(results: Results, told: Claims) -> Iterator[str]:
    for where, name, n_way, few, many, _ in shots(results):
        gain = told.shots[where, name, n_way]
        if gain.seeds:
            words = effect(f"{many} labels a class instead of {few}", gain, "at the last session")
            yield f"{name} on {where}, {n_way}-way: {words}."


def _sensitivity(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    arms = {
        key: [label for label in labels if label not in panel.oracles]
        for key, labels in one_at_a_time(panel).items()
    }
    if len(arms) < 2:
        return
    configs = panel.runs.drop_duplicates("label").set_index("label")
    tests = told.beside(panel, panel.reference)
    changed = {
        (key, readable(configs.loc[label, key])): tests[label]
        for key, labels in arms.items()
        for label in labels
        if tests[label].significant
    }
    start = f"{_place(panel, several)}Of {len(arms)} settings varied one at a time around the reference"
    if not changed:
        yield f"{start}, none changes the last session by more than chance."
        return
    (key, value), most = max(changed.items(), key=lambda item: abs(item[1].mean))
    count = len({key for key, _ in changed})
    yield f"{start}, {count} change the last session; most {key} {value}: {points(most)} points."


def _level(panel: Panel) -> str:
    ends = [estimate(panel.by_seed(moment)[panel.reference]) for moment in MOMENTS]
    first, last = (f"{100 * end.mean:.1f}" for end in ends)
    return f"{panel.title}: {panel.reference} goes from {first} % at session 0 to {last} % at the last."


def _place(where: Panel | Factorial, several: bool) -> str:
    return f"On {where.title}: " if several else ""
