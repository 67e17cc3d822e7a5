"""Write the parts of the reference that the code knows best, as Markdown."""

from __future__ import annotations

import inspect
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import Field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from analysis.references.comparable import spanned
from analysis.references.references import KINDS, read_references, tasks
from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.common.plugins.identity import is_identity
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS
from hagmeta.common.records.record_schema import schema
from hagmeta.common.settings.domains import Choice, Number, Whole
from hagmeta.common.settings.scopes import LABELS, TASK
from hagmeta.common.settings.setting import BY_METHOD, domain_of, written
from hagmeta.common.traits import ROLES
from hagmeta.config.run_config import OWNERS, REGISTRIES, SETTINGS, RunConfig, may_differ
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.methods import METHODS, Method, SessionLearning
from hagmeta.scenarios import PROTOCOLS
from hagmeta.scenarios.metrics import METRICS
from study.space import spaces as space

GROUPS = {  # headings, and the classes that declare the settings below them
    "Dataset, method and protocol": ("DatasetSettings", "MethodSettings", "ProtocolSettings"),
    "Task": ("TaskSettings",),
    "Labels": ("LabelSettings",),
    "Inputs and encoder": (
        "GraphSettings",
        "LayerSettings",
        "GatSettings",
        "EncoderSettings",
    ),
    "Pre-training and meta-training": ("TrainingSettings", "PretrainSettings", "MetaTrainingSettings"),
    "Sessions": ("SessionSettings", "SelfTrainingSettings", "MemorySettings"),
    "Predictions": ("ReadOutSettings",),
    "Closed-form methods": ("ClosedFormSettings",),
}
DIAGNOSTIC_FORMULAS = {
    "macro_old_node_accuracy": "Under `growing`: mean accuracy per class on nodes that were there before the "
    "session, over classes of earlier sessions with new nodes.",
    "macro_new_node_accuracy": "The same on nodes that arrived in the session.",
    "calibration_error": "Expected calibration error: the mean difference between confidence and accuracy, "
    "over bins of confidence.",
    "tempered_calibration_error": "The same after temperature scaling. The temperature of a run is fitted to "
    "validation nodes of the classes known at session 0, and stays fixed.",
    "chosen_shrinkage": "Share of equal variances in the covariance of posterior means, "
    "if it was chosen at session 0.",
    "nla_entropy": "Entropy of NLA's weights over the supports of a class, divided by that of equal weights. "
    "Averaged over the classes known by supports.",
    "tla_base_share": "Share of TLA's weights that the base task receives.",
    "tla_equal_share": "One divided by the number of tasks: the base share if all weights were equal.",
}
FORMULAS = {  # of docstrings, as the site sets them
    "BWT = 1/T sum over tasks j < T of M[T][j] - M[j][j]": (
        r"$\mathrm{BWT} = \frac{1}{T} \sum_{j < T} (M_{T,j} - M_{j,j})$"
    ),
    "M[t][j]": "$M_{t,j}$",
    "2 TP / (2 TP + FP + FN)": r"$2\,\mathrm{TP} / (2\,\mathrm{TP} + \mathrm{FP} + \mathrm{FN})$",
}
KEYS = {  # of a record, which its schema describes by name and type alone
    "config_hash": "hash of the configuration; the name of its folder",
    "revisions": "revisions of dataset, method and protocol above 1",
    "leaks": "whether the protocol leaks",
    "oracle": "whether the method is an oracle",
    "seed": "the seed of the run",
    "validation": "validation accuracies, see below",
    "environment": "device, memory, and versions of packages",
}
PROGRAMS: dict[str, tuple[str, list[str]]] = {  # as typed: the module of its main, and its arguments
    "hagmeta": ("hagmeta.__main__", []),
    "hagmeta datasets": ("hagmeta.__main__", ["datasets"]),
    "hagmeta datasets convert": ("hagmeta.__main__", ["datasets", "convert"]),
    "hagmeta fit": ("hagmeta.__main__", ["fit"]),
    "hagmeta learn": ("hagmeta.__main__", ["learn"]),
    "hagmeta predict": ("hagmeta.__main__", ["predict"]),
    "hagmeta-study": ("study.launch", []),
    "hagmeta-report": ("analysis.__main__", []),
    "hagmeta-report compare": ("analysis.__main__", ["compare"]),
    "hagmeta-report references": ("analysis.__main__", ["references"]),
}
WRONG_SPACES = (  # lines of a file, each with one mistake
    "datasets: [debain]",
    "datasets: debian",
    "datasets: [debian]\ngird: {nla: [true]}",
    "datasets: [debian]\nfixed: {hiden: 64}",
    "datasets: [debian]\nfixed: {hidden: wide}",
    "datasets: [debian]\nfixed: {dropout: 1.5}",
    "datasets: [debian]\nfixed: {nla: true}\ngrid: {nla: [false, true]}",
    "datasets: [debian]\nfixed: {n_way: 28}",
    "datasets: [debian]\nseeds: 0",
    "datasets: [debian]\nsample: {dropout: {uniform: [0, 0.5]}}",
    "datasets: [debian]\nsearch: {algorithm: optuna, samples: 8, objective: val_accuracy}\n"
    "sample: {dropout: {uniform: [0, 0.5]}}",
    "include: [tune]",
)
UNBROKEN = str.maketrans({"-": "\N{NON-BREAKING HYPHEN}", " ": "\N{NO-BREAK SPACE}"})
PARTS = ("matrix", "class_accuracy", "classes_met")  # which other metrics are made of
# A line of a class: `name: type = default  # comment`.
FIELD = re.compile(
    r"^    (?P<name>\w+): (?P<type>[^=#\n]+?)(?: = [^#\n]*?)?(?:  # (?P<comment>.+))?$", re.MULTILINE
)
DEFAULT = re.compile(r" \(default: (?P<text>[^()]+)\)$")  # at the end of a help text
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
ROOT = Path(__file__).resolve().parents[2]
WIDTH = "80"  # columns of a terminal, for --help


