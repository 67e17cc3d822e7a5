"""From a YAML file to the configurations of a study, everything checked before anything starts.

A space's configurations are its datasets x its cases x its grid, each with what is fixed, and around each
of them the values of ``one_at_a_time``; then those of the spaces that it includes. A case that names a
dataset is for that dataset alone. Every error is one line with the file, the line and what would be valid.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from hagmeta import datasets as registry
from hagmeta.config import RunConfig
from hagmeta.errors import UserError, choose
from hagmeta.methods import METHODS
from hagmeta.pipeline import resolve

FOLDER = Path(__file__).resolve().parent.parent / "search_spaces"
ALGORITHMS = ("optuna",)
OBJECTIVES = ("val_accuracy",)
KEYS = "description datasets fallback fixed grid cases one_at_a_time seeds search sample include".split()
RANGES = ("uniform", "loguniform", "randint")
DATASETS_OWN = ("classes", "n_way", "k_shot")  # settings that another dataset need not bear
DEFAULT_SEEDS = 10

# What a hand-written file never reaches, and a mistaken or hostile one must not exceed.
MOST_BYTES = 100_000
MOST_NODES = 20_000  # of YAML, aliases counted each time: they can repeat and nest without end
MOST_LEVELS = 20
MOST_SEEDS = 10_000
MOST_CONFIGS = 100_000
MOST_RUNS = 1_000_000
LARGEST_NUMBER = 2**63 - 1

Configs = dict[RunConfig, RunConfig]  # as given, by what they resolve to: equal runs are kept once


@dataclass(frozen=True)
class Search:
    """How a hyperparameter search goes about it."""

    algorithm: str
    samples: int
    objective: str


@dataclass(frozen=True)
class Dimension:
    """One setting of a hyperparameter search, and where its values come from."""

    key: str
    kind: str  # uniform, loguniform, randint (values: low and high, both included) or choice
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Space:
    """A study's configurations and seeds."""

    name: str
    description: str
    configs: tuple[RunConfig, ...]
    seeds: tuple[int, ...]
    fallback: str | None
    search: Search | None
    sample: tuple[Dimension, ...]
    # What runs on the fallback in place of each dataset, and the settings given from outside the file.
    spare: Mapping[str, tuple[RunConfig, ...]] = field(default_factory=dict, compare=False, repr=False)
    given: frozenset[str] = frozenset()


def names() -> list[str]:
    """The spaces that ship with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(
    name_or_file: str,
    *,
    quick: bool = False,
    datasets: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Space:
    """Read a space; datasets, seeds and settings given here take the place of the file's."""
    for name in datasets:
        check_dataset(name)
    settings = dict(settings or {})
    for key, value in settings.items():
        _check_setting(key, value)
    path = _find(name_or_file, Path())
    section = _Section.read(path, quick)
    fallback = None if datasets else section.fallback
    request = _Request(quick, tuple(dict.fromkeys(datasets)), settings, fallback)
    tree = _with_included(section, request, path)
    configs = _merged(each.configs(request) for each in tree)
    spare = {}
    if fallback:
        for missing in dict.fromkeys(config.dataset for config in configs):
            with section.top["fallback"].located(f"{fallback} in place of {missing}: "):
                spare[missing] = tuple(_merged(each.spare(missing, request) for each in tree).values())
    space = Space(
        name=path.stem + ("-quick" if quick else ""),
        description=section.description,
        configs=tuple(configs.values()),
        seeds=_checked_seeds(seeds) if seeds is not None else section.seeds,
        fallback=fallback,
        search=section.search,
        sample=section.sample,
        spare=spare,
        given=frozenset(settings),
    )
    _check_size(space, section)
    if space.search:
        _check_search(space, section)
    return space


def replace_dataset(space: Space, missing: str, fallback: str) -> Space:
    """The space with ``fallback`` in place of a dataset that is not to be had."""
    affected = [config for config in space.configs if config.dataset == missing]
    if fallback == space.fallback and missing in space.spare:
        moved: Iterable[RunConfig] = space.spare[missing]
    else:
        dropped: dict[str, Any] = {key: None for key in DATASETS_OWN if key not in space.given}
        moved = [replace(config, dataset=fallback, **dropped) for config in affected]
    others = [config for config in space.configs if config.dataset != missing]
    configs = _merged({resolve(config): config} for config in (*others, *(moved if affected else ())))
    return replace(space, configs=tuple(configs.values()))


