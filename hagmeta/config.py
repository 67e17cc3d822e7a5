"""RunConfig: every setting of a run but its seed, documented and validated here and nowhere else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from numbers import Real
from typing import Any

from hagmeta.common.errors import UserError, choose

PROTOCOLS = ("strict", "released")
ENCODERS = ("gcn", "gat")
LOSSES = ("categorical", "binary")
SELECTIONS = ("mean", "coverage", "influence")
RELEASED_QUERIES = 20  # a class, as the authors' code draws them
_UNTRAINED = ("proto-gcn", "proto-gat", "frozen")  # nothing between pre-training and the sessions
_UNTUNED = ("frozen", "cec", "meta-gnn")  # no gradient steps in a session, or inner steps of their own
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True}
_BOOLEANS |= {"false": False, "no": False, "off": False, "0": False}


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    only: tuple[str, ...] = (),
    but: tuple[str, ...] = (),
) -> Any:
    """A field with its documentation and its range; a ``None`` default is filled in by ``resolve``.

    It applies to every method, or to ``only`` some, or to all ``but`` some.
    """
    limits = {"at least": at_least, "at most": at_most, "above": above, "below": below}
    metadata = {"help": help, "choices": choices, "limits": limits, "only": only, "but": but}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One configuration. With one seed it makes a run."""

    dataset: str = option("debian", "a name of `python -m hagmeta datasets`, mat:PREFIX or npz:FILE")
    method: str = option("hag-meta", "the learning system")
    protocol: str = option("strict", "strict leaks nothing; released is the authors' code", choices=PROTOCOLS)
    classes: tuple[int, int, int] | None = option(
        None, "how many classes are base, novel-train and novel-test (default: the dataset's)"
    )
    drop_small: bool = option(False, "leave out classes with too few nodes instead of stopping")
    n_way: int | None = option(None, "new classes a session (default: the dataset's)", at_least=1)
    k_shot: int | None = option(None, "labelled nodes a new class (default: the dataset's)", at_least=1)
    sessions: int | None = option(None, "at most so many sessions (default: all that N allows)", at_least=1)
    gpil: bool = option(True, "meta-train by graph pseudo-incremental learning", only=("hag-meta",))
    nla: bool = option(True, "weigh support nodes by node-level attention", only=("hag-meta",))
    tla: bool = option(True, "weigh the loss by task-level attention", only=("hag-meta",))
    encoder: str = option("gcn", "the graph encoder", choices=ENCODERS, but=("proto-gcn", "proto-gat"))
    hidden: int = option(32, "width of the encoder's first layer", at_least=1, at_most=4096)
    embedding: int = option(16, "width of the encoder's output", at_least=1, at_most=4096)
    heads: int = option(
        4,
        "attention heads of the GAT encoder's first layer, side by side in hidden",
        at_least=1,
        at_most=4096,
        but=("proto-gcn",),
    )
    dropout: float = option(0.5, "share of hidden units dropped in training", at_least=0, below=1)
    learning_rate: float = option(0.005, "Adam's rate in pre-training and meta-training", above=0)
    weight_decay: float = option(0.0005, "Adam's weight decay", at_least=0)
    pretrain_epochs: int = option(2000, "at most so many epochs of pre-training", at_least=0)
    pretrain_patience: int = option(10, "stop after so many evaluations without a better one", at_least=1)
    episodes: int = option(1000, "at most so many episodes of meta-training", at_least=1, but=_UNTRAINED)
    validate_every: int = option(25, "episodes between two validations", at_least=1, but=_UNTRAINED)
    patience: int = option(
        10, "stop meta-training after so many validations without a better", at_least=1, but=_UNTRAINED
    )
    query_shot: int | None = option(
        None, "training queries a class (default: K under strict, 20 under released)", at_least=1
    )
    loss: str = option(
        "categorical",
        "cross-entropy, or the binary form the paper prints",
        choices=LOSSES,
        only=("hag-meta",),
    )
    finetune_steps: int = option(20, "gradient steps a session under strict", at_least=0, but=_UNTUNED)
    finetune_rate: float = option(0.005, "Adam's rate in a session", above=0, but=_UNTUNED)
    queries_per_class: int = option(50, "at most so many test nodes a class under strict", at_least=1)
    val_classes: int = option(
        0, "novel-train classes kept out of meta-training to validate on (0: validate on all)", at_least=0
    )
    inner_steps: int = option(5, "gradient steps on the supports of a task", at_least=0, only=("meta-gnn",))
    inner_rate: float = option(0.02, "their rate", above=0, only=("meta-gnn",))
    first_order: bool = option(False, "do not descend through the inner steps", only=("meta-gnn",))
    memory: int = option(10, "nodes kept of a class for replay", at_least=1, only=("er-gnn", "icarl"))
    selection: str = option(
        "mean",
        "which to keep: near the class mean, far from other classes, of most influence",
        choices=SELECTIONS,
        only=("er-gnn",),
    )
    distillation: float = option(1.0, "weight of the distillation loss", at_least=0, only=("icarl",))
    temperature: float = option(2.0, "softens what is distilled", above=0, only=("icarl",))
    cosine_scale: float = option(16.0, "multiplies the cosines of the classifier", above=0, only=("cec",))

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _typed(item, getattr(self, item.name))
            object.__setattr__(self, item.name, value)
            if value is not None:
                _check_range(item, value)
        if self.classes is not None and min(self.classes) < 1:
            raise UserError(f"classes is {self.classes}: each of the three counts must be at least 1.")
        if self.encoder == "gat" and self.hidden % self.heads:
            raise UserError(f"hidden is {self.hidden}; it must be a multiple of heads, {self.heads}.")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunConfig:
        """A configuration from keys and values of any origin; an unknown key is an error."""
        for key in values:
            choose("setting", key, (item.name for item in fields(cls)))
        return cls(**values)

    def applies(self, setting: str) -> bool:
        """Whether the configured method has a use for a setting."""
        metadata = _FIELDS[setting].metadata
        wanted = not metadata["only"] or self.method in metadata["only"]
        return wanted and self.method not in metadata["but"]

    def canonical(self) -> dict[str, Any]:
        """Plain JSON values, in the order of the fields, without settings that do not apply."""
        values = dataclasses.asdict(self)
        values["classes"] = list(self.classes) if self.classes else None
        return {name: value for name, value in values.items() if self.applies(name)}

    def hash(self) -> str:
        """Names this configuration: equal settings, equal hash, on any machine."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        return config_hash(self.canonical())


_FIELDS = {item.name: item for item in fields(RunConfig)}


def config_hash(canonical: Mapping[str, Any]) -> str:
    """The hash of a canonical configuration, as a record holds it."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _typed(item: dataclasses.Field[Any], value: Any) -> Any:
    """``value`` as the field's type, from text too (`--set KEY=VALUE`)."""
    kind = str(item.type)
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null", "")):
        if "None" in kind:
            return None
        raise UserError(f"{item.name} has no value; it must be {_readable(kind)}.")
    try:
        if kind.startswith("tuple"):
            parts = value.replace(",", " ").split() if isinstance(value, str) else list(value)
            if len(parts) != 3:
                raise ValueError
            return tuple(_whole(part) for part in parts)
        if kind.startswith("bool"):
            return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
        if isinstance(value, bool):
            raise ValueError
        if kind.startswith("int"):
            return _whole(value)
        if kind.startswith("float"):
            number = float(value)
            if not math.isfinite(number):
                raise ValueError
            return number + 0.0  # no negative zero: equal settings have equal hashes
        if not isinstance(value, str):
            raise ValueError
        return value
    except (ValueError, TypeError, KeyError, OverflowError):
        raise UserError(f"{item.name} is {value!r}; it must be {_readable(kind)}.") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _readable(kind: str) -> str:
    names = {"tuple": "three whole numbers B T E", "bool": "true or false", "int": "a whole number"}
    names |= {"float": "a number", "str": "text"}
    return next(text for start, text in names.items() if kind.startswith(start))


