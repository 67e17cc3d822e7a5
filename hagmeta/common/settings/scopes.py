"""Say what each setting is part of: the task, the labels that may be read, or the method.

Every setting declares its scope (`hagmeta.common.settings.setting`), and every record has the scopes of its
settings. No other place lists the settings of the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

Scope = Literal["task", "labels", "method"]
TASK, LABELS, METHOD = "task", "labels", "method"
SCOPES = {
    TASK: "what is asked, shown or scored: results that differ in it are never compared",
    LABELS: "which labels may be read: methods are compared only if it is equal",
    METHOD: "how a method works",
}


class Scopes(NamedTuple):
    """The settings that are not of the method alone."""

    task: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def both(self) -> tuple[str, ...]:
        return (*self.task, *self.labels)


def scopes_in(records: Iterable[Mapping[str, Any]]) -> Scopes:
    """Return the scopes of the settings of all `records`; if two records disagree, the task counts first."""
    said: dict[str, set[str]] = {}
    for record in records:
        for name, scope in record["scopes"].items():
            said.setdefault(name, set()).add(scope)
    task = tuple(name for name, scopes in said.items() if TASK in scopes)
    return Scopes(task, tuple(name for name, scopes in said.items() if LABELS in scopes and name not in task))