def check_dataset(name: str) -> None:
    """Refuse a dataset that there cannot be; whether its files are there is for loading to say."""
    try:
        registry.describe(name, Path())
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # paths too long, with a NUL, of no known user
        raise UserError(f"dataset {name!r} is no usable path: {error}.") from None


# --- one file -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Request:
    """What a caller of ``read`` asks for, handed on to included spaces."""

    quick: bool
    datasets: tuple[str, ...]
    settings: dict[str, Any]
    fallback: str | None


@dataclass(frozen=True)
class _Node:
    """A piece of YAML and where it stands."""

    value: Any  # a scalar, a list of nodes or a dict of nodes by name
    file: str
    line: int

    def error(self, text: str) -> UserError:
        return UserError(f"{self.file}:{self.line}: {text}")

    @contextmanager
    def located(self, prefix: str = "") -> Iterator[None]:
        """Errors from inside get this place."""
        try:
            yield
        except UserError as error:
            raise self.error(f"{prefix}{error}") from None

    def mapping(self, name: str) -> dict[str, _Node]:
        if not isinstance(self.value, dict):
            raise self.error(f"{name} is {self.shown()}; it must be a mapping of names to values.")
        return self.value

    def items(self, name: str) -> list[_Node]:
        if not isinstance(self.value, list):
            raise self.error(f"{name} is {self.shown()}; it must be a list in square brackets.")
        if not self.value:
            raise self.error(f"{name} is an empty list; give at least one value.")
        return self.value

    def text(self, name: str) -> str:
        if not isinstance(self.value, str):
            raise self.error(f"{name} is {self.shown()}; it must be text.")
        return self.value

    def whole(self, name: str, least: int, most: int) -> int:
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.error(f"{name} is {self.shown()}; it must be a whole number, {least} to {most:,}.")
        return self.value

    def plain(self) -> Any:
        """The value without its places; a list becomes a tuple."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return tuple(node.plain() for node in self.value)
        return self.value

    def shown(self) -> str:
        if isinstance(self.value, list | dict):
            return "a list" if isinstance(self.value, list) else "a mapping"
        text = "empty" if self.value is None else repr(self.value)
        return text if len(text) <= 60 else f"{text[:60]}..."


Settings = dict[str, _Node]
Axes = dict[str, list[_Node]]


@dataclass(frozen=True)
class _Section:
    """One file, or its ``quick`` version, with every part checked by itself."""

    root: _Node
    top: dict[str, _Node]
    description: str
    datasets: tuple[str, ...]
    fallback: str | None
    fixed: Settings
    grid: Axes
    cases: tuple[Settings, ...]
    one_at_a_time: Axes
    seeds: tuple[int, ...]
    search: Search | None
    sample: tuple[Dimension, ...]

    @classmethod
    def read(cls, path: Path, quick: bool) -> _Section:
        root = _Yaml(path).root()
        top = _top_keys(root, path, quick)
        section = cls(
            root=root,
            top=top,
            description=" ".join(top["description"].text("description").split())
            if "description" in top
            else "",
            datasets=_datasets(top),
            fallback=_fallback(top),
            fixed=_settings(top["fixed"], "fixed") if "fixed" in top else {},
            grid=_axes(top, "grid"),
            cases=_cases(top),
            one_at_a_time=_axes(top, "one_at_a_time"),
            seeds=_seeds(top),
            search=_search(top),
            sample=_sample(top),
        )
        section._check_together()
        return section

    def configs(self, request: _Request) -> Configs:
        """All configurations, on the request's datasets where it names any."""
        names = request.datasets or self.all_datasets()
        return self._expand([(name, self._cases_of(name)) for name in names], request)

    def spare(self, missing: str, request: _Request) -> Configs:
        """What runs on the fallback in place of a dataset: the fallback's own cases, if it has any."""
        assert request.fallback
        if missing not in self.all_datasets():
            return {}
        cases = self._cases_of(request.fallback, instead_of=missing)
        return self._expand([(request.fallback, cases)], request, without=("classes",))

    def all_datasets(self) -> tuple[str, ...]:
        own = (case["dataset"].value for case in self.cases if "dataset" in case)
        return self.datasets or tuple(dict.fromkeys(own))

    def axes(self) -> dict[str, _Node]:
        """What the file varies, and where: nothing else may set it."""
        axes = {key: nodes[0] for part in (self.grid, self.one_at_a_time) for key, nodes in part.items()}
        for case in self.cases:
            axes |= {key: node for key, node in case.items() if key != "dataset"}
        if "sample" in self.top:
            axes |= self.top["sample"].value
        return axes

    def _cases_of(self, dataset: str, instead_of: str | None = None) -> list[Settings]:
        """Cases for a dataset: its own and everyone's, or else all that there are."""
        own = [case for case in self.cases if "dataset" not in case or case["dataset"].value == dataset]
        if own or not self.cases:
            return own or [{}]
        if instead_of is None:
            return list(self.cases)
        cases = [case for case in self.cases if case["dataset"].value == instead_of]
        return [{key: node for key, node in case.items() if key not in DATASETS_OWN} for case in cases]

    def _expand(
        self,
        cases_of: list[tuple[str, list[Settings]]],
        request: _Request,
        without: tuple[str, ...] = (),
    ) -> Configs:
        axes = self.axes()
        for key in request.settings:
            if key in axes:
                raise axes[key].error(f"{key} varies in this space; it cannot be set to one value as well.")
        around = 1 + sum(map(len, self.one_at_a_time.values()))
        points = math.prod(map(len, self.grid.values())) * around
        if sum(len(cases) for _, cases in cases_of) * points > MOST_CONFIGS:
            raise self.root.error(f"the space has more than {MOST_CONFIGS:,} configurations.")
        fixed = {key: node for key, node in self.fixed.items() if key not in without}
        configs: Configs = {}
        for dataset, cases in cases_of:
            for case, point in itertools.product(cases, _product(self.grid)):
                for nodes in _around(fixed | case | point, self.one_at_a_time):
                    resolved, config = self._config(dataset, nodes, request.settings)
                    configs.setdefault(resolved, config)
        return configs

    def _config(self, dataset: str, nodes: Settings, settings: dict[str, Any]) -> tuple[RunConfig, RunConfig]:
        values = {key: node.plain() for key, node in nodes.items()} | settings | {"dataset": dataset}
        try:
            config = RunConfig(**values)
            resolved = resolve(config)
            _check_classes(resolved)
        except UserError as error:
            # Each value is valid by itself: the place is that of the first setting that the error names.
            named = (nodes[word] for word in re.findall(r"\w+", str(error)) if word in nodes)
            place = next(named, self.top.get("datasets", self.root))
            raise place.error(f"on {dataset}: {error}") from None
        return resolved, config

    def _check_together(self) -> None:
        if not (self.datasets or self.cases or "include" in self.top):
            raise self.root.error("datasets is missing: give a list of at least one.")
        for case in self.cases:
            if not self.datasets and "dataset" not in case:
                place = next(iter(case.values()))
                raise place.error("this case names no dataset, and there is no list of datasets.")
        varied: dict[str, _Node] = {}
        sample = self.top["sample"].value if "sample" in self.top else {}
        in_cases = {key: node for case in self.cases for key, node in case.items()}
        parts = {"fixed": self.fixed, "grid": {key: nodes[0] for key, nodes in self.grid.items()}}
        parts |= {"cases": in_cases, "sample": sample}
        for part, settings in parts.items():
            for key, node in settings.items():
                if key in varied:
                    raise node.error(f"{part} sets {key}, which line {varied[key].line} sets already.")
            varied |= settings
        # What is fixed may be the centre that one_at_a_time goes around; what varies may not.
        for key, nodes in self.one_at_a_time.items():
            if key in varied and key not in self.fixed:
                line = varied[key].line
                raise nodes[0].error(f"one_at_a_time varies {key}, which line {line} varies already.")
        for part, other in (("sample", "search"), ("search", "sample")):
            if part in self.top and other not in self.top:
                raise self.top[part].error(f"{part} is given without {other}; a search needs both.")
        if self.search and "include" in self.top:
            raise self.top["include"].error("a search cannot include other spaces.")


