"""Protocols: which nodes and labels a model may see, learn from and predict.

Each protocol has its own module. The other modules draw splits, streams and episodes for a seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagmeta.common.plugins.registry import Registry
from hagmeta.common.settings.domains import Choice
from hagmeta.common.settings.setting import setting
from hagmeta.scenarios.base import LabelSettings, Protocol, TaskSettings
from hagmeta.scenarios.growing import Growing
from hagmeta.scenarios.released import Released
from hagmeta.scenarios.strict import Strict

__all__ = ["PROTOCOLS", "Protocol", "ProtocolSettings", "TaskSettings", "make_protocol"]

_PROTOCOLS: dict[str, type[Protocol]] = {protocol.name: protocol for protocol in (Strict, Growing, Released)}
PROTOCOLS = Registry("protocol", _PROTOCOLS, base=Protocol)


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings(LabelSettings):
    """The task, the labels that may be used, and the protocol."""

    protocol: str = setting(
        "strict",
        "strict: no label or node leaks; growing: strict, and nodes of old classes arrive in every session; "
        "released: the rules of the authors' code, which leak",
        Choice(PROTOCOLS),
        scope="task",
    )


def make_protocol(settings: ProtocolSettings) -> Protocol:
    """Return the protocol that ``settings`` name."""
    return PROTOCOLS[settings.protocol](settings)