def settings() -> str:
    """Return every setting under the heading of its group."""
    groups: dict[str, list[str]] = {title: [] for title in GROUPS}
    for name in SETTINGS:
        groups.setdefault(_group_of(name), []).append(name)
    return "\n".join(
        f"## {title}\n\n" + "\n".join(map(_setting, names)) for title, names in groups.items() if names
    )


def methods() -> str:
    """Return a section per method: what it is, what it learns from, its defaults and its source."""
    return "\n\n".join(_method(name, METHODS[name]) for name in METHODS)


def dataset_table() -> str:
    """Return the counts and the default task of every dataset that has a name."""
    infos = [datasets.describe(name, Path()) for name in datasets.names()]
    rows = [
        [
            _code(info.name),
            *(
                f"{count:,}" if count is not None else "-"
                for count in (info.nodes, info.edges, info.features)
            ),
            "/".join(map(str, info.class_split or ())),
            f"{info.n_way}-way {info.k_shot}-shot".translate(UNBROKEN),
        ]
        for info in infos
    ]
    heads = ["name", "nodes", "edges", "features", "base/train/test", "task"]
    return _table(heads, rows, right=(1, 2, 3))


def dataset_contents() -> str:
    """Return what the nodes and classes of every dataset with a name are."""
    infos = [datasets.describe(name, Path()) for name in datasets.names()]
    return _table(["name", "content"], [[_code(info.name), info.description] for info in infos])


def metric_table() -> str:
    """Return every metric of a record: its key, its title in tables, and how it is computed."""
    rows = [
        [
            _code(each.name),
            each.title,
            _formula(each.name),
            "per session" if each.by_session else "per run",
            "" if each.name in PARTS else "higher" if each.higher_is_better else "lower",
        ]
        for each in BUILT_IN
    ]
    return _table(["key", "title", "value", "given", "better"], rows)