def _top_keys(root: _Node, path: Path, quick: bool) -> dict[str, _Node]:
    """The file's parts, those of ``quick`` in their place where that is asked for."""
    top = dict(root.mapping(path.name))
    _check_keys("key", top, (*KEYS, "quick"))
    given = top.pop("quick", None)
    changes = dict(given.mapping("quick")) if given else {}
    _check_keys("key of quick", changes, KEYS)
    if not quick:
        return top
    if given is None:
        raise root.error("the space has no quick version; add quick: or leave --quick out.")
    if "fixed" in changes and "fixed" in top:
        fixed = top["fixed"].mapping("fixed") | changes["fixed"].mapping("fixed")
        changes["fixed"] = replace(changes["fixed"], value=fixed)
    return top | changes


def _check_keys(kind: str, given: Mapping[str, _Node], valid: Iterable[str]) -> None:
    for key, node in given.items():
        with node.located():
            choose(kind, key, valid)


def _check_setting(key: str, value: Any) -> None:
    if key == "dataset":
        raise UserError("dataset cannot be set here; datasets has a list of its own (or --dataset).")
    if isinstance(value, dict):
        raise UserError(f"{key} is a mapping; it must be a single value.")
    RunConfig.from_mapping({key: value})
    if key == "method":
        choose("method", value, METHODS)


