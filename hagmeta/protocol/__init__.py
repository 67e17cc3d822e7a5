"""What may be seen, learnt from and asked: one file a protocol, and what a seed draws under it."""

from __future__ import annotations

from dataclasses import dataclass

from hagmeta.common.registry import Registry
from hagmeta.common.settings import setting
from hagmeta.protocol.base import LabelSettings, Protocol, TaskSettings
from hagmeta.protocol.released import Released
from hagmeta.protocol.strict import Strict

__all__ = ["PROTOCOLS", "Protocol", "ProtocolSettings", "TaskSettings", "make_protocol"]

_PROTOCOLS: dict[str, type[Protocol]] = {protocol.name: protocol for protocol in (Strict, Released)}
PROTOCOLS = Registry("protocol", _PROTOCOLS, base=Protocol)


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings(LabelSettings):
    """The task, its labels, and the protocol that it is played by."""

    protocol: str = setting(
        "strict", "strict leaks nothing; released is the authors' code", choices=PROTOCOLS
    )


def make_protocol(settings: ProtocolSettings) -> Protocol:
    """The configured protocol."""
    return PROTOCOLS[settings.protocol](settings)