def diagnostic_table() -> str:
    """Return the values per session that only some records have."""
    rows = [[_code(each.name), each.title, DIAGNOSTIC_FORMULAS[each.name]] for each in DIAGNOSTICS]
    return _table(["key", "title", "value"], rows)


def record_table() -> str:
    """Return the keys of a record, from its JSON Schema."""
    content = schema()
    declared = {each.name for each in BUILT_IN}
    rows = [
        [
            _code(key) + (" *" if key in content["required"] else ""),
            _json_type(part),
            "[metric](#metrics)"
            if key in declared
            else _sentence(part.get("description", KEYS.get(key, ""))),
        ]
        for key, part in content["properties"].items()
    ]
    return _table(["key", "type", "content"], rows)


def space_errors() -> str:
    """Return wrong search spaces, each with the message that it gets."""
    shown = "```yaml\n{text}\n```\n\n```{{code-block}} text\n:class: wrapped\n\n{error}\n```"
    return "\n\n".join(shown.format(text=text, error=space_error(text)) for text in WRONG_SPACES)


def space_error(text: str) -> str:
    """Return the message that a file with this text gets, or raise a ValueError if it gets none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my_space.yaml"
        path.write_text(text + "\n")
        try:
            space.read(path)
        except UserError as error:
            return "error: " + str(error).replace(f"{folder}/", "")
    raise ValueError(f"no mistake: {text}")


def help_of(program: str) -> str:
    """Return what a program of ``PROGRAMS`` prints for ``--help``, in a block of code."""
    module, arguments = PROGRAMS[program]
    printed = io.StringIO()
    with _as_installed(program), redirect_stdout(printed), suppress(SystemExit):
        import_module(module).main([*arguments, "--help"])
    return f"```text\n{printed.getvalue().rstrip()}\n```"


def fields_of(path: str) -> str:
    """Return the fields that a class declares, with the comments on their lines."""
    module, _, name = path.rpartition(".")
    owner = getattr(import_module(module), name)
    rows = [
        [_code(field["name"]), _code(field["type"]), _sentence(field["comment"] or "")]
        for field in FIELD.finditer(inspect.getsource(owner))
        if field["name"] in owner.__annotations__
    ]
    return _table(["field", "type", "meaning"], [[cell.replace("|", "\\|") for cell in row] for row in rows])


def reference_table() -> str:
    """Return which graphs, methods and seeds the reference results have, and which methods they lack."""
    found = read_references()
    rows = []
    for dataset, own in tasks(found.records):
        config = own[0]["config"]
        counts = [
            str(len({record["config"]["method"] for record in found.of(kind, [dataset])})) for kind in KINDS
        ]
        task = f"{config['n_way']}-way {config['k_shot']}-shot"
        rows.append([_code(dataset), task, *counts, spanned(sorted({record["seed"] for record in own}))])
    there = {record["config"]["method"] for record in found.records}
    lacking = ", ".join(_code(name) for name in METHODS if name not in there and not is_identity(name))
    heads = ["graph", "task", *(f"{kind} methods" for kind in KINDS), "seeds"]
    return f"{_table(heads, rows, right=(2, 3))}\n\nMethods without references: {lacking or 'none'}."


def root_file(name: str) -> str:
    """Return a Markdown file of the project's root, with its links as a page of ``docs/project`` has them."""
    return LINK.sub(lambda link: f"]({_from_project(link['target'])})", (ROOT / name).read_text())


@cache
def users_of(setting: str) -> tuple[str, ...]:
    """Return the methods with which ``setting`` can have an effect, under some protocol."""
    found = [config.method for config in _configs() if config.applies(setting) or setting in config.idle]
    return tuple(dict.fromkeys(found))


