"""Decide whether runs can be compared with the reference results, and say why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.data.traits import ROLES
from analysis.references.references import References
from analysis.words import listed
from hagmeta.common.command import as_typed
from hagmeta.common.plugins.identity import is_identity, short_name, without_hash
from hagmeta.common.records.records import OpenRecord
from hagmeta.common.settings.left_out import LEFT_OUT_AT
from hagmeta.common.settings.scopes import scopes_in

FEWEST_SHARED = 3  # seeds
CHEAPEST = 5  # methods that are suggested for a graph without references


@dataclass(frozen=True)
class Refusal:
    """Runs of one configuration that cannot be compared."""

    dataset: str
    method: str
    reasons: list[str]

    @property
    def words(self) -> str:
        return f"{self.dataset}, {self.method}: {'; '.join(self.reasons)}."


def matching(record: OpenRecord, references: Sequence[OpenRecord]) -> str | None:
    """Return the dataset of the references with the same graph, whatever its name is in `record`."""
    graphs = {each["data"]: each["config"]["dataset"] for each in references}
    return graphs.get(record["data"])


def why_not(own: Sequence[OpenRecord], references: References, kind: str) -> list[str]:
    """Return why the runs of one configuration cannot be compared with references of a kind."""
    first, everyone = own[0], references.of(kind)
    dataset = matching(first, everyone)
    if dataset is None:
        return [_no_graph(first, own, everyone, kind)]
    theirs = [record for record in everyone if record["config"]["dataset"] == dataset]
    if found := [*_task(first, theirs), *_revisions(first, theirs)]:
        return found
    if first["oracle"]:
        return ["it is an oracle, which uses labels that the references may not use"]
    return [*_orders(own, theirs)] or [*_seeds(own, theirs, dataset)]


def _task(own: OpenRecord, theirs: Sequence[OpenRecord]) -> Iterable[str]:
    """Yield the settings of the task and of the labels that differ, with both values.

    The graph is known to be equal. A method without such a setting is not limited by it.
    """
    for key in scopes_in([own, *theirs]).both:
        if key == "dataset":
            continue
        value = _setting(own, key)
        others = {_text(each) for record in theirs if (each := _setting(record, key)) is not None}
        if value is not None and others and _text(value) not in others:
            yield f"{key} is {_text(value)}, the references have {listed(sorted(others))}"
        if value is not None and not others and key in own["given"]:
            yield f"{key} is {_text(value)}, the references do not have this setting"


def _setting(record: OpenRecord, key: str) -> Any:
    """Return a setting, or the value at which hashes leave it out if the record lacks it."""
    return record["config"].get(key, LEFT_OUT_AT.get(key))


def _text(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


def _revisions(own: OpenRecord, theirs: Sequence[OpenRecord]) -> Iterable[str]:
    method = own["config"]["method"]
    same = [record for record in theirs if record["config"]["method"] == method] or [own]
    parts = {"dataset": theirs, "protocol": theirs, "method": same}
    settings = {part: same for part in own["revisions"] if part not in parts}
    for part, others in (parts | settings).items():
        value, other = (_revision(each, part) for each in (own, others[0]))
        if value != other:
            yield f"the {part} has revision {value}, the references have {other}"


def _revision(record: OpenRecord, part: str) -> int:
    return int(record["revisions"].get(part, 1))


def _orders(own: Sequence[OpenRecord], theirs: Sequence[OpenRecord]) -> Iterable[str]:
    orders = {record["seed"]: record["classes_met"] for record in theirs}
    other = [r["seed"] for r in own if r["classes_met"] != orders.get(r["seed"], r["classes_met"])]
    if other:
        yield f"with seeds {spanned(sorted(other))}, classes arrive in another order than in the references"


def _seeds(own: Sequence[OpenRecord], theirs: Sequence[OpenRecord], dataset: str) -> Iterable[str]:
    seeds = sorted({record["seed"] for record in theirs})
    shared = sorted({record["seed"] for record in own} & set(seeds))
    if len(shared) < FEWEST_SHARED:
        had = ", ".join(map(str, sorted(record["seed"] for record in own)))
        yield (
            f"its seeds are {had}, the references have {spanned(seeds)}; at least {FEWEST_SHARED} must be "
            f"shared. Run it on them: {command_for(own[0], dataset, seeds)}"
        )


def spanned(seeds: Sequence[int]) -> str:
    """Return "0-9" for a range of seeds, otherwise a list."""
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    return f"{seeds[0]}-{seeds[-1]}" if whole else ",".join(map(str, seeds))


def command_for(record: OpenRecord, dataset: str, seeds: Sequence[int]) -> str:
    """Return the command that runs the configuration of `record` on `seeds`."""
    method = record["config"]["method"]
    named = f"FILE.py:{without_hash(method)}" if is_identity(method) else method
    given = "".join(f" --set {key}={_typed(record['config'][key])}" for key in record["given"])
    return (
        f"{as_typed('hagmeta-study')} --methods {named} --dataset {dataset} --seeds {spanned(seeds)}{given}"
    )


def _typed(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _no_graph(
    first: OpenRecord, own: Sequence[OpenRecord], references: Sequence[OpenRecord], kind: str
) -> str:
    name = without_hash(first["config"]["dataset"])
    datasets = sorted({record["config"]["dataset"] for record in references})
    if not datasets:
        return f"there are no references of the kind {kind!r}"
    if name in datasets:
        return f"this graph is not the {name} of the references: edges, labels or features differ"
    seeds = sorted(record["seed"] for record in own)
    both = scopes_in(own).both
    task = "".join(f" --set {key}={_typed(first['config'][key])}" for key in first["given"] if key in both)
    methods = ",".join(cheapest(references))
    path = first["config"]["dataset"].removeprefix("npz:")
    return (
        f"no references of the kind {kind!r} have this graph; they have {listed(datasets)}. To compare, run "
        f"the five cheapest methods on it and then `{as_typed('hagmeta-report')}`: "
        f"{as_typed('hagmeta-study')} --methods {methods} --dataset {without_hash(path)} "
        f"--seeds {spanned(seeds)}{task}"
    )


def cheapest(references: Sequence[OpenRecord], most: int = CHEAPEST) -> list[str]:
    """Return the methods that take the least time, without bounds and oracles."""
    seconds: dict[str, list[float]] = {}
    for record in references:
        if record["traits"]["role"] != ROLES[-1] and not record["oracle"]:
            seconds.setdefault(record["config"]["method"], []).append(sum(record["seconds"].values()))
    means: Mapping[str, float] = {method: sum(each) / len(each) for method, each in seconds.items()}
    return sorted(means, key=lambda method: (means[method], method))[:most]


def refusal_of(own: Sequence[OpenRecord], reasons: list[str]) -> Refusal:
    """Return the refusal of the runs of one configuration."""
    first = own[0]
    title = first["traits"]["title"]
    return Refusal(short_name(first["config"]["dataset"]), str(title), reasons)