def _setting(key: str, node: _Node) -> _Node:
    with node.located():
        _check_setting(key, node.plain())
    return node


def _settings(node: _Node, name: str) -> Settings:
    return {key: _setting(key, value) for key, value in node.mapping(name).items()}


def _axes(top: dict[str, _Node], name: str) -> Axes:
    if name not in top:
        return {}
    axes = top[name].mapping(name)
    if not axes:
        raise top[name].error(f"{name} is empty; give settings and their values, or leave it out.")
    _check_keys("setting", axes, [item.name for item in fields(RunConfig)])
    return {key: [_setting(key, value) for value in node.items(key)] for key, node in axes.items()}


def _dataset(node: _Node, name: str) -> str:
    text = node.text(name)
    with node.located():
        check_dataset(text)
    return text


def _datasets(top: dict[str, _Node]) -> tuple[str, ...]:
    nodes = top["datasets"].items("datasets") if "datasets" in top else []
    return tuple(dict.fromkeys(_dataset(node, "a dataset") for node in nodes))


def _fallback(top: dict[str, _Node]) -> str | None:
    if "fallback" not in top or top["fallback"].value is None:
        return None
    return _dataset(top["fallback"], "fallback")


def _cases(top: dict[str, _Node]) -> tuple[Settings, ...]:
    cases = []
    for node in top["cases"].items("cases") if "cases" in top else []:
        case = dict(node.mapping("a case"))
        if not case:
            raise node.error("a case is empty; give its settings.")
        dataset = case.pop("dataset", None)
        if dataset:
            _dataset(dataset, "dataset")
        settings = _settings(replace(node, value=case), "a case")
        cases.append(({"dataset": dataset} if dataset else {}) | settings)
    return tuple(cases)


def _seeds(top: dict[str, _Node]) -> tuple[int, ...]:
    if "seeds" not in top:
        return tuple(range(DEFAULT_SEEDS))
    node = top["seeds"]
    if not isinstance(node.value, list):
        return tuple(range(node.whole("seeds", 1, MOST_SEEDS)))
    seeds = [item.whole("a seed", 0, LARGEST_NUMBER) for item in node.items("seeds")]
    with node.located():
        return _checked_seeds(seeds)


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    if not 1 <= len(seeds) <= MOST_SEEDS:
        raise UserError(f"there are {len(seeds):,} seeds; valid are 1 to {MOST_SEEDS:,}.")
    if min(seeds) < 0 or max(seeds) > LARGEST_NUMBER:
        raise UserError(f"a seed is outside 0 to {LARGEST_NUMBER}.")
    if len(set(seeds)) != len(seeds):
        raise UserError("a seed is given twice.")
    return tuple(seeds)


