"""What the statistics say, in plain words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.across import across_words
from analysis.bounds import above_oracles, bound_words
from analysis.designs import Factorial, one_at_a_time, protocol_pairs, whole_factorials
from analysis.frame import Panel, Results
from analysis.labels import readable
from analysis.statistics import FEWEST_SEEDS, Difference, against, difference, estimate

MOST_OF_A_KIND = 4
TRAINING_PAIRS = ("GPIL less supervised", "supervised less nothing", "GPIL less nothing")


def findings(results: Results) -> list[str]:
    """Sentences, the most telling first; each is made from the numbers of a table."""
    panels = results.panels()
    several = len(panels) > 1
    sentences = [
        *across_words(results),
        *_some(text for panel in panels for text in _training(panel, several)),
        *_some(text for panel in panels for text in _ablation(panel, several)),
        *_some(text for panel in panels for text in _ranking(panel, several)),
        *_some(text for panel in panels for text in _bounds(panel, several)),
        *_some(_protocols(results)),
        *_some(_settings(results)),
        *_some(text for panel in panels for text in _sensitivity(panel, several)),
    ]
    if not sentences:
        sentences = [_level(panel) for panel in panels]
    if results.runs.groupby("config_hash")["seed"].count().min() < FEWEST_SEEDS:
        sentences.append(
            f"Some configurations have fewer than {FEWEST_SEEDS} seeds: no significance is claimed for them."
        )
    return sentences


def effect_words(name: str, effect: Difference, where: str) -> str:
    """«GPIL adds 22.6 points [20.5, 24.7] at session 0»."""
    points, limits = 100 * effect.mean, f"[{100 * effect.low:+.1f}, {100 * effect.high:+.1f}]"
    if effect.seeds < FEWEST_SEEDS:
        return f"{name} makes {points:+.1f} points {limits} {where}, over too few seeds to claim it"
    if effect.significant:
        verb, size = ("adds", points) if points > 0 else ("costs", -points)
        low, high = sorted((abs(100 * effect.low), abs(100 * effect.high)))
        return f"{name} {verb} {size:.1f} points [{low:.1f}, {high:.1f}] {where}"
    if effect.low > 0 or effect.high < 0:
        doubt = f"{limits}, p = {effect.corrected:.2f} after correction"
        return f"{name}'s effect {where} is not certain beside the others ({points:+.1f} {doubt})"
    return f"{name}'s effect {where} is not distinguishable from zero ({points:+.1f} {limits})"


def _some(sentences: Iterator[str]) -> list[str]:
    """The first of a kind; a paragraph is no table."""
    kind = list(sentences)
    left = len(kind) - MOST_OF_A_KIND
    return kind if left <= 1 else [*kind[:MOST_OF_A_KIND], f"{left} more of this kind are in the tables."]


def _training(panel: Panel, several: bool) -> Iterator[str]:
    """GPIL's worth and the labels' worth, told apart where there was supervised training, too."""
    found = whole_factorials(panel)
    for factorial in (each for each in found if "training" in each.factors):
        for moment, where in (("first", "at session 0"), ("last", "at the last session")):
            words = _training_words(factorial, factorial.effects(moment), where)
            yield f"{_place(factorial, several or len(found) > 1)}{words}."


def _training_words(factorial: Factorial, effects: dict[str, Difference], where: str) -> str:
    """«Of the 22.8 points that GPIL adds over nothing at session 0, 21.9 [20.1, 23.5] are the labels'»."""
    gpil, labels, both = (effects.get(pair) for pair in TRAINING_PAIRS)
    if both and labels and both.significant and labels.significant and 0 < labels.mean <= both.mean:
        new = set(factorial.runs.get("pretrain_on", ())) == {"base"}  # pre-training did not have them
        whose = (
            "are the labels' (supervised training adds them, too)" if new else "supervised training adds, too"
        )
        told = [f"Of the {_points(both)} that GPIL adds over nothing {where}, {_points(labels)} {whose}"]
    else:
        over_nothing = {"Supervised training": labels, "GPIL": both}
        told = [effect_words(name, e, f"over nothing {where}") for name, e in over_nothing.items() if e]
    if gpil:
        told.append(effect_words("GPIL", gpil, f"over supervised training on the same labels {where}"))
    return "; ".join(told)


def _points(effect: Difference) -> str:
    return f"{100 * effect.mean:.1f} points [{100 * effect.low:.1f}, {100 * effect.high:.1f}]"


