"""`hagmeta.study`, `open_study` and `report`: run a study, read its results, write its report.

The work is done in the packages `study` and `analysis`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hagmeta.api.calls import Graph, Seeds, as_dataset, as_seeds
from hagmeta.api.result import FOLDER, IDENTITY, Result, results_in
from hagmeta.common.errors import UserError, choose, shown
from hagmeta.common.records.records import RunKey, StudyFolder
from hagmeta.config.run_config import all_settings
from hagmeta.methods import METHODS, Method

if TYPE_CHECKING:
    import pandas as pd

DOES_NOT_APPLY = "does not apply"  # in a frame; pandas would drop None when it groups rows


@dataclass(frozen=True)
class Study:
    """The folder of a study: what `hagmeta.study` and `hagmeta.open_study` return.

    Attributes:
        folder: The folder to pass to `python -m analysis` or `hagmeta.report`.
        complete: Whether all runs are finished; those of a search are finished when its choices are
            confirmed. To run those that failed or are missing, launch it again.
    """

    folder: Path
    complete: bool = True

    def frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per run and session.

        For a search, these are the runs that confirm its choices and the defaults on fresh seeds. Its samples
        are not among them. If it was extended, the last confirmation counts until the next one has runs.

        The columns are, in this order:

        - ``method``, ``dataset``, ``protocol``, ``n_way``, ``k_shot``, ``seed`` and ``session``;
        - ``config``, the hash of the configuration, and ``label``, its name in the report;
        - for a search, ``role``: ``tuned`` or ``default``;
        - every other setting that has several values within a method. Where it does not apply, the value is
          the text ``does not apply``, so that ``groupby`` keeps the row;
        - the metrics of the session, between 0 and 1: see `Metrics </reference/records>`. Those that no run
          has are left out;
        - ``seconds``, the time of the whole run.

        Returns:
            The DataFrame, sorted by configuration, seed and session. `hagmeta.compare` takes its rows.

        Raises:
            UserError: There is no finished run, or a search has not confirmed any choice yet.
        """
        from analysis.data.reading import read
        from analysis.data.results import SCORES

        _check_confirmed(StudyFolder(self.folder))
        results = read([self.folder])
        sessions = results.sessions.rename(columns={"config_hash": "config"})
        settings = [key for key in results.varied() if key not in IDENTITY]
        left_out = {"run", "study", "first", "pd", "rpd", "seconds", "config", "label"}
        left_out |= {*results.keys, *SCORES, *IDENTITY}
        metrics = [name for name in sessions if name not in left_out and sessions[name].notna().any()]
        role = []
        if results.searches:
            tuned = {cell["chosen"] for search in results.searches.values() for cell in search["cells"]}
            sessions["role"] = sessions["config"].isin(tuned).map({True: "tuned", False: "default"})
            role = ["role"]
        frame = sessions[[*IDENTITY, "config", "label", *role, *settings, *metrics, "seconds"]].copy()
        for key in settings:
            frame[key] = frame[key].astype(object).where(frame[key].notna(), DOES_NOT_APPLY)
        frame = frame.infer_objects().sort_values(
            ["method", "dataset", "config", "seed", "session"], ignore_index=True
        )
        frame.attrs[FOLDER] = str(self.folder)
        return frame

    def results(self) -> list[Result]:
        """Return one `Result` per configuration, as `hagmeta.run` does, of the runs in `frame`."""
        from analysis.data.reading import gather

        folder = StudyFolder(self.folder)
        _check_confirmed(folder)
        records = gather([self.folder]).records
        return list(results_in(folder, [(path.parent.name, int(path.stem)) for path, _, _ in records]))

    def report(self, **options: Any) -> Path:
        """Write the report of this study.

        Args:
            **options: Keywords of `hagmeta.report`.

        Returns:
            The path of the page, ``index.html``.
        """
        return report(self.folder, **options)


def open_study(folder: str | Path) -> Study:
    """Open the folder of a study to read its results. Nothing runs, and nothing is written.

    Args:
        folder: The folder, such as ``results/comparison``. A launch may still be writing to it.

    Returns:
        A `Study`.

    Raises:
        UserError: There is no study in this folder.

    Example:
        >>> import hagmeta
        >>> study = hagmeta.open_study("results/comparison")  # doctest: +SKIP
        >>> frame = study.frame()  # doctest: +SKIP
        >>> last = frame[frame["session"] == frame["session"].max()]  # doctest: +SKIP
        >>> last.groupby("method")["macro_accuracy"].mean()  # doctest: +SKIP
    """
    found = StudyFolder(Path(folder).expanduser())
    if not found.runs.is_dir():
        raise UserError(f"{folder}: no study; expected a folder that contains `runs`, as results/NAME does.")
    there, launches = set(found.run_keys()), _launches(found)
    ended = bool(there) and there.issuperset(_planned(launches)) and not _is_searching(found, launches)
    return Study(found.folder, complete=ended)


def _launches(folder: StudyFolder) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in folder.launches.glob("*.json")]


def _planned(launches: Sequence[dict[str, Any]]) -> Iterator[RunKey]:
    """Yield the runs that launches asked for; of searches, those of the newest."""
    from analysis.data.searches import newest_searches

    for launch in newest_searches(launches) or launches:
        yield from ((config, seed) for config in launch["configs"] for seed in launch["seeds"])


def _is_searching(folder: StudyFolder, launches: Sequence[dict[str, Any]]) -> bool:
    """Return whether a search has begun whose choices no launch has confirmed since."""
    files = [json.loads(path.read_bytes()) for path in folder.searches.glob("*.json")]
    confirmed = [launch["time"] for launch in launches if launch.get("search")]
    if not files or not confirmed:
        return bool(files)
    return max(file.get("time", "") for file in files) > max(confirmed)  # older files have no time


