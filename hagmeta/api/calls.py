"""The functions of `import hagmeta`: run a method on a graph, run a study, write a report.

They check their arguments and leave the work to `hagmeta.engine.run`, `study` and `analysis`.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console

from hagmeta import datasets
from hagmeta.api.display import progress_display
from hagmeta.api.result import FOLDER, IDENTITY, Comparison, Result, compare, results_in
from hagmeta.common.errors import Diverged, UserError, choose, shown
from hagmeta.common.files.home import home, make_home
from hagmeta.common.plugins.identity import short_name, without_hash
from hagmeta.common.records.records import RunKey, StudyFolder
from hagmeta.config.run_config import SETTINGS, RunConfig, all_settings, remarks, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine import run as engine
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.engine.run import RunOutput
from hagmeta.methods import METHODS, MetaTraining, Method
from hagmeta.packs.device import choose_device
from hagmeta.packs.pack import Progress, no_progress
from hagmeta.scenarios.metrics import METRICS, Metric, with_metrics

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Result", "Study", "compare", "load_dataset", "open_study", "report", "run", "study"]

Seeds = int | Sequence[int]
Graph = Any  # a Dataset, a name, a path, a PyG Data or a networkx graph
Device = str | torch.device | None
# Keywords of `run` that are not settings.
OWN = ("seeds", "device", "progress", "metrics", "cache", "eager", "plain")
MOST_SEEDS = 10_000
DOES_NOT_APPLY = "does not apply"  # in a frame; pandas would drop None when it groups rows


def run(
    method: str | type[Method] | RunConfig,
    data: Graph = None,
    *,
    seeds: Seeds = 10,
    device: Device = "auto",
    progress: bool | Progress = True,
    metrics: Sequence[str | type[Metric]] = (),
    cache: bool | str | Path | None = True,
    eager: bool = False,
    plain: bool = False,
    **settings: Any,
) -> Result:
    """Run a method on a graph: pre-train, meta-train, and learn new classes session by session.

    Args:
        method: The method to run. Give a name (see `python -m hagmeta --help`), a reference such as
            ``my.py:Mine``, a subclass of `hagmeta.Method`, or a `RunConfig`.
        data: The graph to run on. Give a `hagmeta.Dataset`, the name of a dataset, a path to an .npz file, a
            PyG ``Data`` or a networkx graph. The default is the embedded dataset debian.
        seeds: The number of seeds, counted from 0, or a list of seeds.
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or a ``torch.device``.
        progress: Whether to show progress. Terminals and notebooks show a bar. Scripts print a line at least
            every 30 seconds, with a rough estimate of the time left. You can also give a function that takes
            the phase, the steps done, the total steps and a dictionary of values.
        metrics: Additional metrics: subclasses of `hagmeta.Metric`, or references to them.
        cache: The folder of pre-trained encoders. True means ``$HAGMETA_HOME/pretrained``; False turns the
            cache off.
        eager: Whether to run GPU steps without CUDA graphs. Use it for debugging.
        plain: Whether to run one seed at a time with ordinary tensors. Use it with print, pdb and profilers.
        **settings: Any setting, such as ``classes=(12, 12, 27)``, ``n_way=3`` or ``k_shot=5``. If the graph
            has no class split and you give no ``classes``, the call proposes a split and prints it.

    Returns:
        A `Result`.

    Raises:
        UserError: An argument is invalid, or arguments contradict each other.
        Diverged: The loss or the scores of some seeds are not finite. The message names the method, the
            seeds, the phase and the step. The error has the `Result` of the other seeds as ``finished``.
        KeyboardInterrupt: You pressed Ctrl-C. The results of earlier calls stay valid. The attribute
            ``result`` of the exception is a `Result` with the finished seeds, or None if there are none.
            Seeds of a pack finish together. With ``plain``, and with encoders that cannot run in packs, they
            finish one after the other.

    Example:
        >>> import hagmeta
        >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
        >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3, features="propagated")
        >>> result = hagmeta.run("sgc-ncm", graph, seeds=2, **task)
        >>> [record["seed"] for record in result.records]
        [0, 1]
        >>> len(result.records[0]["macro_accuracy"])  # sessions 0, 1 and 2
        3
    """
    own = {METRICS.name_of(metric): METRICS.find(metric) for metric in metrics}
    mode = mode_of(eager=eager, plain=plain)
    work = Work(RunOptions(device=as_device(device), mode=mode, cache=_cache_folder(cache)), progress, own)
    if _are_seeds(data):
        raise UserError(f"data is {shown(data)}; expected a graph. To choose seeds, use seeds={shown(data)}.")
    chosen = as_seeds(seeds)
    if isinstance(method, RunConfig):
        data = _one_graph(data, settings)
        for key in settings:
            raise UserError(f"{key} cannot be combined with a RunConfig; pass it to the RunConfig instead.")
        config = method
        dataset = as_dataset(config.dataset if data is None else data)
        return work.run(_of_graph(config, dataset), dataset, chosen)
    for key in settings:
        near = difflib.get_close_matches(key, [*OWN, *SETTINGS], n=1) if key not in SETTINGS else []
        if near and near[0] in OWN:  # RunConfig suggests settings
            raise UserError(f"unknown keyword {key!r}. Did you mean {near[0]!r}?")
    name = METHODS.name_of(method)
    data = _one_graph(data, settings)
    RunConfig.of({"method": name, **settings})  # report bad settings before downloading anything
    dataset = as_dataset(SETTINGS["dataset"].default if data is None else data)
    config = RunConfig.of({"method": name, "dataset": dataset, **settings})
    return work.run(config, dataset, chosen, settings)


@dataclass(frozen=True)
class Work:
    """The arguments of `run` that do not depend on the method or the graph."""

    options: RunOptions
    progress: bool | Progress = True
    metrics: Mapping[str, type[Metric]] = field(default_factory=dict)

    def run(self, config: RunConfig, dataset: Dataset, seeds: list[int], given: Iterable[str] = ()) -> Result:
        """Run a configuration, and show notes and progress; see `hagmeta.run`.

        Args:
            config: The configuration.
            dataset: The graph that it names.
            seeds: The seeds.
            given: The settings that the user gave. A note names those that do not apply.
        """
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        idle = [config.why_not(key) for key in given]
        config = resolve(config)
        for note in [*filter(None, idle), *remarks(config)]:
            console.print(f"note: {note}", style="yellow")
        packs = engine.run_together(config, seeds, self.options.mode)
        outputs: list[RunOutput] = []
        failures: dict[int, str] = {}  # by position among the seeds

        def result() -> Result:
            records = [with_metrics(each.record, each.predictions, self.metrics) for each in outputs]
            return Result(records, config, [each.predictions for each in outputs])

        try:
            with self._shown(config, packs, console) as progress:
                options = replace(self.options, progress=progress)
                for pack in packs:
                    first = len(outputs) + len(failures)
                    try:
                        outputs += engine.run(config, pack, dataset, options)
                    except Diverged as error:
                        outputs += error.finished or []
                        failures |= {first + place: why for place, why in error.failures.items()}
        except KeyboardInterrupt as stop:
            vars(stop)["result"] = result() if outputs else None
            stop.add_note(f"{len(outputs)} of {len(seeds)} seeds are finished.")
            raise
        if failures:
            raise Diverged(failures, result() if outputs else None)
        return result()

    def _shown(
        self, config: RunConfig, packs: Sequence[Sequence[int]], console: Console
    ) -> AbstractContextManager[Progress]:
        """Return the function to report progress to: a display, the given function, or `no_progress`."""
        if callable(self.progress):
            return nullcontext(self.progress)
        if self.progress is False:
            return nullcontext(no_progress)
        count = sum(map(len, packs))
        where = f"{without_hash(config.method)} on {short_name(config.dataset)}"
        title = f"{where}, {count} seed{'s' * (count != 1)}"
        return progress_display(console, title, _all_steps(config), len(packs))


def training_steps(config: RunConfig) -> dict[str, int]:
    """Return the number of gradient steps by phase of training, without early stopping."""
    trained = METHODS[config.method].training_of(config) is not MetaTraining.NONE
    return {"pre-train": config.pretrain_epochs, "meta-train": config.episodes * trained}


def _all_steps(config: RunConfig) -> dict[str, int]:
    """Return the number of gradient steps of a resolved configuration by phase; an answer counts as one."""
    assert config.sessions is not None
    in_session = 1 + (config.finetune_steps if config.applies("finetune_steps") else 0)
    streams = ("validation", "test") if config.val_classes else ("test",)
    return training_steps(config) | dict.fromkeys(streams, (1 + config.sessions) * in_session)


def load_dataset(name: str | os.PathLike[str]) -> Dataset:
    """Load a dataset. Downloaded files are kept in ``$HAGMETA_HOME``.

    Args:
        name: A name that `python -m hagmeta datasets` lists, a path to an .npz file, ``mat:PREFIX``, or
            ``synthetic:nodes=...,edges=...,features=...,classes=...``.

    Returns:
        The graph, as a `hagmeta.Dataset`.

    Raises:
        UserError: The name is unknown, or the file is missing or invalid.

    Example:
        >>> import hagmeta
        >>> data = hagmeta.load_dataset("synthetic:nodes=300,edges=1200,features=40,classes=10")
        >>> data.num_nodes, data.num_classes
        (300, 10)
    """
    return datasets.load(name, home() / "data")


def as_dataset(data: Graph) -> Dataset:
    """Return ``data`` as a `Dataset`. It may have any form that `run` accepts."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        return load_dataset(data)
    kinds = {kind.__module__.partition(".")[0] for kind in type(data).__mro__}
    if "torch_geometric" in kinds:
        return Dataset.from_pyg(data, name="data")
    if "networkx" in kinds:
        return Dataset.from_networkx(data, name="data")
    raise UserError(
        f"data is of type {type(data).__name__}; expected a hagmeta.Dataset (see from_pyg, from_networkx, "
        "from_arrays, from_csv), a dataset name, a path to an .npz file, a PyG Data or a networkx graph."
    )