@contextmanager
def _as_installed(program: str) -> Iterator[None]:
    """Let a program call itself by the name that an installation gives it, in a terminal of fixed width."""
    with patch.dict(os.environ, {"COLUMNS": WIDTH}), patch.object(sys, "argv", [program.split()[0]]):
        yield


@cache
def _configs() -> list[RunConfig]:
    """Every method with every protocol."""
    return [RunConfig.of(method=method, protocol=protocol) for method in METHODS for protocol in PROTOCOLS]


@cache
def _with_encoders() -> list[RunConfig]:
    return [RunConfig.of(encoder=encoder) for encoder in ENCODERS]


def _from_project(target: str) -> str:
    """A target relative to the root, seen from ``docs/project``."""
    if "://" in target or target.startswith("#"):
        return target
    if target.startswith("docs/"):
        return f"../{target.removeprefix('docs/')}"
    return target.lower() if target in ("CHANGELOG.md", "CONTRIBUTING.md") else f"../../{target}"


def _group_of(setting: str) -> str:
    owner = OWNERS[setting]
    listed = (title for title, owners in GROUPS.items() if owner.__name__ in owners)
    return next(listed, ", ".join(METHODS[method].traits.title for method in users_of(setting)))


def _setting(name: str) -> str:
    item = SETTINGS[name]
    facts = {
        "Values": _values(name, item),
        "Default": _default(name),
        "Part of": {TASK: "the task", LABELS: "the labels"}.get(item.metadata["scope"], ""),
        "Methods": _methods(users_of(name)),
        "Encoders": _encoders(name),
    }
    return f"### {name}\n\n{_sentence(_help(name))}\n\n{_listed(facts)}\n"


def _help(name: str) -> str:
    """The help of a setting without its default, which has a line of its own; its values are code."""
    text = DEFAULT.sub("", SETTINGS[name].metadata["help"])
    values = REGISTRIES.get(name) or getattr(domain_of(SETTINGS[name]), "names", ())
    return re.sub(rf"\b({'|'.join(map(re.escape, values))}): ", r"`\1`: ", text) if values else text


def _values(name: str, item: Field[Any]) -> str:
    if name in REGISTRIES:
        return ", ".join(map(_code, REGISTRIES[name])) + ", or a plug-in"
    domain = domain_of(item)
    if isinstance(domain, Choice):
        return ", ".join(map(_code, domain.names))
    if not isinstance(domain, Number):
        return str(domain)
    limits = [f"{word} {bound:,}" for word, bound in domain.limits.items() if _matters(word, bound)]
    plain = "integer" if isinstance(domain, Whole) else "number"
    number = f"{plain} ({' and '.join(limits)})" if limits else plain
    return " or ".join([*map(_code, domain.words), number])


def _matters(words: str, limit: float | None) -> bool:
    """Leave out upper limits that only catch typing errors."""
    return limit is not None and not (words == "at most" and limit >= 10**6)


def _defaults_by_method(name: str) -> dict[str, Any]:
    """The defaults of a setting that methods have their own for."""
    return {method: METHODS[method].all_defaults().get(name) for method in users_of(name)}


def _usual(values: Iterable[Any]) -> Any:
    values = list(values)
    return max(values, key=values.count)


def _default(name: str) -> str:
    default = SETTINGS[name].default
    if default is None:
        told = DEFAULT.search(SETTINGS[name].metadata["help"])
        return told["text"] if told else "chosen by the dataset or the protocol"
    if default is not BY_METHOD:
        return _value(default)
    own = _defaults_by_method(name)
    usual = _usual(own.values())
    others: dict[str, list[str]] = {}
    for method, value in own.items():
        if value != usual:
            others.setdefault(_value(value), []).append(method)
    parts = [f"{value} for {', '.join(map(_code, names))}" for value, names in others.items()]
    return "; ".join([_value(usual), *parts])


def _methods(using: Sequence[str]) -> str:
    """The methods that a setting is for; empty where it is for all."""
    without = [name for name in METHODS if name not in using]
    if without and len(without) < len(using):
        return f"all except {', '.join(map(_code, without))}"
    return ", ".join(map(_code, using)) if without else ""