def _search(top: dict[str, _Node]) -> Search | None:
    if "search" not in top:
        return None
    parts = top["search"].mapping("search")
    valid = [item.name for item in fields(Search)]
    _check_keys("key of search", parts, valid)
    for key in valid:
        if key not in parts:
            raise top["search"].error(f"search has no {key}; it needs {', '.join(valid)}.")
    for key, names in (("algorithm", ALGORITHMS), ("objective", OBJECTIVES)):
        with parts[key].located():
            choose(f"search {key}", parts[key].text(key), names)
    samples = parts["samples"].whole("samples", 1, MOST_CONFIGS)
    return Search(parts["algorithm"].value, samples, parts["objective"].value)


def _sample(top: dict[str, _Node]) -> tuple[Dimension, ...]:
    if "sample" not in top:
        return ()
    parts = top["sample"].mapping("sample")
    if not parts:
        raise top["sample"].error("sample is empty; give settings and their ranges.")
    _check_keys("setting", parts, [item.name for item in fields(RunConfig)])
    return tuple(_dimension(key, node) for key, node in parts.items())


def _dimension(key: str, node: _Node) -> Dimension:
    kinds = node.mapping(key)
    _check_keys("kind of range", kinds, (*RANGES, "choice"))
    if len(kinds) != 1:
        raise node.error(f"{key} has {len(kinds)} ranges; it must have one of {', '.join(RANGES)}, choice.")
    [(kind, given)] = kinds.items()
    nodes = [_setting(key, item) for item in given.items(kind)]
    if kind in RANGES:
        _check_range(key, kind, given, nodes)
    return Dimension(key, kind, tuple(item.plain() for item in nodes))


def _check_range(key: str, kind: str, given: _Node, nodes: list[_Node]) -> None:
    numbers = [item.value for item in nodes if type(item.value) in (int, float)]
    if len(numbers) != len(nodes) or len(nodes) != 2:
        raise given.error(f"{key}: {kind} needs two numbers, [low, high].")
    low, high = numbers
    field_type = str(next(item.type for item in fields(RunConfig) if item.name == key))
    if not field_type.startswith("int" if kind == "randint" else "float"):
        raise given.error(f"{key}: {kind} does not suit this setting; use another range or choice.")
    if not low < high:
        raise given.error(f"{key}: {kind} is [{low}, {high}]; low must be below high.")
    if kind == "loguniform" and low <= 0:
        raise given.error(f"{key}: loguniform is [{low}, {high}]; low must be above 0.")
    if kind == "randint" and not all(isinstance(number, int) for number in numbers):
        raise given.error(f"{key}: randint is [{low}, {high}]; both must be whole numbers.")


# --- all together ---------------------------------------------------------------------------------------


def _find(name: str, folder: Path) -> Path:
    """A space of ours by its name, or a file."""
    if name in names():
        return FOLDER / f"{name}.yaml"
    path = folder / name
    if path.suffix not in (".yaml", ".yml"):
        choose("space", name, [*names(), "FILE.yaml"])
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):  # a name too long, or with a NUL
        pass
    raise UserError(f"{name!r}: there is no such file; spaces by name: {', '.join(names())}.")


def _with_included(section: _Section, request: _Request, path: Path) -> list[_Section]:
    """The file and all that it includes, each once: a second time would add nothing."""
    found: dict[Path, _Section] = {}

    def visit(section: _Section, path: Path, above: tuple[Path, ...]) -> None:
        found[path.resolve()] = section
        above = (*above, path.resolve())
        for node in section.top["include"].items("include") if "include" in section.top else []:
            name = node.text("an included space")
            with node.located():
                target = _find(name, path.parent)
            if target.resolve() in above:
                raise node.error(f"{name} includes itself, directly or through others.")
            if target.resolve() in found:
                continue
            included = _Section.read(target, request.quick)
            if included.search:
                raise node.error(f"{name} is a search, which cannot be included.")
            visit(included, target, above)

    visit(section, path, ())
    return list(found.values())


def _merged(parts: Iterable[Configs]) -> Configs:
    configs: Configs = {}
    for part in parts:
        for resolved, config in part.items():
            configs.setdefault(resolved, config)
    return configs


def _product(grid: Axes) -> Iterator[Settings]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _around(centre: Settings, axes: Axes) -> Iterator[Settings]:
    """The centre, then each value of each axis alone."""
    yield centre
    for key, nodes in axes.items():
        for node in nodes:
            yield centre | {key: node}