def _check_range(item: dataclasses.Field[Any], value: Any) -> None:
    if item.metadata["choices"]:
        choose(item.name, value, item.metadata["choices"])
    holds = {"at least": operator.ge, "at most": operator.le, "above": operator.gt, "below": operator.lt}
    for words, limit in item.metadata["limits"].items():
        if limit is not None and not holds[words](value, limit):
            raise UserError(f"{item.name} is {value}; it must be {words} {limit}.")


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Orders the values of a setting: numbers by size, NumPy's too, then names; what is absent comes last."""
    number = isinstance(value, Real) and value == value
    return (not number, float(value) if number else 0.0, str(value))


def parse_seeds(text: str) -> list[int]:
    """``10`` is the first ten seeds, ``3-5`` three of them, ``1,4,7`` those; without repetition."""
    given = text.strip()
    seeds: list[int] = []
    try:
        parts = [f"0-{int(given) - 1}"] if given.isdigit() else given.split(",")
        for part in parts:
            first, dash, last = part.partition("-")
            start, stop = int(first), int(last if dash else first) + 1
            if not 0 <= start < stop <= start + 10_000:
                raise ValueError
            seeds += range(start, stop)
        if len(set(seeds)) != len(seeds):
            raise ValueError
    except ValueError:
        raise UserError(f"seeds {text!r}: give a count (10), a range (0-9) or a list (1,4,7).") from None
    return seeds


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts of a command line; what they mean is for RunConfig to say."""
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {text!r} is not KEY=VALUE.")
        if key in settings:
            raise UserError(f"--set {key} is given twice: {settings[key]} and {value}.")
        settings[key] = value
    return settings
