"""Say which experimental designs a study has, from the axes of its space: reports need not guess them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hagmeta.config.run_config import RunConfig

FACTORIAL, ONE_AT_A_TIME, PROTOCOLS, N_AND_K = "factorial", "one-at-a-time", "protocols", "n-and-k"
RANKING, FREE = "ranking", "free"
KINDS = (FACTORIAL, ONE_AT_A_TIME, PROTOCOLS, N_AND_K, RANKING, FREE)
SHAPE = ("n_way", "k_shot")
APART = ("method", "protocol", *SHAPE)  # these have designs of their own


@dataclass(frozen=True)
class Design:
    """An experimental design, and the configurations that belong to it."""

    kind: str
    factors: tuple[str, ...] = ()
    repeated_for: tuple[str, ...] = ()  # the design is repeated for each value of these settings
    centres: tuple[RunConfig, ...] = ()  # of one-at-a-time designs
    configs: tuple[RunConfig, ...] = ()  # resolved

    def with_configs(self, run_as: Mapping[RunConfig, RunConfig]) -> Design:
        """Return the design of the configurations `run_as`, by those that they replace."""
        centres, configs = (
            tuple(dict.fromkeys(run_as[each] for each in some if each in run_as))
            for some in (self.centres, self.configs)
        )
        return replace(self, centres=centres, configs=configs)

    def record(self) -> dict[str, Any]:
        """Return the design as plain values, for the record of the launch."""
        whole = [config.canonical() for config in self.configs]
        levels = {key: _levels(key, whole) for key in self.factors}
        content = {
            "kind": self.kind,
            "factors": list(self.factors),
            "levels": levels,
            "repeated_for": list(self.repeated_for),
            "configs": [config.hash() for config in self.configs],
        }
        if nested := dict(_nested(self.factors, whole)):
            content["nested"] = nested
        if self.centres:
            content["centres"] = [config.hash() for config in self.centres]
        return content


def in_words(design: Design) -> str:
    """Return a line such as "factorial in hidden, learning_rate; repeated for each k_shot and method"."""
    configs = [config.canonical() for config in design.configs]
    ranks = design.kind == RANKING
    kind = "ranking of methods under" if ranks else f"{design.kind} in"
    factors = ", ".join(design.factors)
    apart = ("dataset", "protocol", *SHAPE, *["method"] * (not ranks))
    own = [key for key in apart if key not in design.factors and len(_levels(key, configs)) > 1]
    again = list(design.repeated_for) or own * (design.kind != FREE)
    words = " and ".join(filter(None, [", ".join(again[:-1]), *again[-1:]]))
    what = f"{kind} {factors}" if factors else kind.rpartition(" ")[0]
    return f"{what}; repeated for each {words}" if again else what


def designs_of(
    grid: Iterable[str],
    one_at_a_time: Iterable[str],
    configs: Sequence[RunConfig],
    centres: Sequence[RunConfig],
    *,
    sampled: bool = False,
) -> list[Design]:
    """Return the designs of a space.

    Args:
        grid: The settings of which it has all combinations.
        one_at_a_time: The settings that it varies alone.
        configs: Its resolved configurations.
        centres: Those that do not come from `one_at_a_time`.
        sampled: Whether each of them is only the start of a search. Then settings of methods are no factors.
    """
    crossed = [key for key in grid if key not in APART and _varies(key, centres)] * (not sampled)
    alone = [key for key in one_at_a_time if _varies(key, configs)] * (not sampled)
    shape = [key for key in SHAPE if _varies(key, configs)]
    protocol = ["protocol"] * _varies("protocol", configs)
    found = []
    if crossed:
        found.append(Design(FACTORIAL, tuple(crossed), configs=tuple(centres)))
    if alone:
        found.append(Design(ONE_AT_A_TIME, tuple(alone), centres=tuple(centres), configs=tuple(configs)))
    if protocol:
        found.append(Design(PROTOCOLS, tuple(protocol), configs=tuple(configs)))
    if shape:
        found.append(Design(N_AND_K, tuple(shape), configs=tuple(configs)))
    if _varies("method", configs):
        under = dict.fromkeys([*crossed, *alone, *protocol, *shape])
        found.append(Design(RANKING, tuple(under), configs=tuple(configs)))
    return found or [Design(FREE, configs=tuple(configs))]


def _varies(key: str, configs: Sequence[RunConfig]) -> bool:
    """Return whether a setting has several values on one dataset."""
    by_dataset: dict[str, list[dict[str, Any]]] = {}
    for config in configs:
        by_dataset.setdefault(config.dataset, []).append(config.canonical())
    return any(len(_levels(key, own)) > 1 for own in by_dataset.values())


def _levels(key: str, configs: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the values of a setting where it applies, in order."""
    found: list[Any] = []
    for config in configs:
        if key in config and config[key] not in found:
            found.append(config[key])
    return found


def _nested(factors: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each factor that does not always apply, with the factor that decides whether it does."""
    for key in factors:
        if all(key in config for config in configs):
            continue
        for other in factors:
            applies = {(str(config.get(other)), key in config) for config in configs}
            if other != key and len(applies) == len({level for level, _ in applies}):
                yield key, other
                break
