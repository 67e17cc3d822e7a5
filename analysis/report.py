"""Write a report from folders of records: tables, figures and one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pandas as pd

from analysis import explorer, figures, table
from analysis.across import across_tables
from analysis.against_control import control_table, why_no_tests
from analysis.claims import claims
from analysis.drawing import Drawing
from analysis.findings import findings
from analysis.followers import follower_tables
from analysis.frame import MACRO, VERSION, Results, read
from analysis.inference import ALIKE, DIFFERENT, LEVEL, MARGIN
from analysis.margins import margin_tables
from analysis.over_datasets import rating_table, why_not
from analysis.page import Fact, Notice, Picture, render
from analysis.published import published_tables
from analysis.ranks import rank_tables
from analysis.searches import in_words
from analysis.tables import make_tables
from analysis.words import count_of_seeds, datasets_words, listed, p_value
from hagmeta.common.command import as_typed
from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.common.files.outputs import check_output_folder

FRAME = "frame.parquet"
TABLES_AND_FIGURES = ("tables/*.csv", "tables/*.md", "tables/*.tex", "figures/*.svg", "figures/*.p[dn][fg]")
Item = TypeVar("Item", table.Table, Drawing)


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    published: bool = False,
    metric: str | None = None,
    margin: float = MARGIN,
    where: Mapping[str, Sequence[str]] | None = None,
    by: str | None = None,
    baseline: str | None = None,
    command: str | None = None,
    explore: bool = False,
    force: bool = False,
) -> Path:
    """Write tables, figures, the tidy data and `index.html` to `out`, and return the path of the page.

    Args:
        folders: studies, or folders of studies.
        out: the folder of the report.
        published: fail if the paper has no numbers for these datasets and settings.
        metric: the score that headlines, tests and figures use; macro accuracy by default.
        margin: differences below it count as equivalent, as a share (0.01 is one point).
        where: use only the runs whose settings have one of these values.
        by: compare the values of this setting, and separate all other settings.
        baseline: the method or configuration that all others are compared with.
        command: the command to show on the page.
        explore: also write the page to explore, `explorer.html`, and link to it.
        force: replace files in `out` that no report wrote.

    Raises:
        UserError: the folders have no finished run, an option does not fit, or `out` is not writable.
    """
    results = replace(read(folders, metric), margin=margin)
    command = command or f"{as_typed('hagmeta-report')} {' '.join(map(str, folders))}"
    if where:
        results = results.where(where)
    if by:
        results = results.by(by)
    if baseline:
        results = results.against(baseline)
    return write_results(results, out, command=command, explore=explore, published=published, force=force)


def write_results(
    results: Results,
    out: Path,
    *,
    command: str,
    explore: bool = False,
    published: bool = False,
    study: str = "",
    force: bool = False,
) -> Path:
    """Write the report of `results` to `out`, and return the path of the page.

    Args:
        results: The runs, with the margin of the report.
        out: The folder of the report.
        command: The command to show on the page.
        explore: Also write the page to explore.
        published: Fail if the paper has no numbers for these datasets and settings.
        study: The name of the study in the title; by default that of the records.
        force: Replace files in `out` that no report wrote.

    Raises:
        UserError: `published` does not fit, or `out` is not writable.
    """
    check_report_folder("the report", out, force=force)
    title = _title(results, study)
    printed = list(published_tables(results))
    if published and not printed:
        names = ", ".join(sorted(set(results.runs["dataset"])))
        raise UserError(
            f"--published: the paper has no numbers for {names} in these settings. "
            "Leave the option out, or report on a dataset of the paper."
        )
    later = follower_tables(results)
    own = (across_tables, _rated, make_tables, margin_tables, rank_tables)
    tables = list(named_apart([*(each for make in own for each in make(results)), *printed, *later]))
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_frame(results, out / FRAME)  # first: the folder of a stopped report is recognised by it
        written = [path for each in tables for path in table.save(each, out / "tables")]
        pictures = [save_drawing(drawing, out) for drawing in named_apart(figures.draw_all(results))]
        remove_others(out, {*written, *(path for picture in pictures for path in picture.files)})
        _write_explorer(results, out / explorer.NAME, title, command, explore)
        page = render(
            title=title,
            setting=_setting(results),
            seeds=_seeds(results),
            shorter=short_titles(results),
            facts=facts(results),
            findings=findings(results),
            notices=notices(results),
            tables=tables,
            pictures=pictures,
            command=command,
            data=FRAME,
            explorer=explorer.NAME if explore else "",
            leaks=bool(results.runs["leaks"].any()),
        )
        with written_whole(out / "index.html") as partial:
            partial.write_text(page, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write the report to {out}: {reason}. Choose another --out.") from None
    return out / "index.html"


def named_apart(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items with unique names, so that none overwrites the files of another."""
    seen: Counter[str] = Counter()
    for item in items:
        seen[item.name] += 1
        count = seen[item.name]
        yield item if count == 1 else replace(item, name=f"{item.name}-{count}")


