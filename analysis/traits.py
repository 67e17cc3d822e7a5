"""Read titles and roles of methods from the records; no method name is hard-coded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hagmeta.common.identity import IDENTITY, without_hash
from hagmeta.common.records import OpenRecord

ROLES = ("studied", "baseline", "proposed", "bound")  # the order in tables
USUAL = "baseline"
DIGITS = 6  # of a hash, if names are not unique


class Traits(NamedTuple):
    """The title, role and transductive predictions of a method."""

    title: str
    role: str = USUAL
    transductive: str = ""  # why predictions depend on unlabelled nodes; empty if they do not

    @property
    def place(self) -> tuple[int, str, str]:
        """Order methods by role, then by title."""
        role = self.role if self.role in ROLES else USUAL
        return (ROLES.index(role), self.title.casefold(), self.title)


def with_traits(records: Sequence[OpenRecord], launches: Iterable[Mapping[str, Any]]) -> list[OpenRecord]:
    """Return the records, each with its `Traits`.

    Records without traits take those of the same configuration, or of the same method, from other records or
    from the launches. A method without any description keeps its name as its title.
    """
    by_config = {record["config_hash"]: record["traits"] for record in reversed(records) if _told(record)}
    by_method = {method: said for launch in launches for method, said in _of_launch(launch)}
    by_method |= {
        record["config"]["method"]: record["traits"] for record in reversed(records) if _told(record)
    }
    methods = {record["config"]["method"] for record in records}
    oracles = methods - {record["config"]["method"] for record in records if not record["oracle"]}
    titles = told_apart(
        {method: by_method.get(method, {}).get("title", without_hash(method)) for method in sorted(methods)}
    )
    found = []
    for record in records:
        method = record["config"]["method"]
        said = (
            record["traits"]
            if _told(record)
            else by_config.get(record["config_hash"], by_method.get(method, {}))
        )
        title = titles[method] + " (oracle)" * (method in oracles)
        traits = Traits(title, said.get("role", USUAL), said.get("transductive", ""))
        found.append(record | {"traits": traits})
    return found


def undescribed(records: Iterable[OpenRecord], launches: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the methods that neither a record nor a launch describes."""
    told = {record["config"]["method"] for record in records if _told(record)}
    told |= {method for launch in launches for method, _ in _of_launch(launch)}
    return sorted({record["config"]["method"] for record in records} - told)


def _told(record: OpenRecord) -> bool:
    return bool(record.get("traits", {}).get("title"))


def _of_launch(launch: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    said = launch.get("traits")
    described = said.items() if isinstance(said, dict) else ()
    return [(method, each) for method, each in described if isinstance(each, dict) and each.get("title")]


def told_apart(titles: Mapping[str, str]) -> dict[str, str]:
    """Return unique titles by identity; shared titles get digits of a hash."""
    shared = Counter(titles.values())
    plain = Counter(title for identity, title in titles.items() if not IDENTITY.fullmatch(identity))
    found = {}
    for identity, title in titles.items():
        source = IDENTITY.fullmatch(identity)
        if shared[title] > 1 and source:
            found[identity] = f"{title} [{source['hash'][:DIGITS]}]"
        else:
            found[identity] = title if plain[title] < 2 or source else f"{title} [{identity}]"
    return found