def _check_classes(config: RunConfig) -> None:
    """Refuse more classes than the dataset has, where that is known before it is loaded."""
    assert config.classes
    there = registry.describe(config.dataset, Path()).classes
    if there is not None and sum(config.classes) > there:
        raise UserError(f"classes is {config.classes}, more than the {there} that the dataset has.")


def _check_size(space: Space, section: _Section) -> None:
    if len(space.configs) * len(space.seeds) > MOST_RUNS:
        raise section.root.error(
            f"{len(space.configs):,} configurations x {len(space.seeds):,} seeds "
            f"are more than {MOST_RUNS:,} runs."
        )


def _check_search(space: Space, section: _Section) -> None:
    place = section.top["search"]
    for config in space.configs:
        if not config.val_classes or config.protocol != "strict":
            raise place.error("a search needs val_classes above 0 and the strict protocol to score by.")
    values = [(dimension, value) for dimension in space.sample for value in _probes(dimension)]
    if len(values) * len(space.configs) > MOST_CONFIGS:
        raise place.error(f"the search has more than {MOST_CONFIGS:,} configurations to check.")
    for config, (dimension, value) in itertools.product(space.configs, values):
        with section.top["sample"].value[dimension.key].located(f"on {config.dataset}: "):
            _check_classes(resolve(replace(config, **{dimension.key: value})))


def _probes(dimension: Dimension) -> tuple[Any, ...]:
    """Values to try beside the other settings: of a range its ends, and one that is not round."""
    if dimension.kind == "randint":
        return (*dimension.values, dimension.values[0] + 1)
    return dimension.values


# --- YAML with places -----------------------------------------------------------------------------------


class _Yaml:
    """One file's text as nodes. PyYAML's own loader keeps no places and lets a second key win."""

    def __init__(self, path: Path) -> None:
        self._path, self._left = path, MOST_NODES

    def root(self) -> _Node:
        try:
            composed = yaml.compose(self._text(), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._error(f"not YAML: {error.problem or error.context}", mark) from None
        except RecursionError:
            raise self._error("too deeply nested.") from None
        except Exception as error:  # PyYAML lets some through, such as chr()'s of an escape out of range
            reason = " ".join(str(error).split())
            raise self._error(f"not YAML: {reason}") from None
        if composed is None:
            raise self._error("the file is empty.")
        return self._node(composed, 0)

    def _text(self) -> str:
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise self._error(f"the file is larger than {MOST_BYTES:,} bytes.")
            return content.decode()
        except OSError as error:
            raise UserError(f"{self._path} cannot be read: {error.strerror or error}.") from None
        except UnicodeDecodeError:
            raise self._error("the file is not UTF-8 text.") from None

    def _error(self, text: str, mark: yaml.Mark | None = None) -> UserError:
        return UserError(f"{self._path}:{mark.line + 1 if mark else 1}: {text}")

    def _node(self, node: yaml.Node, level: int) -> _Node:
        self._left -= 1
        if self._left < 0 or level > MOST_LEVELS:
            raise self._error("too much, or too deeply nested (aliases?).", node.start_mark)
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, level)
        elif isinstance(node, yaml.SequenceNode):
            value = [self._node(item, level + 1) for item in node.value]
        else:
            value = self._scalar(node)
        return _Node(value, str(self._path), node.start_mark.line + 1)

    def _mapping(self, node: yaml.MappingNode, level: int) -> dict[str, _Node]:
        found: dict[str, _Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error("a key must be a name.", key.start_mark)
            if key.value in found:
                line = found[key.value].line
                raise self._error(f"{key.value!r} is given twice, first in line {line}.", key.start_mark)
            # An error about a key or its value is looked for where the key stands.
            found[key.value] = replace(self._node(value, level + 1), line=key.start_mark.line + 1)
        return found

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except Exception:  # whatever int(), float() and datetime() raise
            raise self._error(f"{node.value[:60]!r} cannot be read as {node.tag}.", node.start_mark) from None
        if isinstance(value, str) and not value.replace("\n", " ").isprintable():
            raise self._error(f"{value[:60]!r} has unprintable characters.", node.start_mark)
        if not isinstance(value, str | int | float | None):
            raise self._error(f"{node.value[:60]!r} is neither text nor a number.", node.start_mark)
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            raise self._error(f"{node.value[:60]!r} is too large a number.", node.start_mark)
        return value