def _check_confirmed(folder: StudyFolder) -> None:
    """Raise an error if all runs of a folder are samples of a search."""
    launches = _launches(folder)
    if _is_searching(folder, launches) and not any(launch.get("search") for launch in launches):
        raise UserError(
            f"{folder.folder}: the search has not confirmed any choice yet; wait for the launch, or repeat "
            "its command. The samples are in its folder `searches`."
        )


def study(
    space: str | Path | Mapping[str, Any] | None = None,
    datasets: Graph | Sequence[Graph] | None = None,
    *,
    methods: Sequence[str | type[Method]] | None = None,
    settings: Mapping[str, Any] | None = None,
    seeds: Seeds | None = None,
    quick: bool = False,
    results: str | Path = "results",
    report: bool = True,
    **options: Any,
) -> Study:
    """Run a study on Ray: all configurations of a search space, with several seeds.

    Finished runs in the folder are not repeated. If you press Ctrl-C, the finished runs are kept. Repeat the
    call to continue.

    Args:
        space: The search space: its name, a YAML file, or a dictionary with the same keys. Give either
            ``space`` or ``methods``.
        datasets: A graph or a list of graphs, in any form that `run` accepts. They replace the graphs of the
            space.
        methods: Methods to compare without a search space: names, references or classes.
        settings: Settings for every run, as a dictionary.
        seeds: The number of seeds, or a list of seeds. The default is that of the space.
        quick: Whether to run the small version of the space.
        results: The folder that contains the folders of studies.
        report: Whether to write the report at the end.
        **options: Fields of `study.options.LaunchOptions`, such as ``max_concurrent=2``.

    Returns:
        A `Study`.

    Raises:
        UserError: An argument is invalid, or arguments contradict each other.

    Example:
        >>> import hagmeta, tempfile
        >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
        >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3)
        >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
        ...     study = hagmeta.study(
        ...         methods=["sgc-ncm", "sgc-ridge"], datasets=graph, settings=task, seeds=2, results=folder
        ...     )
        ...     len(study.frame())  # two methods, two seeds, three sessions
        12
    """
    from study.api import launch
    from study.options import LaunchOptions

    if (space is None) == (methods is None):
        raise UserError(
            "study needs either a space or methods, not both; `hagmeta-study --list` lists the spaces."
        )
    several = isinstance(datasets, Sequence) and not isinstance(datasets, str)
    given: list[Graph] = list(datasets or ()) if several or datasets is None else [datasets]
    graphs = {graph.identity: graph for graph in map(as_dataset, given)}
    chosen = LaunchOptions(
        methods=tuple(METHODS.name_of(method) for method in methods or ()),
        datasets=tuple(graphs),
        seeds=None if seeds is None else tuple(as_seeds(seeds)),
        settings=dict(settings or {}),
        quick=quick,
        results=str(results),
        report=report,
        **_known_options(options, LaunchOptions),
    )
    in_memory = {name: graph for name, graph in graphs.items() if graph.origin is None}
    outcome = launch(space, chosen, in_memory)
    return Study(outcome.folder, complete=outcome.status == 0)


def _known_options(options: dict[str, Any], kind: Any) -> dict[str, Any]:
    for name in options:
        if name in all_settings():
            raise UserError(f"{name} is a setting of runs, not an option; pass settings={{{name!r}: ...}}.")
        choose("option", name, [item.name for item in fields(kind)])
    return options


def report(
    folder: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    metric: str | None = None,
    margin: float = 1.0,
    baseline: str | None = None,
    where: Mapping[str, Any] | None = None,
    by: str | Sequence[str] = (),
    explore: bool = False,
) -> Path:
    """Write the report of one or more studies: tables, figures and an HTML page.

    Args:
        folder: The folder of a study, a folder of studies, or a list of these.
        out: The folder to write to. The default is ``report`` in the first folder.
        metric: The metric of headlines, tests and figures. The default is macro accuracy.
        margin: The equivalence margin: smaller differences, in points, count as equivalent.
        baseline: The reference of all comparisons: a method, or the label of a configuration.
        where: A dictionary of settings and values. The report reads only runs with these values.
            A list allows several values of a setting.
        by: One or more settings whose values to compare, averaged over all other settings.
        explore: Also write ``explorer.html``, a page to filter, hover and click.

    Returns:
        The path of the page, ``index.html``.

    Raises:
        UserError: There are no records, or the report cannot be written.

    Example:
        >>> import hagmeta, tempfile
        >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
        >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3, features="propagated")
        >>> result = hagmeta.run("sgc-ncm", graph, seeds=2, **task)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = hagmeta.report(result.save(folder))
        ...     page.name, page.exists()
        ('index.html', True)
    """
    from analysis.page.write import write_report

    given = [folder] if isinstance(folder, str | os.PathLike) else list(folder)
    folders = [Path(each).expanduser() for each in given]
    if not folders:
        raise UserError("report got an empty list of folders; expected the folder of at least one study.")
    if not 0 < margin < 100:
        raise UserError(f"margin is {shown(margin)}; expected a number of points between 0 and 100.")
    return write_report(
        folders,
        Path(out).expanduser() if out else folders[0] / "report",
        metric=metric,
        margin=margin / 100,
        baseline=baseline,
        where={key: _texts(value) for key, value in (where or {}).items()},
        by=[by] if isinstance(by, str) else by,
        explore=explore,
        force=not out,
    )


def _texts(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