def _encoders(name: str) -> str:
    """The encoders that a setting is for; empty where it is for all."""
    using = [config.encoder for config in _with_encoders() if config.idle.get(name) != "encoder"]
    return ", ".join(map(_code, using)) if len(using) < len(ENCODERS) else ""


def _method(name: str, method: type[Method]) -> str:
    traits = method.traits
    by_method = [key for key in SETTINGS if SETTINGS[key].default is BY_METHOD and name in users_of(key)]
    own = {key: _defaults_by_method(key) for key in by_method}
    own = {key: values[name] for key, values in own.items() if values[name] != _usual(values.values())}
    facts = {
        "Name": _code(name),
        "Role": ROLES[traits.role] + (", an oracle" if traits.oracle else ""),
        "Meta-training": method.meta_training.value,
        "Session learning": _session_learning(method),
        "Settings": _links(_own_settings(name)),
        "Defaults": ", ".join(_code(f"{key}: {written(value)}") for key, value in own.items()),
        "Fixed": ", ".join(_code(f"{key}: {written(value)}") for key, value in method.decides.items()),
        "May differ within a pack": _links(may_differ(RunConfig.of(method=name))),
        "Source": traits.citation,
    }
    return f"## {traits.title}\n\n{inspect.getdoc(method)}\n\n{_listed(facts)}"


def _session_learning(method: type[Method]) -> str:
    learning = method.session_learning
    return "no gradient steps" if learning is SessionLearning.NONE else learning.value


def _own_settings(method: str) -> list[str]:
    """The settings that a file of methods declares, and that this method uses."""
    owners = OWNERS
    return [name for name in SETTINGS if _is_of_methods(owners[name]) and method in users_of(name)]


def _is_of_methods(owner: type) -> bool:
    return owner.__module__.startswith("hagmeta.methods.") and owner.__module__ != "hagmeta.methods.base"


def _links(names: Iterable[str]) -> str:
    return ", ".join(f"[`{name}`](settings.md#{name})" for name in names)


def _formula(name: str) -> str:
    first = (inspect.getdoc(METRICS[name]) or "").partition("\n\n")[0]
    text = " ".join(first.split()).removeprefix("Return ")
    for plain, formula in FORMULAS.items():
        text = text.replace(plain, formula)
    return _sentence(text).replace("|", "\\|")


def _json_type(part: Mapping[str, Any]) -> str:
    if "const" in part:
        return f"`{part['const']}`"
    kinds = part["type"] if isinstance(part["type"], list) else [part["type"]]
    if "array" in kinds:
        return f"list of {_json_type(part['items'])}"
    limits = [
        f"{word} {part[key]:g}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in part
    ]
    return " ".join([" or ".join(kinds), *limits])


def _sentence(text: str) -> str:
    """The text with a capital letter, unless it begins with code, and a full stop."""
    text = " ".join(text.split())
    return text and text[0].upper() + text[1:].rstrip(".") + "."


def _listed(facts: Mapping[str, str]) -> str:
    """Facts with their titles, one per line; those without a text are left out."""
    return "\\\n".join(f"**{title}:** {text}" for title, text in facts.items() if text)


def _value(value: Any) -> str:
    return _code(written(value))


def _code(text: object) -> str:
    return f"`{text}`"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    lines = [list(heads), ["--:" if place in right else "---" for place in range(len(heads))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


GENERATORS: dict[str, Callable[..., str]] = {
    "settings": settings,
    "methods": methods,
    "datasets": dataset_table,
    "dataset-contents": dataset_contents,
    "metrics": metric_table,
    "diagnostics": diagnostic_table,
    "record": record_table,
    "help": help_of,
    "fields": fields_of,
    "file": root_file,
    "references": reference_table,
    "space-errors": space_errors,
}