def _rated(results: Results) -> list[table.Table]:
    return [each for each in (rating_table(results), control_table(results)) if each]


def facts(results: Results) -> list[Fact]:
    """Return the facts at the top of the page: what was run, on which machine, and for how long."""
    runs = results.runs
    count = runs["config_hash"].nunique()
    configurations = f"{count} configuration{'s' * (count != 1)}"
    launches = {launch["space"]: launch for launch in results.launches}
    hours = runs["seconds"].sum() / 3600
    found = [
        Fact("runs", f"{len(runs)}: {configurations}, {_seeds(results)} each"),
        Fact("datasets", _listed(runs["dataset"])),
        Fact("protocol", _listed(runs["protocol"])),
        Fact("settings", _listed(runs["n_way"].map("{}-way ".format) + runs["k_shot"].map("{}-shot".format))),
        Fact("not the default", "; ".join(results.not_default)),
        Fact("accuracy", _metric_words(results)),
        Fact("tests", _claim_words(results)),
        Fact("over datasets", why_not(results) or why_no_tests(results)),
        Fact("compute time", f"{hours:.2f} hours of training and evaluation"),
        Fact("device", _listed(runs["device"])),
        Fact("torch", _listed(runs["torch"])),
        Fact("commit", _listed(runs["commit"].map(lambda name: "unknown" if pd.isna(name) else name[:12]))),
    ]
    found = [fact for fact in found if fact.value]
    spaces = [
        Fact("search space", f"{name}: {launch['description']}" if launch["description"] else name)
        for name, launch in launches.items()
    ]
    commands = [
        Fact("launched by", text) for text in dict.fromkeys(launch["command"] for launch in results.launches)
    ]
    searches = [Fact("chosen", in_words(search)) for search in results.searches.values()]
    overlaps = [Fact("overlap", line) for search in results.searches.values() for line in search["overlap"]]
    return [*spaces, *found, *searches, *overlaps, *commands]


def _claim_words(results: Results) -> str:
    """Return how many comparisons were tested, and the error rate of their verdicts."""
    count = claims(results).tested
    if not count:
        return ""
    tested = "1 comparison was tested" if count == 1 else f"{count} comparisons were tested together"
    return (
        f"{tested}. The probability of any false verdict is at most {100 * LEVEL:g} %: {100 * DIFFERENT:g} % "
        f'for "ahead" and "behind", {100 * ALIKE:g} % for "equivalent". '
        "Each verdict holds for its graph only."
    )


def _metric_words(results: Results) -> str:
    if results.metric == MACRO:
        return "macro accuracy: the mean over the classes seen so far, with equal weight for each class"
    return f'this page uses {results.metric} wherever it says "accuracy" (--metric)'


