"""RunConfig: all settings of a run except its seed, collected from the packages that declare them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import Field, dataclass, fields, make_dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from hagmeta import datasets
from hagmeta.common.errors import UserError, choose
from hagmeta.common.files.home import home
from hagmeta.common.plugins.identity import is_identity, without_hash
from hagmeta.common.records.records import config_hash
from hagmeta.common.settings.left_out import (
    ABSENT_IF_IDLE,
    KEPT_IF_IDLE,
    LEFT_OUT_AT,
    OLD_NAMES,
    REMOVED,
    hashed_as,
    left_out,
    why_gone,
)
from hagmeta.common.settings.scopes import METHOD, Scopes, scopes_in
from hagmeta.common.settings.setting import BY_METHOD, Settings, checked, written
from hagmeta.config.settings import PhaseSettings
from hagmeta.datasets import DatasetSettings
from hagmeta.datasets.prepared import file_identity
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.methods import METHODS, MetaTraining
from hagmeta.scenarios import PROTOCOLS
from hagmeta.scenarios.scenario import LEAST_BASE
from hagmeta.scenarios.splits import SplitFor, common_classes
from hagmeta.scenarios.streams import check_ways, half_of

IDENTITY = ("dataset", "method", "protocol")  # listed before all other settings
# Settings that name an entry of a registry, which may be a plug-in.
REGISTRIES: dict[str, Any] = {"method": METHODS, "encoder": ENCODERS, "protocol": PROTOCOLS}


@dataclass(frozen=True, kw_only=True)
class RunConfig(PhaseSettings, DatasetSettings):
    """One configuration. A configuration and a seed define a run.

    Make one with ``RunConfig.of(method="cec", episodes=100)``: it has the settings that all runs share, those
    of its method and those of its encoder. `resolve` fills in settings that are left open, such as widths
    whose default depends on the method.
    """

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None, /, **settings: Any) -> RunConfig:
        """Return a configuration of settings, given as a mapping or as keywords.

        A setting of another method is checked, but has no effect.

        Raises:
            UserError: A setting is unknown, or a value is not valid.
        """
        given = {**(values or {}), **settings}
        if "dataset" in given:
            given["dataset"] = datasets.name_of(given["dataset"])
        named = {name: registry for name, registry in REGISTRIES.items() if name in given}
        for name, registry in named.items():
            given[name] = registry.name_of(given[name])
        try:
            kind = config_class(given.get("method", cls.method), given.get("encoder", cls.encoder))
        except UserError:  # the settings of the plug-in clash with ours, so it must not stay registered
            for name in [name for name in named if is_identity(given[name])]:
                REGISTRIES[name].pop(given[name], None)
            raise
        own = settings_of(kind)
        for name in [name for name in given if name not in own]:
            typed(name, given.pop(name))
        made: RunConfig = kind(**given)
        return made

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with other values of some settings."""
        return RunConfig.of(_values(self) | changes)

    def __post_init__(self) -> None:
        if type(self) is not config_class(self.method, self.encoder):
            raise TypeError("a RunConfig is made by RunConfig.of(...) or config.replace(...)")
        super().__post_init__()

    def __reduce__(self) -> Any:
        return RunConfig.of, (_values(self),)

    def applies(self, setting: str) -> bool:
        """Return whether a setting is part of this configuration and its record."""
        if setting not in settings_of(type(self)) or setting in _fixed_or_unused(*self._names):
            return False
        because = self._idle_as_decided.get(setting)
        return because is None or (setting not in ABSENT_IF_IDLE and because not in _decided(self))

    def why_not(self, setting: str) -> str:
        """Return why a setting has no effect in this configuration, or an empty string if it has one."""
        if setting not in settings_of(type(self)) and setting in all_settings():
            return f"`{setting}` does not apply to {self.method}: it is a setting of other methods only"
        return self._why_idle.get(setting, "")

    @property
    def _names(self) -> tuple[str, str, str]:
        return self.method, self.encoder, self.protocol

    @cached_property
    def _why_idle(self) -> dict[str, str]:
        return why_idle(self)

    @cached_property
    def _idle_as_decided(self) -> dict[str, str]:
        """`idle`, given the settings that method and protocol fix. Those values need no check."""
        return _copy(self, _decided(self)).idle

    def canonical(self) -> dict[str, Any]:
        """Return the settings that apply, as plain JSON values."""
        values = {name: getattr(self, name) for name in settings_of(type(self)) if self.applies(name)}
        if BY_METHOD in values.values():
            own = METHODS[self.method].all_defaults()
            values = {name: own.get(name) if value is BY_METHOD else value for name, value in values.items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def hash(self) -> str:
        """Return the hash of the resolved configuration. Equal runs have equal hashes on any machine."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        resolved = resolve(self)
        return config_hash(resolved.canonical(), resolved.unhashed(), resolved.revisions())

    def unhashed(self) -> list[str]:
        """Return the settings that the hash leaves out (`hagmeta.common.settings.left_out`)."""
        return left_out(self.canonical())

    def scopes(self) -> dict[str, str]:
        """Return the settings of the task and of the labels, each with its scope."""
        scopes = {name: item.metadata["scope"] for name, item in settings_of(type(self)).items()}
        return {name: scope for name, scope in scopes.items() if scope != METHOD}

    def revisions(self) -> dict[str, int]:
        """Return revisions above 1: of dataset, method, protocol and settings. They are part of the hash."""
        found = {
            "dataset": datasets.revision(self.dataset),
            "method": METHODS[self.method].traits.revision,
            "protocol": PROTOCOLS[self.protocol].revision,
        }
        config = self.canonical()
        for name in {name for name in config if hashed_as(name) in LEFT_OUT_AT}.difference(left_out(config)):
            found[name] = settings_of(type(self))[name].metadata["revision"]
        return {name: revision for name, revision in found.items() if revision > 1}

    def given(self) -> list[str]:
        """Return the settings of a resolved configuration that differ from their defaults."""
        return [name for name in self.canonical() if name not in IDENTITY and self._is_given(name)]

    def _is_given(self, name: str) -> bool:
        default = settings_of(type(self))[name].default
        if getattr(self, name) == default:
            return False
        try:
            return resolve(self.replace(**{name: default})) != self
        except UserError:  # the default is not valid here, so the value must have been given
            return True


def why_idle(config: RunConfig) -> dict[str, str]:
    """Return the settings of a configuration that have no effect, each with the reason.

    This is the only place that decides whether a setting has an effect.
    """
    decided = _decided(config)
    found = dict(_fixed_or_unused(*config._names))
    for name, because in config._idle_as_decided.items():
        value = written(decided.get(because, getattr(config, because)))
        found.setdefault(name, f"`{name}` has no effect with `{because}: {value}`")
    return found


@cache
def _fixed_or_unused(method: str, encoder: str, protocol: str) -> dict[str, str]:
    """Return why settings have no effect with a method and a protocol, for any values of the others."""
    found = {}
    for name, owner in owners_of(config_class(method, encoder)).items():
        if unused := owner.unused_by(METHODS[method]):
            found[name] = f"`{name}` does not apply to {method}: {unused}"
        for whose, decides in ((method, METHODS[method].decides), (protocol, PROTOCOLS[protocol].decides)):
            if name in decides and not unused:
                found[name] = f"`{name}` is always {written(decides[name])} with {whose}"
    return found


@cache
def config_class(method: str, encoder: str) -> Any:
    """Return the class of configurations with the settings of a method and an encoder, given by name."""
    # A method may read the settings of its bases, which then have their defaults.
    groups = dict.fromkeys(vars(base).get("own_settings") for base in METHODS[method].__mro__)
    chosen = [own for own in (*groups, ENCODERS[encoder].own_settings) if own]
    for group in chosen:
        for name in _declared(group):
            owner = OWNERS.get(name, group)
            if owner not in group.__mro__:
                raise UserError(
                    f"the setting {name} of {group.__name__} is already declared by {owner.__name__}; "
                    "give it another name."
                )
    return _class_of(chosen)


def _class_of(groups: Iterable[Any]) -> Any:
    """Return the class of configurations with the shared settings and some groups."""
    # A class must precede the classes that it inherits from. Fields of the last base come first.
    bases = sorted(reversed(list(groups)), key=lambda own: len(own.__mro__), reverse=True)
    made = make_dataclass("RunConfig", [], bases=(*bases, RunConfig), frozen=True, kw_only=True)
    made.__module__, made.__doc__ = __name__, RunConfig.__doc__
    return made


def _declared(group: Any) -> list[str]:
    """Return the settings that a class declares, without those of its bases."""
    own = vars(group).get("__annotations__", {})
    return [item.name for item in fields(group) if item.name in own]


def settings_of(kind: Any) -> dict[str, Field[Any]]:
    """Return the settings of a configuration class. Those of `IDENTITY` come first."""
    return _settings_of(kind)


@cache
def _settings_of(kind: Any) -> dict[str, Field[Any]]:
    found = {item.name: item for item in fields(kind)}
    return {name: found[name] for name in (*IDENTITY, *(name for name in found if name not in IDENTITY))}


@cache
def owners_of(kind: Any) -> dict[str, type[Settings]]:
    """Return, for each setting, the group that declares it."""
    owners: dict[str, type[Settings]] = {}
    for group in reversed(kind.__mro__):
        for name in vars(group).get("__annotations__", {}):
            if name in owners:
                raise TypeError(f"{name} is declared by {owners[name].__name__} and {group.__name__}")
            owners[name] = group
    return owners


_EVERY = _class_of(dict.fromkeys(method.own_settings for method in METHODS.values() if method.own_settings))
SETTINGS, OWNERS = settings_of(_EVERY), owners_of(_EVERY)  # of all methods


def scopes_of(configs: Iterable[RunConfig]) -> Scopes:
    """Return the settings of the task and of the labels that `configs` have."""
    return scopes_in({"scopes": config.scopes()} for config in configs)


def all_settings() -> dict[str, Field[Any]]:
    """Return all settings, including those of the plug-ins loaded so far."""
    found = dict(SETTINGS)
    for key in ("method", "encoder"):
        for name, entry in REGISTRIES[key].items():
            if is_identity(name) and entry.own_settings is not None:
                found |= settings_of(type(RunConfig.of({key: name})))
    return found


def typed(setting: str, value: Any) -> Any:
    """Return `value` converted to the type of `setting`, which may belong to any method or plug-in.

    Raise a UserError if the value is not valid.
    """
    if setting in settings_of(RunConfig):
        return getattr(RunConfig.of({setting: value}), setting)
    settings = SETTINGS if setting in SETTINGS else all_settings()
    check_name(setting, settings)
    return checked(settings[setting], value)


def check_name(setting: str, settings: Iterable[str]) -> None:
    """Raise a UserError unless `setting` is one of `settings`."""
    if setting in OLD_NAMES or setting in REMOVED:
        raise UserError(why_gone(setting))
    choose("setting", setting, settings)


def resolve(config: RunConfig) -> RunConfig:
    """Return `config` with all open settings filled in by the dataset, the protocol and the method.

    Configurations of equal runs are equal after this.
    """
    if "_is_resolved" in vars(config):
        return config
    config = _settled(config)
    info = datasets.describe(config.dataset, Path())
    n_way, k_shot = config.n_way or info.n_way or 3, config.k_shot or info.k_shot or 5
    classes, drop_small, proposal = config.classes or info.class_split, config.drop_small, ""
    if classes is None and config.split == "fixed":
        raise UserError(
            f"split is fixed, but classes is not given; expected --classes B T E, the numbers of base, "
            f"novel-train and novel-test classes in the class_order of {without_hash(config.dataset)}."
        )
    if classes is None:
        classes, small = proposed_split(
            config.dataset, (SplitFor(n_way, k_shot, config.protocol, config.query_shot),)
        )
        drop_small = drop_small or small > 0
        proposal = f"using classes {' '.join(map(str, classes))} (base, novel-train, novel-test), because "
        proposal += f"{without_hash(config.dataset)} has no class split; the largest classes are base"
        proposal += f", and {small} are left out as too small" if small else ""
    filled_in = dict(
        classes=classes,
        drop_small=drop_small,
        n_way=n_way,
        k_shot=k_shot,
        sessions=config.sessions or max(classes[2] // n_way, 1),
        val_classes=half_of(classes, n_way) if config.val_classes == "half" else config.val_classes,
        query_shot=config.query_shot or PROTOCOLS[config.protocol].default_query_shot(k_shot),
    )
    resolved = _with(config, filled_in)
    check_ways(resolved)
    _check_episodes(resolved)
    # Not dataclass fields, so that a copy with changes has neither.
    object.__setattr__(resolved, "_is_resolved", True)
    object.__setattr__(resolved, "_proposal", proposal or vars(config).get("_proposal", ""))
    return resolved


def _check_episodes(config: RunConfig) -> None:
    """Raise an error if the method needs episodes and the base classes are too few to make them."""
    assert config.classes and config.n_way
    training = METHODS[config.method].training_of(config)
    if training in (MetaTraining.INCREMENTAL, MetaTraining.FEW_SHOT) and not config.groups[1]:
        least = max(2 * config.n_way, config.n_way + LEAST_BASE)
        raise UserError(
            f"{without_hash(config.method)} learns from episodes with new classes, but with classes "
            f"{' '.join(map(str, config.classes))} and n_way {config.n_way} there are none. Use novel-train "
            f"classes, at least {least} base classes, a smaller n_way, or a method without episodes."
        )


def proposed_split(dataset: str, tasks: tuple[SplitFor, ...]) -> tuple[tuple[int, int, int], int]:
    """Return a class split for a graph without one, and how many of its classes are too small."""
    files = tuple(file_identity(path) for path in datasets.files_at_hand(dataset) if path.is_file())
    return _proposed_once(dataset, files, tasks)


@lru_cache(maxsize=1000)
def _proposed_once(
    dataset: str, files: tuple[str, ...], tasks: tuple[SplitFor, ...]
) -> tuple[tuple[int, int, int], int]:
    graph = datasets.load(dataset, home() / "data")
    classes = common_classes(graph, tasks)
    return classes, graph.num_classes - sum(classes)


def _settled(config: RunConfig) -> RunConfig:
    """Return `config` with the defaults of its method, and the settings that method and protocol fix.

    Settings without effect get their defaults, so that they do not tell equal runs apart.
    """
    own, values, reasons = METHODS[config.method].all_defaults(), vars(config), config._why_idle
    changes: dict[str, Any] = {}
    for name, item in settings_of(type(config)).items():
        by_method, value = item.default is BY_METHOD, values[name]
        idle = name in reasons and not (config.applies(name) and _is_kept(config, name))
        left_open = value is BY_METHOD or (by_method and value is None)
        if idle or left_open:
            changes[name] = own.get(name) if by_method else own.get(name, item.default)
    return _with(config, changes | _decided(config))


def _is_kept(config: RunConfig, name: str) -> bool:
    """Return whether a setting without effect keeps the given value."""
    return name in KEPT_IF_IDLE and config.idle.get(name) == KEPT_IF_IDLE[name]


def _with(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return `config` with `changes`, or the same object if nothing changes: a copy checks all values."""
    values = _values(config)
    changed = {name: value for name, value in changes.items() if values[name] != value}
    if changed.keys() & REGISTRIES.keys():  # another class, if a plug-in has settings
        return config.replace(**changed)
    if not changed:
        return config
    copy = _copy(config, changed)
    copy.__post_init__()
    return copy


def _copy(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return a copy with `changes`, without any check. This is much faster than `replace`."""
    copy = object.__new__(type(config))
    copy.__dict__.update({**_values(config), **changes})
    return copy


def _values(config: RunConfig) -> dict[str, Any]:
    """Return the values of all settings, as given."""
    there = vars(config)
    return {name: there[name] for name in settings_of(type(config))}


def _decided(config: RunConfig) -> dict[str, Any]:
    """Return the settings that the method and the protocol fix."""
    own = settings_of(type(config))
    decided = {**METHODS[config.method].decides, **PROTOCOLS[config.protocol].decides}
    return {name: value for name, value in decided.items() if name in own}


def runs_in_packs(config: RunConfig) -> bool:
    """Return whether the seeds of a resolved configuration can run together as a pack."""
    return ENCODERS[config.encoder].packs and METHODS[config.method].packs


def may_differ(config: RunConfig) -> tuple[str, ...]:
    """Return the settings of a resolved configuration that may differ within a pack.

    The method declares them. With an encoder or a protocol of a plug-in, there are none.
    """
    if not runs_in_packs(config) or is_identity(config.encoder) or is_identity(config.protocol):
        return ()
    declared = vars(METHODS[config.method]).get("differs", ())
    for name in declared:
        choose(f"method {without_hash(config.method)}: setting in differs", name, settings_of(type(config)))
    return tuple(name for name in declared if not config.why_not(name))


def pack_key(config: RunConfig) -> Hashable:
    """Return what the members of a pack have in common. Configurations with equal keys can share a pack.

    It has all settings of a resolved configuration. Of those that may differ, it has only the branch that
    the code takes.
    """
    differ, key = may_differ(config), []
    for name, item in settings_of(type(config)).items():
        value = getattr(config, name)
        key.append((name, value if name not in differ or value in item.metadata["branches"] else "other"))
    return tuple(key)
