"""Decide which designs a report looks for: those that launches wrote down, otherwise every kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analysis.data.results import Results

FACTORIAL, ONE_AT_A_TIME, PROTOCOLS, N_AND_K = "factorial", "one-at-a-time", "protocols", "n-and-k"
RANKING = "ranking"
REPEATED_FOR = ("pretrain_on",)  # each value of these settings has a separate ablation


@dataclass(frozen=True)
class Design:
    """An experimental design, as in the record of a launch."""

    kind: str
    factors: tuple[str, ...] = ()  # empty: any settings
    repeated_for: tuple[str, ...] = ()  # each value of these settings has a design of its own
    configs: frozenset[str] = frozenset()  # the hashes of its configurations; empty if it has all


# Without a written design, the settings of the results decide which of these there are.
EVERY = tuple(Design(kind) for kind in (FACTORIAL, ONE_AT_A_TIME, PROTOCOLS, N_AND_K, RANKING))


def designs_of(results: Results) -> tuple[Design, ...]:
    """Return the designs that the launches of one study wrote down, or `EVERY` kind.

    They are not known for merged folders, for runs that no launch planned, and for old launches.
    """
    launches = results.launches
    planned = {name for launch in launches for name in launch["configs"]}
    known = all("designs" in launch for launch in launches) and planned.issuperset(
        results.runs["config_hash"]
    )
    if len(results.folders) == 1 and launches and known:
        return _merged(_read(each) for launch in launches for each in launch["designs"])
    return EVERY


def of_kind(designs: Iterable[Design], kind: str) -> list[Design]:
    """Return the designs of a kind."""
    return [design for design in designs if design.kind == kind]


def _read(content: Mapping[str, Any]) -> Design:
    factors, repeated = (tuple(content.get(key, ())) for key in ("factors", "repeated_for"))
    return Design(str(content["kind"]), factors, repeated, frozenset(content.get("configs", ())))


def _merged(designs: Iterable[Design]) -> tuple[Design, ...]:
    """Return the designs of several launches, with the configurations of all launches."""
    found: dict[Design, frozenset[str]] = {}
    for design in designs:
        question = replace(design, configs=frozenset())
        found[question] = found.get(question, frozenset()) | design.configs
    return tuple(replace(design, configs=configs) for design, configs in found.items())
