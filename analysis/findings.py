"""Write the findings of a report: sentences that state what its tables show."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from analysis.across import across_words
from analysis.against_control import control_words
from analysis.bounds import exceeded, oracle_words
from analysis.claims import MOMENTS, Claims, best_of, claims
from analysis.designs import TRAINING_PAIRS, Factorial, factorials, one_at_a_time, protocol_pairs, shots
from analysis.frame import Panel, Results
from analysis.inference import AHEAD, BEHIND, EQUIVALENT, TOO_FEW, UNDECIDED, Difference
from analysis.labels import readable
from analysis.margins import Margins, margins
from analysis.over_datasets import over_datasets_words
from analysis.statistics import adjusted_means, estimate
from analysis.words import a_look, effect, effects, listed, points, some

MOST_OF_A_KIND = 4
VERDICTS = {  # how the leading configuration compares with the others, by verdict
    AHEAD: "{leader} is ahead of {others}.",
    EQUIVALENT: "{leader} is equivalent to {others}.",
    UNDECIDED: "{leader} is not separated from {others} (undecided).",
    BEHIND: "{leader} is behind {others} on the seeds they share.",
    TOO_FEW: "{leader} was not tested against {others}: too few seeds.",
}
NO_COMMON_SEED = "{leader} shares no seed with {others}."


def findings(results: Results) -> list[str]:
    """Return the findings of `results`, the most important first.

    Each is one or more sentences, made from the numbers of a table.
    """
    panels, told = results.panels(), claims(results)
    several = len(panels) > 1
    sentences = [
        *_looks(results),
        *(_margins(found) for found in margins(results)),
        *over_datasets_words(results),
        *control_words(results),
        *across_words(results),
        *_some(text for panel in panels for text in _training(panel, told, several)),
        *_some(text for panel in panels for text in _ablation(panel, told, several)),
        *_some(text for panel in panels for text in _ranking(panel, told, several)),
        *_some(text for panel in panels for text in _bounds(panel, told, several)),
        *_some(_protocols(results, told)),
        *_some(_settings(results, told)),
        *_some(text for panel in panels for text in _sensitivity(panel, told, several)),
    ]
    # A report needs at least one finding in addition to the warning about few seeds.
    return sentences if len(sentences) > len(_looks(results)) else [*sentences, *map(_level, panels)]


def _looks(results: Results) -> list[str]:
    """Return a warning if no part of the report has enough seeds to test anything."""
    panels = results.panels()
    if not all(panel.badge for panel in panels):
        return []
    return [f"{a_look(max(panel.enough for panel in panels))}."]


def _some(sentences: Iterator[str]) -> list[str]:
    """Return the first few findings of a kind, and how many more the tables have."""
    kind = list(sentences)
    left = len(kind) - MOST_OF_A_KIND
    return (
        kind if left <= 1 else [*kind[:MOST_OF_A_KIND], f"The tables have {left} more findings of this kind."]
    )


def _margins(found: Margins) -> str:
    """Return for how many combinations of N and K the method leads, and by how much."""
    start = f"On {found.where}, {found.label}"
    cells = [cell for cell in found.cells if cell.lead.seeds]
    if not cells:
        return f"{start} shares no seed with the best other method for any N and K."
    leads = [100 * cell.lead.mean for cell in cells]
    margin = f"{min(leads):+.1f} to {max(leads):+.1f} points over the best other method"
    tested = [cell for cell in found.cells if cell.verdict != TOO_FEW]
    left = len(found.cells) - len(tested)
    if not tested:
        return (
            f"{start} has a margin of {margin} in {len(cells)} combinations of N and K. "
            "There are too few seeds to test the margins."
        )
    ahead, behind = ([cell.verdict for cell in tested].count(verdict) for verdict in (AHEAD, BEHIND))
    where = f"all {ahead}" if ahead == len(tested) else f"{ahead} of {len(tested)}"
    combinations = "tested combinations" if left else "combinations"
    words = [f"{start} is ahead of every other method in {where} {combinations} of N and K."]
    if ahead < len(tested):
        words.append(f"It is behind at least one method in {behind} of them.")
    if left:
        words.append(f"{_count(left, 'more combination')} too few seeds to test.")
    words.append(f"Its margin is {margin}.")
    return " ".join(words)


def _training(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    """Yield what GPIL adds, and what supervised training on the same labels adds, for each session."""
    found = factorials(panel)
    for factorial in (each for each in found if "training" in each.factors):
        for moment, when in MOMENTS.items():
            words = _training_words(factorial, told.effects_of(factorial, moment), when)
            yield f"{_place(factorial, several or len(found) > 1)}{words}"


def _training_words(factorial: Factorial, told: dict[str, Difference], when: str) -> str:
    """Return "At session 0: GPIL adds 22.8 points over no training. Supervised training adds ..."."""
    gpil, labels, both = (told.get(pair) for pair in TRAINING_PAIRS)
    compared = {
        ("GPIL", "no training"): both,
        ("supervised training", "no training"): labels,
        ("GPIL", "supervised training on the same labels"): gpil,
    }
    words = {effect(name, each, over=over): each for (name, over), each in compared.items() if each}
    # If pre-training saw the labels, the gain cannot be attributed to them.
    new_labels = set(factorial.runs.get("pretrain_on", ())) == {"base"}
    ahead = [each for each in (labels, both) if each and each.verdict == AHEAD]
    due = ""
    if new_labels and len(ahead) == 2 and ahead[0].mean <= ahead[1].mean:
        due = " The gain of supervised training is due to the labels."
    return f"At {when}: {effects(words)}{due}"


def _ablation(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    """Yield the effect of each part at both sessions, and the interactions at the last."""
    found = factorials(panel)
    for factorial in found:
        place = _place(factorial, several or len(found) > 1)
        first, last = (told.effects_of(factorial, moment) for moment in MOMENTS)
        for name in (name for name in last if " x " not in name and name not in TRAINING_PAIRS):
            words = {
                effect(name, last[name], MOMENTS["last"]): last[name],
                effect(name, first[name], MOMENTS["first"]): first[name],
            }
            yield place + effects(words)
        joint = [name for name in last if " x " in name and last[name].significant]
        if joint:
            yield f"{place}Parts interact at the last session: {', '.join(joint)}."


def _ranking(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    """Yield which configuration has the highest mean, and how it compares with each of the others."""
    best = best_of(panel)
    if best is None or "method" not in panel.varied():
        return
    means = adjusted_means(panel.by_seed("last")[panel.rivals]).sort_values(ascending=False)
    tests = {str(label): told.pair(panel, best, str(label)) for label in means.index if label != best}
    found = {label: test for label, test in tests.items() if test is not None}
    asked = [pair for pair in told.pairs.of(panel.title) if set(panel.rivals) >= set(pair)]
    if len(asked) < comb(len(panel.rivals), 2):
        return  # not all pairs were compared: too many, or the margins over N and K answer this
    place, level = _place(panel, several), f"{100 * means[best]:.1f} %"
    if all(test.verdict == AHEAD for test in found.values()):
        others = "all others" if len(found) > 1 else next(iter(found))
        yield f"{place}{best} is ahead of {others} at the last session, with {level}."
        return
    groups = {  # in each group the highest mean comes first
        words: [label for label, test in found.items() if test.verdict == verdict and test.seeds]
        for verdict, words in VERDICTS.items()
    }
    groups[NO_COMMON_SEED] = [label for label, test in found.items() if not test.seeds]
    equals = [str(label) for label in means.index if means[label] >= means[best] - 1e-10 and label != best]
    who = f"{listed([best, *equals])} have" if equals else f"{best} has"
    leader = best if equals else "It"
    parts = [words.format(leader=leader, others=some(labels)) for words, labels in groups.items() if labels]
    yield f"{place}{who} the highest mean at the last session, {level}. {' '.join(parts)}"


def _bounds(panel: Panel, told: Claims, several: bool) -> Iterator[str]:
    words = oracle_words(panel, told)
    yield from (_place(panel, several) + words[oracle] for oracle in exceeded(panel, told))


def _protocols(results: Results, told: Claims) -> Iterator[str]:
    for where, label, strict, released in protocol_pairs(results):
        if not strict.index.intersection(released.index).size:
            continue  # the table reports this
        leaks = {when: told.protocols[where, label, moment] for moment, when in MOMENTS.items()}
        parts = [f"{points(leak, unit=' points')} at {when} ({leak.verdict})" for when, leak in leaks.items()]
        yield f"{label} on {where}: released minus strict is {parts[0]}. It is {parts[1]}."


def _settings(results: Results, told: Claims) -> Iterator[str]:
    for where, name, n_way, few, many, _ in shots(results):
        gain = told.shots[where, name, n_way]
        if gain.seeds:
            words = effect(f"K = {many} instead of {few}", gain, MOMENTS["last"])
            yield f"{name} on {where}, {n_way}-way: {words}"


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
    start = f"{_place(panel, several)}{len(arms)} settings were varied one at a time around the reference."
    known = {name: test for name, test in tests.items() if test.tested}
    if not known:
        seen = {name: test for name, test in tests.items() if test.seeds}
        if seen:
            yield f"{start} There are too few seeds to test them. {_most(seen)}"
        return
    left = {key for key, _ in tests} - {key for key, _ in known}
    untested = f" {_count(len(left), 'setting')} too few seeds to test." if left else ""
    changed = {name: test for name, test in known.items() if test.significant}
    if not changed:
        alike = sum(test.verdict == EQUIVALENT for test in known.values())
        yield (
            f"{start} No setting is found to change accuracy at the last session. "
            f"Of {len(known)} tested values, {alike} are equivalent to the reference "
            f"and {len(known) - alike} are undecided.{untested}"
        )
        return
    count = len({key for key, _ in changed})
    verb = "changes" if count == 1 else "change"
    yield f"{start} Of these, {count} {verb} accuracy at the last session. {_most(changed)}{untested}"


def _count(number: int, what: str) -> str:
    return f"1 {what} has" if number == 1 else f"{number} {what}s have"


def _most(tests: dict[tuple[str, str], Difference]) -> str:
    (key, value), most = max(tests.items(), key=lambda item: abs(item[1].mean))
    return f"The largest change is {points(most, unit=' points')}, with {key} {value}."


def _level(panel: Panel) -> str:
    ends = [estimate(panel.by_seed(moment)[panel.reference]) for moment in MOMENTS]
    first, last = (f"{100 * end.mean:.1f}" for end in ends)
    return (
        f"{panel.title}: {panel.reference} goes from {first} % at session 0 to {last} % at the last session."
    )


def _place(where: Panel | Factorial, several: bool) -> str:
    return f"On {where.title}: " if several else ""
