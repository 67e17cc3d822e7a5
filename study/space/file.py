"""Read one search-space file; check each part alone, then together with the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from hagmeta import datasets as registry
from hagmeta.common.errors import UserError, choose
from hagmeta.config.run_config import REGISTRIES, all_settings, check_name, typed
from study.space import marked_yaml
from study.space.design import KINDS, Design
from study.space.marked_yaml import LARGEST_NUMBER, Node

NEEDING_DATASETS = ("fixed", "grid", "cases", "one_at_a_time", "search", "sample")
KEYS = ("description", "datasets", *NEEDING_DATASETS, "seeds", "include", "design")
ALGORITHMS = ("optuna",)
OBJECTIVES = ("val_accuracy",)
DESIGN = ("kind", "factors", "repeated_for")
RANGES = ("uniform", "loguniform", "randint")
DEFAULT_SEEDS = 10
MOST_SEEDS = 10_000
MOST_SAMPLES = 100_000
NO_OPTION_FOR_SAMPLES = (
    "the number of samples belongs to the search space; edit `samples` in the file and repeat the command."
)

Point = dict[str, Any]  # values of some settings
Settings = dict[str, Node]
Axes = dict[str, list[Node]]


@dataclass(frozen=True)
class Search:
    """How a hyperparameter search samples and what it maximises."""

    algorithm: str
    samples: int
    objective: str
    group: int = 1  # samples that differ only in settings that may differ within a pack
    start: tuple[Point, ...] = ()  # samples that every search takes after the defaults


@dataclass(frozen=True)
class Dimension:
    """One sampled setting of a hyperparameter search."""

    key: str
    kind: str  # uniform, loguniform, randint (values: low and high, both included) or choice
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Return whether `value` is in the range or among the choices."""
        return value in self.values if self.kind == "choice" else self.values[0] <= value <= self.values[1]


@dataclass(frozen=True)
class SpaceFile:
    """A search-space file, or its ``quick`` version, with values of the right types."""

    root: Node
    top: dict[str, Node]  # the parts of the file, with the places to name in errors
    description: str
    datasets: tuple[str, ...]
    fixed: Settings
    grid: Axes
    cases: tuple[Settings, ...]
    one_at_a_time: Axes
    seeds: tuple[int, ...]
    search: Search | None
    sample: tuple[Dimension, ...]
    include: tuple[Node, ...]
    design: Design | None  # as the file says; None to derive it

    @property
    def start(self) -> tuple[Node, ...]:
        """The starting points of the search, with their places."""
        given = self.top["search"].value.get("start") if self.search else None
        return tuple(given.value) if given else ()

    def axes(self) -> Settings:
        """Return the settings that the file varies, with their places; nothing else may set them."""
        axes = {key: nodes[0] for part in (self.grid, self.one_at_a_time) for key, nodes in part.items()}
        for case in self.cases:
            axes |= {key: node for key, node in case.items() if key != "dataset"}
        return axes | {dimension.key: self.top["sample"].value[dimension.key] for dimension in self.sample}


def read(path: Path, *, quick: bool) -> SpaceFile:
    """Read and check the file at `path`, or its small version if `quick`."""
    return _checked(marked_yaml.read(path), path.name, quick)


def of_mapping(mapping: Mapping[str, Any], *, quick: bool) -> SpaceFile:
    """Check a mapping that has the content of a file."""
    return _checked(marked_yaml.of_mapping(mapping), "the space", quick)


def _checked(root: Node, name: str, quick: bool) -> SpaceFile:
    _load_plugins(root)
    top = _parts(root, name, quick)
    cases = _cases(top)
    file = SpaceFile(
        root=root,
        top=top,
        description=_description(top),
        datasets=_datasets(top, cases),
        fixed=_settings(top["fixed"], "fixed") if "fixed" in top else {},
        grid=_axes(top, "grid"),
        cases=cases,
        one_at_a_time=_axes(top, "one_at_a_time"),
        seeds=_seeds(top),
        search=_search(top),
        sample=_sample(top),
        include=tuple(top["include"].items("include")) if "include" in top else (),
        design=_design(top),
    )
    _check_needs(file)
    _check_overlaps(file)
    _check_start(file)
    _check_design(file)
    return file


