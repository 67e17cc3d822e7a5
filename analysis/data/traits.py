"""Read titles and roles of methods from the records; no method name is hard-coded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hagmeta.common.plugins.identity import IDENTITY
from hagmeta.common.records.records import OpenRecord

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


def with_traits(records: Sequence[OpenRecord]) -> list[OpenRecord]:
    """Return the records, each with its `Traits`. The first record of a method says its title."""
    said = {record["config"]["method"]: record["traits"]["title"] for record in reversed(records)}
    oracles = said.keys() - {record["config"]["method"] for record in records if not record["oracle"]}
    elsewhere = {r["config"]["method"] for r in records if r["traits"].get("pretrained_elsewhere")}
    titles = told_apart({method: said[method] for method in sorted(said)})
    found = []
    for record in records:
        method, traits = record["config"]["method"], record["traits"]
        title = titles[method] + " (oracle)" * (method in oracles)
        title += " (pre-trained elsewhere)" * (method in elsewhere)
        own = Traits(title, traits.get("role", USUAL), traits.get("transductive", ""))
        found.append(record | {"traits": own})
    return found


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