def notices(results: Results) -> list[Notice]:
    """Return warnings to read before the results: lost runs, mixed versions and doubtful assumptions."""
    listed = {
        "failed": ("Failed runs", [lost.words for lost in results.failed]),
        "missing": ("Planned runs that are missing", [lost.words for lost in results.missing]),
        "damaged": ("Damaged files, left out", results.damaged),
        "conflicts": ("Runs with different results in two folders", results.conflicts),
        "graphs": ("Different graphs with the same dataset name", results.graphs),
        "asymmetry": ("Differences are not symmetric", asymmetry(claims(results).asymmetry)),
    }
    found = [Notice(title, lines) for title, lines in listed.values() if lines]
    mixed = [
        f"{key}: {_listed(results.runs[key].map(str))}"
        for key in VERSION
        if results.runs[key].nunique(dropna=False) > 1
    ]
    if mixed:
        found.append(Notice("Runs with different commits, torch versions or devices", mixed))
    return found


def asymmetry(p: float) -> list[str]:
    """Return a warning if the data contradict the symmetry that the tests assume, with this p."""
    if not p < LEVEL:
        return []
    return [
        f"Over seeds, differences spread further to one side of their mean than to the other ({p_value(p)}). "
        "The sign-flip test assumes symmetry, so verdicts near the limit can be false more often than stated."
    ]


def save_drawing(drawing: Drawing, out: Path) -> Picture:
    """Write a figure to the folder of a report, and return it as the page shows it."""
    files = figures.save(drawing, out / "figures")
    words = drawing.name, drawing.section, drawing.title, drawing.caption
    return Picture(*words, files["svg"], list(files.values()), drawing.leaks)


def check_report_folder(what: str, out: Path, *, force: bool) -> None:
    """Raise an error if `out` has files that a report would replace or delete, and is not a report."""
    pages = ("index.html", explorer.NAME, "paragraph.txt", "table.tex")
    check_output_folder(what, out, FRAME, (*pages, *TABLES_AND_FIGURES), force=force)


def remove_others(out: Path, written: set[Path]) -> None:
    """Delete the tables and figures of an earlier report that this one did not write."""
    for pattern in TABLES_AND_FIGURES:
        for path in set(out.glob(pattern)) - written:
            path.unlink()


def write_frame(results: Results, path: Path) -> None:
    """Write one row per run and session with every setting; settings with mixed types become text."""
    frame = results.sessions.copy()
    for key in results.keys:
        kinds = {type(value) for value in frame[key].dropna()}
        if len(kinds) > 1 and kinds - {int, float}:
            frame[key] = frame[key].map(str)
    with written_whole(path) as partial:
        frame.to_parquet(partial, index=False)


def _write_explorer(results: Results, path: Path, title: str, command: str, wanted: bool) -> None:
    """Write the page to explore, or delete the one of an earlier report."""
    if not wanted:
        path.unlink(missing_ok=True)
        return
    page = explorer.render(results, title=title, command=command, report="index.html")
    with written_whole(path) as partial:
        partial.write_text(page, encoding="utf-8")


def _title(results: Results, study: str) -> str:
    datasets = list(dict.fromkeys(results.runs["dataset"]))
    return f"{study or _listed(results.runs['study'])} on {datasets_words(datasets)}"


def _seeds(results: Results) -> str:
    """Return "10 seeds" or "3 to 10 seeds"."""
    seeds = results.runs.groupby("config_hash")["seed"].count()
    count = count_of_seeds(int(seeds.max()))
    return count if seeds.min() == seeds.max() else f"{seeds.min()} to {count}"


def _setting(results: Results) -> str:
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
    panels = results.panels()
    words = {panel.title: panel.title.split(", ")[1:] for panel in panels}
    datasets = Counter(str(panel.runs["dataset"].iloc[0]) for panel in panels)
    common = set.intersection(*map(set, words.values()))
    found = {}
    for panel in panels:
        dataset = str(panel.runs["dataset"].iloc[0])
        own = [word for word in words[panel.title] if word not in common] if datasets[dataset] > 1 else []
        found[panel.title] = ", ".join([dataset, *own])
    return found


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if not pd.isna(value)))
