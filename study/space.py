"""From a YAML file to the configurations of a study, everything checked before anything starts.

A space's configurations are its datasets x its cases x its grid, each with what is fixed, and around each
of them the values of ``one_at_a_time``; then those of the spaces that it includes. A case that names a
dataset is for that dataset alone. Settings that do not apply to a method make no difference to it, and a
search does not sample them. A search is made for each configuration; a value given for what they differ in
leaves those that have it. Every error is one line with the file, the line and what would be valid.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hagmeta import datasets as registry
from hagmeta.common.errors import UserError, choose, shown
from hagmeta.config import REGISTRIES, RunConfig, resolve
from hagmeta.methods import METHODS
from hagmeta.protocol import PROTOCOLS
from study import space_file
from study.space_file import Axes, Dimension, Search, Settings, SpaceFile, check_seeds

__all__ = ["Dimension", "Search", "Space", "check_seeds", "names", "of_methods", "read"]

FOLDER = Path(__file__).resolve().parent.parent / "search_spaces"
MOST_CONFIGS = 10_000  # which take seconds to plan, and days to run
MOST_RUNS = 1_000_000

Configs = dict[RunConfig, RunConfig]  # as given, by what they resolve to: equal runs are kept once


@dataclass(frozen=True)
class Space:
    """A study's configurations and seeds."""

    name: str
    description: str
    configs: tuple[RunConfig, ...]  # as given
    resolved: tuple[RunConfig, ...]  # the same, as they run
    seeds: tuple[int, ...]
    search: Search | None
    sample: tuple[Dimension, ...]

    def dimensions(self, config: RunConfig) -> tuple[Dimension, ...]:
        """What a search varies around one of the configurations: the settings that apply to it."""
        return tuple(dimension for dimension in self.sample if config.applies(dimension.key))


@dataclass(frozen=True)
class _Request:
    """What a caller of ``read`` asks for; it holds for included spaces too."""

    quick: bool
    datasets: tuple[str, ...]
    settings: dict[str, Any]


def names() -> list[str]:
    """The spaces that ship with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(
    source: str | Path | Mapping[str, Any],
    *,
    name: str | None = None,
    quick: bool = False,
    datasets: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Space:
    """Read a space; datasets, seeds and settings given here take the place of its own.

    Args:
        source: The name of a space, a YAML file, or a mapping with the content of such a file.
        name: What to call the space, and the folder of its results. By default the name of the file, and
            ``study`` for a mapping.
        quick: Whether to read its small version.
        datasets: Instead of its datasets.
        seeds: Instead of its seeds.
        settings: Values of settings that hold for all its configurations.

    Returns:
        The space, whose configurations have been checked.
    """
    for each in datasets:
        space_file.check_dataset(each)
    if isinstance(source, Mapping):
        if datasets and not source.keys() & {"datasets", "include"}:
            source = {**source, "datasets": list(datasets)}
        path, file = Path("study"), space_file.of_mapping(source, quick=quick)
    else:
        path = _find(str(source), Path())
        file = space_file.read(path, quick=quick)
    typed = _typed(settings or {})
    if file.search:
        file = _chosen(file, typed)
    request = _Request(quick, tuple(dict.fromkeys(datasets)), typed)
    configs = _merged(_configs(each, request) for each in _with_included(file, path, quick))
    space = Space(
        name=check_name(path.stem if name is None else name) + "-quick" * quick,
        description=file.description,
        configs=tuple(configs.values()),
        resolved=tuple(configs),
        seeds=file.seeds if seeds is None else check_seeds(seeds),
        search=file.search,
        sample=file.sample,
    )
    _check_size(space, file)
    _check_search(space, file)
    return space


def _typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as their types; those that name plug-ins come first, and bring settings of their own."""
    in_order = sorted(settings, key=lambda key: key not in REGISTRIES)
    found = {key: space_file.check_setting(key, settings[key]) for key in in_order}
    return {key: found[key] for key in settings}


