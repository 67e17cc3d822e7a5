"""Read a search space and expand it into the configurations of a study.

The configurations are the product of datasets, cases and grid, with the ``fixed`` settings. Around each of
them, ``one_at_a_time`` changes one setting. The configurations of included spaces follow. A case that names
a dataset applies to that dataset only.

A setting that does not apply to a method has no effect on it, and a search does not sample it. A search runs
for each configuration. A value given by the user for a setting that varies selects the configurations with
that value.

Everything is checked before anything starts. Each error is one line with the file, the line number and what
was expected.
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
from hagmeta.common.plugins.identity import without_hash
from hagmeta.config.run_config import REGISTRIES, RunConfig, resolve
from hagmeta.methods import METHODS
from hagmeta.scenarios import PROTOCOLS
from study.space import file as space_file
from study.space.design import FACTORIAL, FREE, Design, designs_of
from study.space.file import Axes, Dimension, Point, Search, Settings, SpaceFile, check_seeds
from study.space.one_split import with_one_split
from study.terminal.naming import short_names

__all__ = ["Dimension", "Point", "Search", "Space", "check_seeds", "names", "of_methods", "read"]

FOLDER = Path(__file__).resolve().parents[2] / "search_spaces"
MOST_CONFIGS = 10_000  # seconds to plan, days to run
MOST_RUNS = 1_000_000

Configs = dict[RunConfig, RunConfig]  # resolved to given, so that equal runs are kept once


@dataclass(frozen=True)
class Space:
    """The configurations and seeds of a study."""

    name: str
    description: str
    configs: tuple[RunConfig, ...]  # as given
    resolved: tuple[RunConfig, ...]  # the same, as they run
    seeds: tuple[int, ...]
    search: Search | None
    sample: tuple[Dimension, ...]
    notes: tuple[str, ...] = ()  # on how the configurations were completed
    designs: tuple[Design, ...] = ()

    @property
    def title(self) -> str:
        """The name and, if there is one, the description."""
        return f"{self.name}: {self.description}" if self.description else self.name

    def dimensions(self, config: RunConfig) -> tuple[Dimension, ...]:
        """Return the settings that a search samples for `config`: those that apply to it."""
        return tuple(dimension for dimension in self.sample if config.applies(dimension.key))


@dataclass(frozen=True)
class _Request:
    """The changes that a caller of ``read`` asks for; they also apply to included spaces."""

    quick: bool
    datasets: tuple[str, ...]
    settings: dict[str, Any]


def names() -> list[str]:
    """Return the names of the search spaces in this project."""
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
    """Read a space; datasets, seeds and settings given here replace those of the space.

    Args:
        source: The name of a space, a YAML file, or a mapping with the content of such a file.
        name: The name of the space and of the folder of its results. By default the name of the file, or
            ``study`` for a mapping.
        quick: Whether to read the small version.
        datasets: Datasets that replace those of the space.
        seeds: Seeds that replace those of the space.
        settings: Values of settings for all configurations.

    Returns:
        The space, with checked configurations.
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
    files = _with_included(file, path, quick)
    expanded = {id(each): _configs(each, request) for each in files}
    configs = _merged(expanded.values())
    designs = [design for each in files for design in _designs(each, expanded[id(each)], request)]
    given, notes = with_one_split(configs)
    if notes:
        split = {before: _feasible(config) for before, config in zip(configs, given, strict=True)}
        designs = [design.with_configs(split) for design in designs]
        configs = _merged({_feasible(config): config} for config in given)
    notes += [note for each in files if (note := _duplicates(each, expanded[id(each)], request))]
    fixed = [key for each in files for key in each.fixed if key not in typed]
    notes += [*idle_notes(configs.values(), typed), *idle_notes(configs.values(), fixed, everywhere=True)]
    space = Space(
        name=check_name(path.stem if name is None else name) + "-quick" * quick,
        description=file.description,
        configs=tuple(configs.values()),
        resolved=tuple(configs),
        seeds=file.seeds if seeds is None else check_seeds(seeds),
        search=file.search,
        sample=file.sample,
        notes=tuple(notes),
        designs=tuple(designs),
    )
    _check_size(space, file)
    _check_search(space, file)
    return space


