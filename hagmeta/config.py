"""RunConfig: every setting of a run but its seed, put together from those that the rooms declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hagmeta import datasets
from hagmeta.common.errors import UserError, choose
from hagmeta.common.records import config_hash
from hagmeta.common.settings import ALWAYS, BY_METHOD, Settings
from hagmeta.datasets import DatasetSettings
from hagmeta.methods import METHODS, Method, SessionLearning
from hagmeta.phases.settings import PhaseSettings
from hagmeta.protocol import PROTOCOLS, make_protocol
from hagmeta.protocol.streams import check_ways, half_of

IDENTITY = ("dataset", "method", "protocol")  # named first wherever settings are listed
_OWN = {method.own_settings: None for method in METHODS.values() if method.own_settings}
# The last base comes first in the order of the fields; one that extends another stands before it.
_BASES = sorted(reversed(_OWN), key=lambda own: len(own.__mro__), reverse=True)
_MethodsOwn: Any = make_dataclass("_MethodsOwn", [], bases=tuple(_BASES), frozen=True, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class RunConfig(_MethodsOwn, PhaseSettings, DatasetSettings):
    """One configuration. With one seed it makes a run."""

    def __post_init__(self) -> None:
        method = METHODS.get(str(self.method), Method)  # an unknown one is refused later
        for name, value in method.all_defaults().items():
            if getattr(self, name) is BY_METHOD:
                object.__setattr__(self, name, value)
        super().__post_init__()

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunConfig:
        """A configuration from keys and values of any origin; an unknown key is an error."""
        for key in values:
            choose("setting", key, SETTINGS)
        return cls(**values)

    @classmethod
    def from_record(cls, config: Mapping[str, Any]) -> RunConfig:
        """The configuration that a record holds: settings that came later have their birth values."""
        return cls.from_mapping(_births() | dict(config))

    def applies(self, setting: str) -> bool:
        """Whether a setting is the user's to decide, under the configured method and protocol."""
        return setting in self._applying

    @cached_property
    def _applying(self) -> set[str]:
        method = METHODS.get(self.method)
        if method is None:  # it is refused where the configuration is resolved
            return {name for name, owner in OWNERS.items() if not issubclass(owner, tuple(_OWN))}
        decided = _decided(self)
        concerned = {owner: owner.concerns(method) for owner in set(OWNERS.values())}
        applying = {name for name, owner in OWNERS.items() if concerned[owner] and name not in decided}
        for name in tuple(applying):
            about = SETTINGS[name].metadata
            other, value = about["only_with"] or ("", None)
            configured = getattr(self, other) if other and about["birth"] is not ALWAYS else value
            if decided.get(other, configured) != value:
                applying.remove(name)
        return applying

    def canonical(self) -> dict[str, Any]:
        """Plain JSON values, without settings that do not apply."""
        values = {name: getattr(self, name) for name in SETTINGS if self.applies(name)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def hash(self) -> str:
        """Names this configuration: equal settings, equal hash, on any machine."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        return config_hash(self.canonical(), self.unhashed(), self.revisions())

    def unhashed(self) -> list[str]:
        """Settings that came later and say what was done before: with them the hash is what it was."""
        return [name for name, birth in self.births().items() if getattr(self, name) == birth]

    def births(self) -> dict[str, Any]:
        """Of the settings that came later, what was done before them: for readers of older records."""
        return {name: birth for name, birth in _births().items() if self.applies(name)}

    def revisions(self) -> dict[str, int]:
        """Of dataset, method and protocol, where above the first: part of the hash."""
        method = METHODS.get(self.method)
        all_three = {
            "dataset": datasets.revision(self.dataset),
            "method": method.revision if method else 1,
            "protocol": PROTOCOLS[self.protocol].revision,
        }
        return {name: revision for name, revision in all_three.items() if revision > 1}

    def given(self) -> list[str]:
        """Of a resolved configuration, the settings that would be otherwise if they were not given."""
        return [name for name in self.canonical() if name not in IDENTITY and self._is_given(name)]

    def _is_given(self, name: str) -> bool:
        try:
            changes: dict[str, Any] = {name: SETTINGS[name].default}
            return resolve(replace(self, **changes)) != self
        except UserError:  # it would not do without
            return True


_FIELDS = {item.name: item for item in fields(RunConfig)}
SETTINGS = {name: _FIELDS[name] for name in (*IDENTITY, *(name for name in _FIELDS if name not in IDENTITY))}
OWNERS: dict[str, type[Settings]] = {}
for _group in reversed(RunConfig.__mro__):
    for _name in vars(_group).get("__annotations__", {}):
        if _name in OWNERS:
            raise TypeError(
                f"the setting {_name} is declared by {OWNERS[_name].__name__} and {_group.__name__}"
            )
        OWNERS[_name] = _group


def resolve(config: RunConfig) -> RunConfig:
    """Fill in what the dataset, the protocol and the method decide: equal runs are equal configurations."""
    choose("method", config.method, METHODS)
    config = _settled(_with_own_defaults(config))
    info = datasets.describe(config.dataset, Path())
    classes = config.classes or info.class_split
    if classes is None:
        raise UserError(
            f"{config.dataset} has no class split of its own: give one with --classes B T E, in a study with "
            f"--set classes=B,T,E (base, novel-train, novel-test)."
        )
    n_way, k_shot = config.n_way or info.n_way or 3, config.k_shot or info.k_shot or 5
    filled_in = dict(
        classes=classes,
        n_way=n_way,
        k_shot=k_shot,
        sessions=config.sessions or max(classes[2] // n_way, 1),
        val_classes=half_of(classes[1], n_way) if config.val_classes == "half" else config.val_classes,
        query_shot=config.query_shot or PROTOCOLS[config.protocol].default_query_shot(k_shot),
        pretrain_on=METHODS[config.method].default_pretrain_on()
        if _left_open(config, "pretrain_on")
        else config.pretrain_on,
        double_prototypes=True if _left_open(config, "double_prototypes") else config.double_prototypes,
    )
    resolved = _with(config, filled_in)
    check_ways(resolved)
    return resolved


def _with_own_defaults(config: RunConfig) -> RunConfig:
    """With the method's defaults in place of settings that have none for all."""
    own = METHODS[config.method].all_defaults()
    changes: dict[str, Any] = {name: value for name, value in own.items() if getattr(config, name) is None}
    return _with(config, changes)


def _with(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Configured so; the same object where that changes nothing, since a new one checks all its values."""
    changed = {name: value for name, value in changes.items() if getattr(config, name) != value}
    return replace(config, **changed) if changed else config


def _left_open(config: RunConfig, setting: str) -> bool:
    return getattr(config, setting) is None and config.applies(setting)


def _settled(config: RunConfig) -> RunConfig:
    """Settings that do not apply, or do nothing, have their defaults, or what method or protocol decides."""
    method = METHODS[config.method]
    idle, own = method.idle(config), method.all_defaults()
    changes: dict[str, Any] = {
        name: own.get(name, item.default)
        for name, item in SETTINGS.items()
        if name in idle or not config.applies(name)
    }
    return _with(config, changes | _decided(config))


def _decided(config: RunConfig) -> dict[str, Any]:
    """What the method and the protocol fix, whatever is configured."""
    return {**METHODS[config.method].decides, **PROTOCOLS[config.protocol].decides}


def _births() -> dict[str, Any]:
    births = {name: item.metadata["birth"] for name, item in SETTINGS.items()}
    return {name: birth for name, birth in births.items() if birth is not ALWAYS}


def remarks(config: RunConfig) -> list[str]:
    """What a user should know of a resolved configuration before it runs."""
    assert config.classes and config.n_way and config.sessions
    notes = []
    left = config.classes[2] - config.sessions * config.n_way
    if left:
        notes.append(
            f"of the {config.classes[2]} novel-test classes {left} will be left over and never arrive"
        )
    method, protocol = METHODS[config.method], make_protocol(config)
    if method.oracle and protocol.has_oracles:
        notes.append(f"{config.method} is an oracle: it knows the train labels of every class met")
    if method.knows_true_means(config) and protocol.has_oracles:
        notes.append(
            "nla_weights oracle is an oracle: supports are weighed by the train labels of every class met"
        )
    held_out = method.session_learning is SessionLearning.HELD_OUT and not method.oracle
    if held_out and config.k_shot == 1 and config.finetune_steps and not protocol.scores_while_learning:
        one = "with one label a class none can be held out: "
        nothing = "and with none to read again nothing is fine-tuned"
        notes.append(
            one + (nothing if config.rehearsed == 0 else "new classes are fine-tuned as prototypes only")
        )
    if config.smoothing:
        notes.append(
            "smoothing makes answers transductive, too: a query is scored by its visible neighbours as well"
        )
    if config.self_training:
        notes.append(
            "self_training learns from visible nodes without labels, queries among them, by the method's own "
            "answers"
        )
    return notes + protocol.remarks()
