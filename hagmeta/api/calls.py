"""`hagmeta.run`: run a method on a graph. The work is done in `hagmeta.engine.run`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from hagmeta import datasets
from hagmeta.api.display import progress_display
from hagmeta.api.result import Result
from hagmeta.common.errors import Diverged, UserError, choose, shown
from hagmeta.common.files.home import home, make_home
from hagmeta.common.plugins.identity import short_name, without_hash
from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import SETTINGS, RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine import run as engine
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.engine.run import RunOutput
from hagmeta.methods import METHODS, MetaTraining, Method
from hagmeta.packs.device import choose_device
from hagmeta.packs.pack import Progress, no_progress
from hagmeta.scenarios.metrics import METRICS, Metric, with_metrics

Seeds = int | Sequence[int]
Graph = Any  # a Dataset, a name, a path, a PyG Data or a networkx graph
Device = str | torch.device | None
# Keywords of `run` that are not settings.
OWN = ("seeds", "device", "progress", "metrics", "cache", "eager", "plain")
MOST_SEEDS = 10_000


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