def _typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings to their types; plug-ins come first, because they add settings."""
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
    """Return the space that compares methods: one configuration per method and dataset.

    Args:
        methods: Names, or references such as ``my.py:Mine``.
        datasets: Names of datasets.
        name: The name of the space and of the folder of its results; by default ``comparison``.
        seeds: The seeds to run; by default the first ten.
        settings: Values of settings. A method to which one does not apply ignores it.

    Returns:
        The space, with checked configurations.
    """
    if not datasets:
        raise UserError("--methods needs at least one --dataset to compare the methods on.")
    for each in datasets:
        space_file.check_dataset(each)
    for key in settings or {}:
        if key in ("method", "dataset"):
            raise UserError(f"{key} cannot be set here; use --methods and --dataset.")
    names = [METHODS.name_of(method) for method in methods]  # first, because plug-ins add settings
    typed = _typed(settings or {})
    configs: Configs = {}
    for dataset, method in itertools.product(datasets, names):
        try:
            config = RunConfig.of(**typed, method=method, dataset=dataset)
            configs.setdefault(_feasible(config), config)
        except UserError as error:
            raise UserError(f"{method} on {dataset}: {error}") from None
    return Space(
        name=check_name("comparison" if name is None else name),
        description=f"{', '.join(methods)} on {', '.join(short_names(datasets).values())}",
        configs=tuple(configs.values()),
        resolved=tuple(configs),
        seeds=check_seeds(range(space_file.DEFAULT_SEEDS) if seeds is None else seeds),
        search=None,
        sample=(),
        notes=tuple(idle_notes(configs.values(), typed)),
        designs=tuple(designs_of((), (), tuple(configs), tuple(configs))),
    )


def check_name(name: str) -> str:
    """Return `name`, or refuse it if a visible folder cannot have it."""
    if not name.strip() or name.startswith(".") or set(name) & {"/", "\0"}:
        raise UserError(
            f"{shown(name)} cannot name the folder of a study; expected no slash and no leading dot."
        )
    return name


def _find(name: str, folder: Path) -> Path:
    """Return the file of a space, given by its name or as a path relative to `folder`."""
    if name in names():
        return FOLDER / f"{name}.yaml"
    path = folder / name
    with contextlib.suppress(OSError, ValueError):  # the name is too long, or has a NUL
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return path
    choose("space (and no such file)", name, [*names(), "FILE.yaml"])
    raise UserError(f"{name!r}: no such file.")


def _with_included(file: SpaceFile, path: Path, quick: bool) -> list[SpaceFile]:
    """Return the file and all files that it includes, each once."""
    found: dict[Path, SpaceFile] = {}

    def visit(file: SpaceFile, path: Path, above: tuple[Path, ...]) -> None:
        found[path.resolve()] = file
        above = (*above, path.resolve())
        for node in file.include:
            name = node.text("an included space")
            with node.located():
                target = _find(name, path.parent)
            if target.resolve() in above:
                raise node.error(
                    f"{name} includes itself, directly or through another space; remove this include."
                )
            if target.resolve() in found:
                continue
            included = space_file.read(target, quick=quick)
            if included.search:
                raise node.error(f"{name} is a search and cannot be included.")
            visit(included, target, above)

    visit(file, path, ())
    return list(found.values())


def _configs(file: SpaceFile, request: _Request) -> Configs:
    """Return all configurations of a file, on the datasets of `request` if it has any."""
    if not file.datasets:  # it only includes other files
        return {}
    datasets = request.datasets or file.datasets
    return _expand(file, [(name, _cases(file, name)) for name in datasets], request)


def _duplicates(file: SpaceFile, configs: Configs, request: _Request) -> str:
    """Return a note if the combinations of a grid are fewer runs than they seem."""
    varies = {**file.grid, **file.one_at_a_time}
    datasets = request.datasets or file.datasets
    count = _count(file, [(name, _cases(file, name)) for name in datasets])
    idle = [key for key in varies if any(config.why_not(key) for config in configs.values())]
    if count == len(configs) or not idle:
        return ""
    return (
        f"{count - len(configs)} of {count} combinations equal others and run once, because "
        f"{' and '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect in some of them"
    )


def idle_notes(
    configs: Iterable[RunConfig], keys: Iterable[str], *, everywhere: bool = False
) -> Iterator[str]:
    """Yield a note for each setting that has no effect in some configurations.

    Args:
        configs: The configurations, as given.
        keys: Settings that the user gave.
        everywhere: Whether only to name settings that have no effect at all.
    """
    given = list(configs)
    for key in dict.fromkeys(keys):
        why = {config: reason for config in given if (reason := config.why_not(key))}
        if len(why) == len(given):
            yield next(iter(why.values()))
        elif why and not everywhere:
            methods = dict.fromkeys(without_hash(config.method) for config in why)
            yield f"`{key}` has no effect in {len(why)} of {len(given)} configurations: {', '.join(methods)}"


def _designs(file: SpaceFile, configs: Configs, request: _Request) -> list[Design]:
    """Return the designs of a file, or the one that it names."""
    centres = _configs(replace(file, one_at_a_time={}), request) if file.one_at_a_time else configs
    whole, around = tuple(configs), tuple(centres)
    found = designs_of(file.grid, file.one_at_a_time, whole, around, sampled=bool(file.search))
    said = file.design
    if said is None:
        return found if configs else []
    derived = [design for design in found if design.kind == said.kind]
    if not derived and not said.factors and said.kind != FREE:
        there = ", ".join(design.kind for design in found)
        raise file.top["design"].error(f"the axes of this space make no {said.kind} design, but: {there}.")
    of = derived[0] if derived else Design(said.kind, configs=around if said.kind == FACTORIAL else whole)
    factors = said.factors or tuple(key for key in of.factors if key not in said.repeated_for)
    return [replace(of, factors=factors, repeated_for=said.repeated_for)]


def _chosen(file: SpaceFile, settings: Mapping[str, Any]) -> SpaceFile:
    """Restrict a search to the values in `settings`: they replace the grid's and select cases."""
    cases = file.cases
    for key, value in settings.items():
        there = [case[key] for case in file.cases if key in case]
        if there and all(node.value != value for node in there):
            valid = ", ".join(dict.fromkeys(str(node.value) for node in there))
            raise there[0].error(f"no case of this search has {key} {value}; expected one of {valid}.")
        cases = tuple(case for case in cases if key not in case or case[key].value == value)
    return replace(file, grid={k: nodes for k, nodes in file.grid.items() if k not in settings}, cases=cases)