def _load_plugins(node: Node) -> None:
    """Load all plug-ins that a file names, because they add settings."""
    if isinstance(node.value, list):
        for item in node.value:
            _load_plugins(item)
    elif isinstance(node.value, dict):
        for key, child in node.value.items():
            _load_plugins(child)
            for item in [child, *(child.value if isinstance(child.value, list) else ())]:
                if key in REGISTRIES and isinstance(item.value, str) and REGISTRIES[key].knows(item.value):
                    with item.located():
                        REGISTRIES[key].name_of(item.value)


def check_dataset(name: str) -> None:
    """Refuse an unknown or malformed dataset name; loading checks whether its files exist."""
    try:
        registry.describe(name, Path())
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # a path too long, with a NUL or an unknown user
        raise UserError(f"dataset {name!r} is not a valid path: {error}.") from None


def check_setting(key: str, value: Any) -> Any:
    """Return `value` as the type of the setting `key`."""
    if key == "dataset":
        raise UserError("dataset cannot be set here; use datasets (or --dataset).")
    if isinstance(value, dict):
        raise UserError(f"{key} is a mapping; expected a single value.")
    if key == "samples" and key not in all_settings():
        raise UserError(NO_OPTION_FOR_SAMPLES)
    return typed(key, value)


def check_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Return `seeds`; refuse too many, too large or repeated ones."""
    if not 1 <= len(seeds) <= MOST_SEEDS:
        raise UserError(f"there are {len(seeds):,} seeds; expected 1 to {MOST_SEEDS:,}.")
    for seed in seeds:
        if not 0 <= seed <= LARGEST_NUMBER:
            raise UserError(f"seed {seed} is outside the range 0 to {LARGEST_NUMBER}.")
    if len(set(seeds)) != len(seeds):
        repeated = next(seed for seed in seeds if list(seeds).count(seed) > 1)
        raise UserError(f"seed {repeated} is given twice.")
    return tuple(seeds)


def _parts(root: Node, name: str, quick: bool) -> dict[str, Node]:
    """Return the parts of a file; if `quick`, its ``quick`` section replaces some of them."""
    top = dict(root.mapping(name))
    _check_keys("key", top, (*KEYS, "quick"))
    given = top.pop("quick", None)
    changes = dict(given.mapping("quick")) if given else {}
    _check_keys("key of quick", changes, KEYS)
    if not quick:
        return top
    if given is None:
        raise root.error("the space has no quick version; add a quick section, or remove --quick.")
    if "fixed" in changes and "fixed" in top:
        fixed = top["fixed"].mapping("fixed") | changes["fixed"].mapping("fixed")
        changes["fixed"] = replace(changes["fixed"], value=fixed)
    return top | changes


def _check_keys(kind: str, given: Mapping[str, Node], valid: Iterable[str]) -> None:
    for key, node in given.items():
        with node.located():
            choose(kind, key, valid)


def _description(top: dict[str, Node]) -> str:
    return " ".join(top["description"].text("description").split()) if "description" in top else ""


def _dataset(node: Node, name: str) -> str:
    text = node.text(name)
    with node.located():
        check_dataset(text)
    return text


def _datasets(top: dict[str, Node], cases: Sequence[Settings]) -> tuple[str, ...]:
    """Return the datasets of a file; without a list, those of its cases."""
    if "datasets" in top:
        given = [_dataset(node, "a dataset") for node in top["datasets"].items("datasets")]
    else:
        given = [case["dataset"].value for case in cases if "dataset" in case]
    return tuple(dict.fromkeys(given))


def _setting(key: str, node: Node) -> Node:
    with node.located():
        return replace(node, value=check_setting(key, node.plain()))


def _settings(node: Node, name: str) -> Settings:
    return {key: _setting(key, value) for key, value in node.mapping(name).items()}


def _axes(top: dict[str, Node], name: str) -> Axes:
    axes = _nonempty(top, name)
    return {key: [_setting(key, value) for value in node.items(key)] for key, node in axes.items()}


def _nonempty(top: dict[str, Node], name: str) -> dict[str, Node]:
    """Return a mapping of settings; it is empty only if the file has no such part."""
    if name not in top:
        return {}
    settings = top[name].mapping(name)
    if not settings:
        raise top[name].error(f"{name} is empty; add settings with their values, or remove {name}.")
    names = all_settings()
    for key, node in settings.items():
        with node.located():
            check_name(key, names)
    return settings


def _cases(top: dict[str, Node]) -> tuple[Settings, ...]:
    return tuple(_case(node) for node in top["cases"].items("cases")) if "cases" in top else ()


def _case(node: Node) -> Settings:
    given = node.mapping("a case")
    if not given:
        raise node.error("a case is empty; add settings, or remove the case.")
    if "dataset" not in given:
        return _settings(node, "a case")
    _dataset(given["dataset"], "dataset")
    others = {key: value for key, value in given.items() if key != "dataset"}
    return {"dataset": given["dataset"]} | _settings(replace(node, value=others), "a case")


def _seeds(top: dict[str, Node]) -> tuple[int, ...]:
    if "seeds" not in top:
        return tuple(range(DEFAULT_SEEDS))
    node = top["seeds"]
    if not isinstance(node.value, list):
        return tuple(range(node.whole("seeds", 1, MOST_SEEDS)))
    seeds = [item.whole("a seed", 0, LARGEST_NUMBER) for item in node.items("seeds")]
    with node.located():
        return check_seeds(seeds)


def _search(top: dict[str, Node]) -> Search | None:
    if "search" not in top:
        return None
    parts = top["search"].mapping("search")
    _check_keys("key of search", parts, [item.name for item in fields(Search)])
    needed = [item.name for item in fields(Search) if item.default is MISSING]
    for key in needed:
        if key not in parts:
            raise top["search"].error(f"search has no {key}; expected {', '.join(needed)}.")
    for key, names in (("algorithm", ALGORITHMS), ("objective", OBJECTIVES)):
        if key in parts:
            text = parts[key].text(key)
            with parts[key].located():
                choose(f"search {key}", text, names)
    samples = parts["samples"].whole("samples", 1, MOST_SAMPLES)
    group = parts["group"].whole("group", 1, samples) if "group" in parts else 1
    given = {key: node.value for key, node in parts.items()}
    return Search(**given | {"samples": samples, "group": group, "start": _start(parts, samples)})


def _start(parts: dict[str, Node], samples: int) -> tuple[Point, ...]:
    """Return the starting points of a search. They follow the defaults and count as samples."""
    points = parts["start"].items("start") if "start" in parts else []
    if len(points) >= samples:
        raise parts["start"].error(
            f"start has {len(points)} points and samples is {samples}; expected samples of at least "
            f"{len(points) + 1}, because the first sample has the defaults."
        )
    return tuple(_point(node) for node in points)


def _point(node: Node) -> Point:
    if not node.mapping("a point of start"):
        raise node.error("a point of start is empty; add settings, or remove the point.")
    return {key: item.value for key, item in _settings(node, "a point of start").items()}


def _design(top: dict[str, Node]) -> Design | None:
    if "design" not in top:
        return None
    parts = top["design"].mapping("design")
    _check_keys("key of design", parts, DESIGN)
    if "kind" not in parts:
        raise top["design"].error(f"design has no kind; expected one of {', '.join(KINDS)}.")
    kind = parts["kind"].text("kind")
    with parts["kind"].located():
        choose("kind of design", kind, KINDS)
    named = [parts[key].items(key) if key in parts else [] for key in DESIGN[1:]]
    factors, repeated_for = (tuple(node.text("a setting") for node in nodes) for nodes in named)
    return Design(kind, factors, repeated_for)


def _check_design(file: SpaceFile) -> None:
    """Refuse a design with settings that the file does not vary."""
    parts = file.top["design"].value if file.design else {}
    axes = sorted(file.axes())
    for key in DESIGN[1:]:
        for node in parts[key].value if key in parts else ():
            if node.value not in axes:
                there = f"expected one of {', '.join(axes)}" if axes else "it varies none"
                raise node.error(f"design names {node.value}, which this space does not vary; {there}.")


def _sample(top: dict[str, Node]) -> tuple[Dimension, ...]:
    return tuple(_dimension(key, node) for key, node in _nonempty(top, "sample").items())


def _dimension(key: str, node: Node) -> Dimension:
    kinds = node.mapping(key)
    _check_keys("kind of range", kinds, (*RANGES, "choice"))
    if len(kinds) != 1:
        raise node.error(f"{key} has {len(kinds)} ranges; expected one of {', '.join(RANGES)} and choice.")
    [(kind, given)] = kinds.items()
    values = tuple(dict.fromkeys(_setting(key, item).value for item in given.items(kind)))
    if kind in RANGES:
        _check_range(key, kind, given, values)
    return Dimension(key, kind, values)


def _check_start(file: SpaceFile) -> None:
    """Refuse a starting point outside the ranges of ``sample``."""
    sampled = {dimension.key: dimension for dimension in file.sample}
    points = file.search.start if file.search else ()
    for node, point in zip(file.start, points, strict=True):
        for key, value in point.items():
            place = node.value[key]
            if key not in sampled:
                raise place.error(f"start sets {key}, but sample does not; expected a setting of sample.")
            if not sampled[key].holds(value):
                there = file.top["sample"].value[key]
                raise place.error(
                    f"start sets {key} to {value}, outside its range {there.shown()} ({there.spot}); "
                    "change one of them."
                )


def _check_range(key: str, kind: str, given: Node, values: tuple[Any, ...]) -> None:
    suitable = int if kind == "randint" else float
    if any(type(value) is not suitable for value in values):
        raise given.error(
            f"{key}: {kind} does not fit the type of this setting; use another range, or choice."
        )
    if len(values) != 2 or not values[0] < values[1]:
        raise given.error(f"{key}: {kind} is {given.shown()}; expected [low, high] with low below high.")
    if kind == "loguniform" and values[0] <= 0:
        raise given.error(f"{key}: loguniform is {given.shown()}; expected low above 0.")


def _check_needs(file: SpaceFile) -> None:
    """Refuse a part without the other parts that it needs."""
    if not file.datasets:
        for part in NEEDING_DATASETS:
            if part in file.top:
                raise file.top[part].error(f"{part} needs datasets, but datasets is missing.")
        if not file.include:
            raise file.root.error("datasets is missing; add a list with at least one dataset.")
    for case in file.cases:
        if "datasets" not in file.top and "dataset" not in case:
            place = next(iter(case.values()))
            raise place.error(
                "this case names no dataset, and the file has no list of datasets; add one of them."
            )
    for part, other in (("sample", "search"), ("search", "sample")):
        if part in file.top and other not in file.top:
            raise file.top[part].error(f"{part} is given without {other}; a search needs both.")
    if file.search and file.include:
        raise file.top["include"].error("a search cannot include other spaces; remove include.")


def _check_overlaps(file: SpaceFile) -> None:
    """Refuse settings that are set twice; only ``fixed`` and ``one_at_a_time`` may share one."""
    parts = {
        "fixed": file.fixed,
        "grid": {key: nodes[0] for key, nodes in file.grid.items()},
        "cases": {key: node for case in file.cases for key, node in case.items()},
        "sample": file.top["sample"].value if file.sample else {},
    }
    seen: Settings = {}
    for part, settings in parts.items():
        for key, node in settings.items():
            if key in seen:
                raise node.error(f"{part} sets {key}, but {seen[key].spot} also sets it; remove one of them.")
        seen |= settings
    for key, nodes in file.one_at_a_time.items():
        if key in seen and key not in file.fixed:
            raise nodes[0].error(
                f"one_at_a_time sets {key}, but {seen[key].spot} also sets it; remove one of them."
            )
