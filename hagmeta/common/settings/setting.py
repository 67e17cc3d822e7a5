"""Declare settings where they are used, with type, default, range, choices and help.

A group of settings is a frozen dataclass that inherits from `Settings`. Related groups inherit from each
other, and RunConfig inherits from all of them. So a function that needs some settings can take a RunConfig.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache, lru_cache
from typing import Any

from hagmeta.common.errors import UserError, shown
from hagmeta.common.settings.domains import Domain, Flag, Number, Text, Whole
from hagmeta.common.settings.scopes import METHOD, SCOPES, Scope


class _Mark(Enum):
    """Special values that users cannot give."""

    BY_METHOD = "the method's default"
    NOT_VALID = "not valid"

    def __repr__(self) -> str:
        return f"<{self.value}>"


BY_METHOD: Any = _Mark.BY_METHOD  # default of a setting whose default depends on the method
NOT_VALID: Any = _Mark.NOT_VALID  # no value equals it

PLAIN = (bool, int, float, str, type(None))  # hashable types, for which checks are cached
OF_TYPES: dict[str, Domain] = {"bool": Flag(), "int": Whole(), "float": Number(), "str": Text()}


def setting(
    default: Any,
    help: str,
    domain: Domain | None = None,
    *,
    scope: Scope | None = None,
    branches: tuple[float, ...] = (),
    revision: int = 1,
) -> Any:
    """Declare a setting: a dataclass field with a default, a help text and valid values.

    Args:
        default: the value if the user gives none. `BY_METHOD` means the default of the method
            (`Method.defaults`). ``None`` means that the dataset decides. `hagmeta.resolve` fills in both.
        help: what the setting does, in one line.
        domain: the valid values, such as ``Number(above=0)`` (`hagmeta.common.settings.domains`). The default
            is all values of the annotated type: bool, int, float or str.
        scope: what the setting is part of; a group of settings without it cannot be declared. `task`: what is
            asked, shown or scored. `labels`: which labels may be read. `method`: how the method works.
            Reports never compare results that differ in the task, or methods that differ in the labels.
        branches: values for which the code takes another path. A pack has no other values together with them.
        revision: increase it when the setting gives other results. It enters the hash where the setting has
            another value than in `hagmeta.common.settings.left_out`.
    """
    metadata = {"help": help, "domain": domain, "branches": branches, "scope": scope, "revision": revision}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A group of settings. Values are converted to their types; wrong values raise a UserError."""

    def __init_subclass__(cls) -> None:
        for name, item in vars(cls).items():
            scope = item.metadata.get("scope") if isinstance(item, dataclasses.Field) else METHOD
            if scope not in SCOPES:
                raise TypeError(
                    f"the scope of the setting {name} of {cls.__name__} is {shown(scope)}; expected one of "
                    f"{', '.join(SCOPES)}"
                )

    def __post_init__(self) -> None:
        kind: Any = type(self)
        values = vars(self)
        for item, valid in _valid_defaults(kind):
            value = values[item.name]
            if value is valid:
                continue
            if value is BY_METHOD:
                raise UserError(f"{item.name} has no method-specific default; give it a value.")
            values[item.name] = checked(item, value)
        for group in bases_with(kind, "check"):
            vars(group)["check"](self)

    def check(self) -> None:
        """Raise a UserError for combinations of values that are not valid. Each group checks its settings."""

    @classmethod
    def unused_by(cls, method: Any) -> str:
        """Return why `method` does not use this group of settings, or an empty string if it does."""
        return ""

    def without_effect(self) -> Mapping[str, str]:
        """Return the settings that currently have no effect, each with the setting that causes this.

        Each group lists its own settings. It is called only if the method uses the group.
        """
        return {}


@cache
def bases_with(kind: Any, name: str) -> tuple[Any, ...]:
    """Return `kind` and its bases, in the order of the MRO: those that define `name` themselves."""
    return tuple(base for base in kind.__mro__ if name in vars(base))


def written(value: Any) -> str:
    """Return `value` as a user would write it in a YAML file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_settings(kind: str, owner: Any, base: type[Settings]) -> None:
    """Raise a UserError unless the `own_settings` of a plug-in are a settings dataclass based on `base`."""
    own = owner.own_settings
    if own is None:
        return
    if not (isinstance(own, type) and issubclass(own, base)):
        raise UserError(
            f"the {kind} {owner.__name__}: own_settings is {shown(own)}; expected a class that inherits "
            f"from {base.__name__}."
        )
    for name in vars(own).get("__annotations__", {}):
        item = own.__dataclass_fields__.get(name) if "__dataclass_fields__" in vars(own) else None
        if item is None or "help" not in item.metadata:
            raise UserError(
                f"the {kind} {owner.__name__}: the setting {name} of {own.__name__} is not declared; write "
                "@dataclass(frozen=True, kw_only=True) above the class, and give each setting the value "
                "setting(default, help)."
            )


@cache
def _valid_defaults(group: Any) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Return the fields of `group`, each with its default, or `NOT_VALID` if the default needs a check."""
    return [(item, item.default if _is_valid_default(item) else NOT_VALID) for item in fields(group)]


def _is_valid_default(item: dataclasses.Field[Any]) -> bool:
    try:
        return item.default is BY_METHOD or _checked(item, item.default) is item.default
    except UserError:  # reported when a configuration has this default
        return False


def _checked(item: dataclasses.Field[Any], value: Any) -> Any:
    domain = domain_of(item)
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null", "")):
        if "None" in str(item.type):
            return None
        if not getattr(domain, "words", ()):
            raise UserError(f"{item.name} has no value; expected {domain}.")
    return domain.parse(item.name, value)


# A study creates thousands of configurations from the same few values. Typed, because True and 1.0 equal 1.
_known = lru_cache(maxsize=100_000, typed=True)(_checked)


def checked(item: dataclasses.Field[Any], value: Any) -> Any:
    """Return `value` converted to the type of the setting; raise a UserError if it is not valid."""
    return _known(item, value) if type(value) in PLAIN else _checked(item, value)


def domain_of(item: dataclasses.Field[Any]) -> Domain:
    """Return the valid values of a setting."""
    if item.metadata["domain"]:
        domain: Domain = item.metadata["domain"]
        return domain
    # Annotations are text only in modules that import `annotations` from `__future__`.
    kind = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))
    return OF_TYPES[kind.partition(" ")[0]]