def _cases(file: SpaceFile, dataset: str) -> list[Settings]:
    """Return the cases for a dataset and for all datasets; if there are none, those of other datasets."""
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
            raise axes[key].error(f"{key} varies in this space, so it cannot be set to one value.")
    count = _count(file, cases_by_dataset)
    if count > MOST_CONFIGS:
        raise file.root.error(
            f"the space has {count:,} configurations; expected at most {MOST_CONFIGS:,}. "
            "Give fewer values, or replace grid by search and sample."
        )
    configs: Configs = {}
    for dataset, cases in cases_by_dataset:
        for case, point in itertools.product(cases, _product(file.grid)):
            for nodes in _around(file.fixed | case | point, file.one_at_a_time):
                resolved, config = _config(file, dataset, nodes, request)
                configs.setdefault(resolved, config)
    return configs


def _count(file: SpaceFile, cases_by_dataset: list[tuple[str, list[Settings]]]) -> int:
    """Return the number of combinations; some may be equal."""
    points = math.prod(len(nodes) for nodes in file.grid.values())
    points *= 1 + sum(len(nodes) for nodes in file.one_at_a_time.values())
    return sum(len(cases) for _, cases in cases_by_dataset) * points


def _product(grid: Axes) -> Iterator[Settings]:
    for nodes in itertools.product(*grid.values()):
        yield dict(zip(grid, nodes, strict=True))


def _around(centre: Settings, axes: Axes) -> Iterator[Settings]:
    """Yield the centre, then the centre with each value of each axis."""
    yield centre
    for key, nodes in axes.items():
        for node in nodes:
            yield centre | {key: node}


def _config(file: SpaceFile, dataset: str, nodes: Settings, request: _Request) -> tuple[RunConfig, RunConfig]:
    """Return a configuration, resolved and as given."""
    values = {key: node.value for key, node in nodes.items()} | request.settings | {"dataset": dataset}
    try:
        config = RunConfig.of(**values)
        return _feasible(config), config
    except UserError as error:
        # Each value alone is valid: report the place of the first setting that the error names.
        named = (nodes[word] for word in re.findall(r"\w+", str(error)) if word in nodes)
        place = next(named, file.top.get("datasets", file.root))
        raise place.error(f"on {dataset}: {error}") from None


def _feasible(config: RunConfig) -> RunConfig:
    """Resolve `config`; refuse more classes than the dataset has, if that is known before loading."""
    resolved = resolve(config)
    assert resolved.classes
    wanted, there = sum(resolved.classes), registry.describe(config.dataset, Path()).classes
    if there is not None and wanted > there:
        raise UserError(f"classes is {resolved.classes}, {wanted} in total, but the dataset has {there}.")
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
        raise file.root.error(
            f"{configs:,} configurations x {seeds:,} seeds; expected at most {MOST_RUNS:,} runs in total."
        )


def _check_search(space: Space, file: SpaceFile) -> None:
    """Refuse a search without validation classes, or with values that the other settings do not allow."""
    if space.search is None:
        return
    for config in space.configs:
        scored = config.val_classes or config.scored_on == "validation"
        if not scored or not PROTOCOLS[config.protocol].validates:
            raise file.top["search"].error(
                f"{space.search.objective} needs validation streams: set val_classes above 0 or scored_on: "
                "validation, and use the strict protocol."
            )
    values = {dimension.key: _values_to_try(dimension) for dimension in space.sample}
    sampled = {config: [dimension.key for dimension in space.dimensions(config)] for config in space.configs}
    if sum(len(values[key]) for keys in sampled.values() for key in keys) > MOST_CONFIGS:
        raise file.top["search"].error(
            f"there are more than {MOST_CONFIGS:,} pairs of a configuration and a value of sample; "
            "use fewer configurations or values."
        )
    for config, keys in sampled.items():
        if not keys:
            raise file.top["sample"].error(f"no setting of sample applies to {config.method}.")
        for key in keys:
            with file.top["sample"].value[key].located(f"on {config.dataset}: "):
                for value in values[key]:
                    _feasible(config.replace(**{key: value}))
        for node, point in zip(file.start, space.search.start, strict=True):
            with node.located(f"{config.method} on {config.dataset}: "):
                _feasible(config.replace(**{key: point[key] for key in point.keys() & set(keys)}))


def _values_to_try(dimension: Dimension) -> tuple[Any, ...]:
    """Return values to check with the other settings: all choices, or the ends of a range and an odd one."""
    if dimension.kind == "randint":
        return (*dimension.values, dimension.values[0] + 1)
    return dimension.values