def _ablation(panel: Panel, several: bool) -> Iterator[str]:
    found = whole_factorials(panel)
    for factorial in found:
        place = _place(factorial, several or len(found) > 1)
        first, last = factorial.effects("first"), factorial.effects("last")
        for name in (name for name in last if " x " not in name and " less " not in name):
            words = [effect_words(name, last[name], "at the last session")]
            words.append(effect_words(name, first[name], "at session 0").replace(f"{name} ", "it ", 1))
            words[1] = words[1].replace(f"{name}'s effect", "its effect")
            yield f"{place}{words[0]}; {words[1]}."
        joint = [name for name in last if " x " in name and last[name].significant]
        if joint:
            yield f"{place}Parts change each other's effect at the last session: {', '.join(joint)}."


def _ranking(panel: Panel, several: bool) -> Iterator[str]:
    if "method" not in panel.varied():
        return
    last = panel.by_seed("last")
    rivals = [label for label in panel.labels if label not in panel.oracles]
    if len(rivals) < 2:
        return
    best = max(rivals, key=lambda label: last[label].mean())
    place = _place(panel, several)
    level = f"{100 * last[best].mean():.1f} %"
    if best == panel.reference:
        others = against(last[rivals], best)
        close = [label for label, test in others.items() if not test.significant]
        ahead_of = "every other system" if len(others) > 1 else next(iter(others))
        tail = f"; not distinguishable from it: {', '.join(close)}" if close else f", ahead of {ahead_of}"
        yield f"{place}{best} is best at the last session, {level}{tail}."
        return
    test = against(last[rivals], panel.reference)[best]
    lead = f"{100 * test.mean:+.1f} points [{100 * test.low:+.1f}, {100 * test.high:+.1f}]"
    sure = "" if test.significant else ", a difference that the seeds do not make certain"
    yield f"{place}{best} is best at the last session, {level}: {lead} beside {panel.reference}{sure}."


def _bounds(panel: Panel, several: bool) -> Iterator[str]:
    for oracle, above in above_oracles(panel).items():
        if above:
            yield _place(panel, several) + bound_words(oracle, above)


def _protocols(results: Results) -> Iterator[str]:
    for where, label, strict, released in protocol_pairs(results):
        leaks = [difference(released[moment] - strict[moment]) for moment in ("first", "last")]
        parts = [
            f"{100 * leak.mean:+.1f} points [{100 * leak.low:+.1f}, {100 * leak.high:+.1f}] at {moment}"
            for leak, moment in zip(leaks, ("session 0", "the last session"), strict=True)
        ]
        yield f"{label} on {where}: the released protocol reads {' and '.join(parts)} beside the strict one."


def _settings(results: Results) -> Iterator[str]:
    keys = ["dataset", "protocol", "label", "n_way"]
    for (dataset, protocol, label, n_way), runs in results.runs.groupby(keys, sort=False):
        shots = sorted(runs["k_shot"].unique())
        if len(shots) < 2:
            continue
        few, many = (runs[runs["k_shot"] == k].set_index("seed")["last"] for k in (shots[0], shots[-1]))
        gain = difference(many - few)
        if not np.isnan(gain.mean):
            yield (
                f"{label} on {dataset}, {protocol}, {n_way}-way: {shots[-1]} labels a class instead of "
                f"{shots[0]} make {100 * gain.mean:+.1f} points "
                f"[{100 * gain.low:+.1f}, {100 * gain.high:+.1f}] at the last session."
            )


def _sensitivity(panel: Panel, several: bool) -> Iterator[str]:
    arms = {
        key: [label for label in labels if label not in panel.oracles]
        for key, labels in one_at_a_time(panel).items()
    }
    if len(arms) < 2:
        return
    last = panel.by_seed("last").mean()
    configs = panel.runs.drop_duplicates("label").set_index("label")
    spans = {
        key: max(last[[*labels, panel.reference]]) - min(last[[*labels, panel.reference]])
        for key, labels in arms.items()
    }
    widest = max(spans, key=lambda key: spans[key])
    labels = sorted([*arms[widest], panel.reference], key=lambda label: last[label])
    low, high = labels[0], labels[-1]
    values = [readable(configs.loc[label, widest]) for label in (low, high)]
    yield (
        f"{_place(panel, several)}Of {len(arms)} settings varied one at a time, {widest} moves the last "
        f"session most: {100 * last[low]:.1f} % at {values[0]}, {100 * last[high]:.1f} % at {values[1]}."
    )


def _level(panel: Panel) -> str:
    ends = [estimate(panel.by_seed(moment)[panel.reference]) for moment in ("first", "last")]
    first, last = (f"{100 * end.mean:.1f}" for end in ends)
    return f"{panel.title}: {panel.reference} goes from {first} % at session 0 to {last} % at the last."


def _place(where: Panel | Factorial, several: bool) -> str:
    return f"On {where.title}: " if several else ""