def of_methods(
    methods: Sequence[str],
    datasets: Sequence[str],
    *,
    name: str | None = None,
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Space:
    """Make the space that compares methods: one configuration per method and dataset.

    Args:
        methods: Names, or references such as ``my.py:Mine``.
        datasets: Names of datasets.
        name: What to call the space, and the folder of its results; by default ``comparison``.
        seeds: Which seeds to run; by default the first ten.
        settings: Values of settings. A method that has no use for one runs without it.

    Returns:
        The space, whose configurations have been checked.
    """
    if not datasets:
        raise UserError("--methods needs --dataset: the graphs to compare methods on.")
    for each in datasets:
        space_file.check_dataset(each)
    for key in settings or {}:
        if key in ("method", "dataset"):
            raise UserError(f"{key} cannot be set; --methods and --dataset say what is compared.")
    names = [METHODS.name_of(method) for method in methods]  # all of them, before any setting is looked at
    typed = _typed(settings or {})
    configs: Configs = {}
    for dataset, method in itertools.product(datasets, names):
        try:
            config = RunConfig(**typed, method=method, dataset=dataset)
            configs.setdefault(_feasible(config), config)
        except UserError as error:
            raise UserError(f"{method} on {dataset}: {error}") from None
    return Space(
        name=check_name("comparison" if name is None else name),
        description=f"{', '.join(methods)} on {', '.join(datasets)}",
        configs=tuple(configs.values()),
        resolved=tuple(configs),
        seeds=check_seeds(range(space_file.DEFAULT_SEEDS) if seeds is None else seeds),
        search=None,
        sample=(),
    )


def check_name(name: str) -> str:
    """Refuse a name that cannot be that of a visible folder."""
    if not name.strip() or name.startswith(".") or set(name) & {"/", "\0"}:
        raise UserError(
            f"{shown(name)} cannot name the folder of a study; give a name without slashes and leading dots."
        )
    return name


def _find(name: str, folder: Path) -> Path:
    """A space of ours by its name, or a file."""
    if name in names():
        return FOLDER / f"{name}.yaml"
    path = folder / name
    with contextlib.suppress(OSError, ValueError):  # a name too long, or with a NUL
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return path
    choose("space, and no such file:", name, [*names(), "FILE.yaml"])
    raise UserError(f"there is no file {name!r}.")


def _with_included(file: SpaceFile, path: Path, quick: bool) -> list[SpaceFile]:
    """The file and all that it includes, each once: a second time would add nothing."""
    found: dict[Path, SpaceFile] = {}

    def visit(file: SpaceFile, path: Path, above: tuple[Path, ...]) -> None:
        found[path.resolve()] = file
        above = (*above, path.resolve())
        for node in file.include:
            name = node.text("an included space")
            with node.located():
                target = _find(name, path.parent)
            if target.resolve() in above:
                raise node.error(f"{name} is included by itself, directly or through others.")
            if target.resolve() in found:
                continue
            included = space_file.read(target, quick=quick)
            if included.search:
                raise node.error(f"{name} is a search, which cannot be included.")
            visit(included, target, above)

    visit(file, path, ())
    return list(found.values())


def _configs(file: SpaceFile, request: _Request) -> Configs:
    """All configurations of a file, on the request's datasets where it names any."""
    if not file.datasets:  # it only includes others
        return {}
    datasets = request.datasets or file.datasets
    return _expand(file, [(name, _cases(file, name)) for name in datasets], request)


def _chosen(file: SpaceFile, settings: Mapping[str, Any]) -> SpaceFile:
    """A search's file for what was asked alone: a value in place of the grid's, the cases that have it."""
    cases = file.cases
    for key, value in settings.items():
        there = [case[key] for case in file.cases if key in case]
        if there and all(node.value != value for node in there):
            valid = ", ".join(dict.fromkeys(str(node.value) for node in there))
            raise there[0].error(f"no case of this search has {key} {value}; there are {valid}.")
        cases = tuple(case for case in cases if key not in case or case[key].value == value)
    return replace(file, grid={k: nodes for k, nodes in file.grid.items() if k not in settings}, cases=cases)


def _cases(file: SpaceFile, dataset: str) -> list[Settings]:
    """The cases for a dataset: its own and everyone's, or else those of the others."""
    if not file.cases:
        return [{}]
    own = [case for case in file.cases if "dataset" not in case or case["dataset"].value == dataset]
    return own or list(file.cases)


def _expand(
    file: SpaceFile, cases_by_dataset: list[tuple[str, list[Settings]]], request: _Request
) -> Configs:
    axes = file.axes()
    chosen = {key for case in file.cases for key in case} if file.search else set()
    for key in request.settings:
        if key in axes and key not in chosen:
            raise axes[key].error(f"{key} varies in this space; it cannot be set to one value as well.")
    points = math.prod(len(nodes) for nodes in file.grid.values())
    points *= 1 + sum(len(nodes) for nodes in file.one_at_a_time.values())
    count = sum(len(cases) for _, cases in cases_by_dataset) * points
    if count > MOST_CONFIGS:
        raise file.root.error(
            f"the space has {count:,} configurations; valid are at most {MOST_CONFIGS:,}. "
            "Give fewer values, or search and sample instead of grid."
        )
    configs: Configs = {}
    for dataset, cases in cases_by_dataset:
        for case, point in itertools.product(cases, _product(file.grid)):
            for nodes in _around(file.fixed | case | point, file.one_at_a_time):
                resolved, config = _config(file, dataset, nodes, request)
                configs.setdefault(resolved, config)
    return configs


def _product(grid: Axes) -> Iterator[Settings]:
    for nodes in itertools.product(*grid.values()):
        yield dict(zip(grid, nodes, strict=True))


def _around(centre: Settings, axes: Axes) -> Iterator[Settings]:
    """The centre, then each value of each axis alone."""
    yield centre
    for key, nodes in axes.items():
        for node in nodes:
            yield centre | {key: node}


def _config(file: SpaceFile, dataset: str, nodes: Settings, request: _Request) -> tuple[RunConfig, RunConfig]:
    """A configuration, resolved and as given."""
    values = {key: node.value for key, node in nodes.items()} | request.settings | {"dataset": dataset}
    try:
        config = RunConfig(**values)
        return _feasible(config), config
    except UserError as error:
        # Each value is valid by itself: the place is that of the first setting that the error names.
        named = (nodes[word] for word in re.findall(r"\w+", str(error)) if word in nodes)
        place = next(named, file.top.get("datasets", file.root))
        raise place.error(f"on {dataset}: {error}") from None


def _feasible(config: RunConfig) -> RunConfig:
    """Resolve, and refuse what the dataset's classes cannot feed, as far as that is known before loading."""
    resolved = resolve(config)
    assert resolved.classes
    wanted, there = sum(resolved.classes), registry.describe(config.dataset, Path()).classes
    if there is not None and wanted > there:
        raise UserError(f"classes is {resolved.classes}, {wanted} in all; the dataset has {there}.")
    return resolved


def _merged(parts: Iterable[Configs]) -> Configs:
    configs: Configs = {}
    for part in parts:
        for resolved, config in part.items():
            configs.setdefault(resolved, config)
    return configs


def _check_size(space: Space, file: SpaceFile) -> None:
    configs, seeds = len(space.configs), len(space.seeds)
    if configs * seeds > MOST_RUNS:
        raise file.root.error(f"{configs:,} configurations x {seeds:,} seeds are over {MOST_RUNS:,} runs.")


def _check_search(space: Space, file: SpaceFile) -> None:
    """A search can be scored, and what it may draw goes with what it does not vary."""
    if space.search is None:
        return
    for config in space.configs:
        if not config.val_classes or not PROTOCOLS[config.protocol].validates:
            raise file.top["search"].error(
                f"{space.search.objective} is measured on classes kept out for it: "
                "fix val_classes above 0, and the strict protocol."
            )
    values = {dimension.key: _values_to_try(dimension) for dimension in space.sample}
    if sum(map(len, values.values())) * len(space.configs) > MOST_CONFIGS:
        raise file.top["search"].error(
            f"the configurations and the values of sample make more than {MOST_CONFIGS:,} pairs to check; "
            "give fewer of either."
        )
    for config in space.configs:
        sampled = [dimension.key for dimension in space.dimensions(config)]
        if not sampled:
            raise file.top["sample"].error(f"nothing of sample applies to {config.method}.")
        for key in sampled:
            with file.top["sample"].value[key].located(f"on {config.dataset}: "):
                for value in values[key]:
                    _feasible(replace(config, **{key: value}))


def _values_to_try(dimension: Dimension) -> tuple[Any, ...]:
    """Values to try beside the other settings: all of a choice; of a range its ends, and an odd one."""
    if dimension.kind == "randint":
        return (*dimension.values, dimension.values[0] + 1)
    return dimension.values
