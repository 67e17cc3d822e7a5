"""State what a report is about: facts at the top of the page, warnings, and its title."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pandas as pd

from analysis.comparisons import Analysis, Comparisons
from analysis.data.results import MACRO, VERSION, Results
from analysis.data.searches import in_words
from analysis.page.page import Fact, Notice
from analysis.statistics.inference import LEVEL
from analysis.tables.over_datasets import why_no_tests, why_not
from analysis.words import count_of_seeds, datasets_words, listed, p_value

ANOTHER_FAMILY = (
    "The verdict of a comparison depends on its family. This page chooses other comparisons than the report "
    "without --by. That is another family, so the same difference can have another verdict. Differences that "
    "are effects of a design have the intervals and verdicts of the design."
)


def facts(analysis: Analysis) -> list[Fact]:
    """Return the facts at the top of the page: what was run, on which machine, and for how long."""
    results = analysis.results
    runs = results.runs
    count = runs["config_hash"].nunique()
    configurations = f"{count} configuration{'s' * (count != 1)}"
    hours = runs["seconds"].sum() / 3600
    found = [
        Fact("runs", f"{len(runs)}: {configurations}, {seeds_of(results)} each"),
        Fact("datasets", _listed(runs["dataset"])),
        Fact("protocol", _listed(runs["protocol"])),
        Fact("settings", _listed(runs["n_way"].map("{}-way ".format) + runs["k_shot"].map("{}-shot".format))),
        Fact("pooled", results.pooled),
        Fact("not the default", "; ".join(results.not_default)),
        Fact("accuracy", _metric_words(results)),
        Fact("tests", tests_words(analysis.comparisons)),
        Fact("over datasets", why_not(analysis) or why_no_tests(analysis)),
        Fact("compute time", f"{hours:.2f} hours of training and evaluation"),
        Fact("device", _listed(runs["device"])),
        Fact("torch", _listed(runs["torch"])),
        Fact("commit", _listed(_commits(runs))),
    ]
    found = [fact for fact in found if fact.value]
    named = ((launch["space"], launch["description"]) for launch in results.launches)
    spaces = [Fact("search space", ": ".join(filter(None, both))) for both in dict.fromkeys(named)]
    commands = [
        Fact("launched by", text) for text in dict.fromkeys(launch["command"] for launch in results.launches)
    ]
    searches = [Fact("chosen", in_words(search)) for search in results.searches.values()]
    overlaps = [Fact("overlap", line) for search in results.searches.values() for line in search["overlap"]]
    return [*spaces, *found, *searches, *overlaps, *commands]


def tests_words(told: Comparisons) -> str:
    """Return how many comparisons were tested, in which families, and the error rate of their verdicts."""
    count = told.tested
    if not count:
        return ""
    effects = sum(each.tested for each in (*told.effects.values(), told.design))
    kinds = []
    if count > effects:
        kinds.append(
            f"{_comparisons(count - effects)}: at most {100 * LEVEL:g} % of the verdicts of a family are "
            "expected to be false (Benjamini and Yekutieli)"
        )
    if effects:
        kinds.append(
            f"{effects} effects of designs: at most {100 * LEVEL:g} % for any false verdict of a session "
            "(single-step maximum)"
        )
    return f"{'; '.join(kinds)}. Each verdict is what its interval shows, and holds for its graph only."


def _comparisons(count: int) -> str:
    return "1 comparison" if count == 1 else f"{count:,} comparisons"


def _metric_words(results: Results) -> str:
    if results.metric == MACRO:
        return "macro accuracy: the mean over the classes seen so far, with equal weight for each class"
    return f'this page uses {results.metric} wherever it says "accuracy" (--metric)'


def notices(analysis: Analysis) -> list[Notice]:
    """Return warnings to read before the results: lost runs, doubtful assumptions and mixed versions."""
    runs, found = analysis.results.runs, lost_runs(analysis)
    mixed = [
        f"{key}: {_listed(_commits(runs) if key == 'commit' else runs[key].map(str))}"
        for key in VERSION
        if runs[key].nunique(dropna=False) > 1
    ]
    if by := analysis.results.by:
        found.insert(0, Notice(f"Another choice of comparisons: --by {' --by '.join(by)}", [ANOTHER_FAMILY]))
    if mixed:
        found.append(Notice("Runs with different commits, torch versions or devices", mixed))
    return found


def lost_runs(analysis: Analysis) -> list[Notice]:
    """Return warnings about runs that are lost or in doubt, and about differences that are not symmetric."""
    results = analysis.results
    lines_of = {
        "Failed runs": [lost.words for lost in results.failed],
        "Planned runs that are missing": [lost.words for lost in results.missing],
        "Seeds were added later": _added_seeds(results),
        "Damaged files, left out": results.damaged,
        "Runs with different results in two folders": results.conflicts,
        "Different graphs with the same dataset name": results.graphs,
        "Differences are not symmetric": _asymmetry(analysis.comparisons.asymmetry),
    }
    return [Notice(title, lines) for title, lines in lines_of.items() if lines]


def _added_seeds(results: Results) -> list[str]:
    """Return a warning if a launch repeated configurations of an earlier one with more seeds."""
    before: dict[str, set[int]] = {}
    added: set[int] = set()
    for launch in sorted(results.launches, key=lambda launch: str(launch["time"])):
        for config in () if launch.get("search") else launch["configs"]:
            known = before.setdefault(config, set())
            added |= {*launch["seeds"]} - known if known else set()
            known.update(launch["seeds"])
    if not added:
        return []
    seeds = ", ".join(map(str, sorted(added)))
    return [
        f"A later launch added {count_of_seeds(len(added))} ({seeds}) to earlier ones. The tests assume "
        "that the number of seeds was fixed in advance. If the first results led to more seeds, more "
        "verdicts can be false than stated."
    ]


def _asymmetry(p: float) -> list[str]:
    """Return a warning if the data contradict the symmetry that the tests assume, with this p."""
    if not p < LEVEL:
        return []
    return [
        f"Over seeds, differences spread further to one side of their mean than to the other ({p_value(p)}). "
        "The tests assume symmetry, so more verdicts can be false than stated: up to 13 % in simulations."
    ]


def questions_of(results: Results) -> list[str]:
    """Return the descriptions of the studies, as their users wrote them."""
    return list(dict.fromkeys(launch["description"] for launch in results.launches if launch["description"]))


def title_of(results: Results, study: str) -> str:
    """Return the study and its datasets; `study` replaces the name in the records."""
    """Return the study and its datasets; `study` replaces the name in the records."""
    datasets = list(dict.fromkeys(results.runs["dataset"]))
    return f"{study or _listed(results.runs['study']).replace('_', ' ')} on {datasets_words(datasets)}"


def seeds_of(results: Results) -> str:
    """Return "10 seeds" or "3 to 10 seeds"."""
    seeds = results.runs.groupby("config_hash")["seed"].count()
    count = count_of_seeds(int(seeds.max()))
    return count if seeds.min() == seeds.max() else f"{seeds.min()} to {count}"


def setting_of(results: Results) -> str:
    """Return the protocol, N and K, such as "strict; 3-way 5-shot on debian; 5-way 5-shot on metamath"."""
    runs = results.runs
    there: dict[str, list[str]] = {}
    for dataset, n_way, k_shot in runs[["dataset", "n_way", "k_shot"]].drop_duplicates().itertuples(False):
        there.setdefault(f"{n_way}-way {k_shot}-shot", []).append(dataset)
    if len(there) == 1:
        tasks = list(there)
    elif runs.groupby("dataset")[["n_way", "k_shot"]].nunique().max().max() > 1:
        tasks = [f"{len(there)} combinations of N and K"]
    else:
        tasks = [f"{task} on {datasets_words(datasets)}" for task, datasets in there.items()]
    return "; ".join([listed(list(dict.fromkeys(runs["protocol"]))), *tasks])


def short_titles(results: Results) -> dict[str, str]:
    """Return short titles of panels, by title: the dataset, and words that other panels do not have."""
    panels = results.panels
    words = {panel.title: panel.title.split(", ")[1:] for panel in panels}
    datasets = Counter(str(panel.runs["dataset"].iloc[0]) for panel in panels)
    common = set.intersection(*map(set, words.values()))
    found = {}
    for panel in panels:
        dataset = str(panel.runs["dataset"].iloc[0])
        own = [word for word in words[panel.title] if word not in common] if datasets[dataset] > 1 else []
        found[panel.title] = ", ".join([dataset, *own])
    return found


def _commits(runs: pd.DataFrame) -> pd.Series:
    """Return the first digits of each commit, and the "+" of a changed checkout."""
    names = runs["commit"].fillna("unknown")
    return names.str[:12] + names.str[12:].str.extract(r"(\+)$", expand=False).fillna("")


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if not pd.isna(value)))