def _one_graph(data: Graph, settings: dict[str, Any]) -> Graph:
    """Return the graph from ``data`` or ``settings["dataset"]``, and remove the latter from ``settings``."""
    named = settings.pop("dataset", None)
    if data is not None and named is not None:
        raise UserError("the graph is given twice, as data and as dataset; expected only one of them.")
    return named if data is None else data


def _of_graph(config: RunConfig, dataset: Dataset) -> RunConfig:
    """Return ``config`` with the name of ``dataset``; raise an error if it names another graph."""
    if config.dataset not in (dataset.identity, dataset.name, SETTINGS["dataset"].default):
        raise UserError(
            f"the RunConfig names the dataset {config.dataset}, but the graph is {dataset.identity}; "
            "leave dataset out of the RunConfig, or pass that graph."
        )
    return config.replace(dataset=datasets.name_of(dataset))


def as_device(device: Device) -> torch.device:
    """Return ``device`` as a ``torch.device``. None means ``auto``."""
    if isinstance(device, torch.device):
        return device
    if device is None:
        device = "auto"
    if not isinstance(device, str):
        raise UserError(f"device is {shown(device)}; expected auto, cpu, cuda or a torch.device.")
    kind, _, number = device.partition(":")
    choose("device", kind, ("auto", "cpu", "cuda"))
    chosen = choose_device(kind)
    if number and not number.isdigit():
        raise UserError(f"device is {shown(device)}; expected a number after the colon, as in cuda:0.")
    return torch.device(chosen.type, int(number)) if number else chosen


def as_seeds(seeds: Seeds) -> list[int]:
    """Return a list of seeds. ``seeds`` is a count, or a sequence of different seeds."""
    wrong = UserError(
        f"seeds is {shown(seeds)}; expected a count, such as 10, or different seeds, such as [0, 1]."
    )
    if not _are_seeds(seeds):
        raise wrong
    chosen = list(range(int(seeds))) if isinstance(seeds, int | np.integer) else [int(seed) for seed in seeds]
    if not 0 < len(chosen) <= MOST_SEEDS or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise wrong
    return chosen


def _are_seeds(value: Any) -> bool:
    """Return whether ``value`` is an integer or a sequence of integers."""
    if isinstance(value, bool | str | bytes):
        return False
    if isinstance(value, int | np.integer):
        return True
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iu"
    whole = (int, np.integer)
    return isinstance(value, Sequence) and all(isinstance(each, whole) for each in value)


def _cache_folder(cache: bool | str | Path | None) -> Path | None:
    if cache is True:
        return make_home() / "pretrained"
    return Path(cache).expanduser() if cache else None


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
        - the metrics of the session, between 0 and 1: see `Metrics </reference/metrics>`. Those that no run
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
