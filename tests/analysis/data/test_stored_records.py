"""Methods and graphs are called as records say; plug-ins have names of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.data.labels import transductive_words
from analysis.data.reading import read
from analysis.data.traits import Traits
from tests.analysis.conftest import Write, rewritten

SEEDS = range(6)


def curves(last: float) -> dict[int, list[float]]:
    return {seed: [0.8, last + seed / 100] for seed in SEEDS}


def plugged(folder: Path, identity: str, **traits: str) -> Path:
    """A study's records as if a method from outside had made them."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        config = record["config"] | {"method": identity}
        return record | {"config": config, "traits": {"title": identity.partition("@")[0], **traits}}

    return rewritten(folder, change)


def test_methods_are_ordered_by_role_and_title(write: Write) -> None:
    for method in ("posterior-means", "icarl", "hag-meta", "joint", "cec", "frozen"):
        folder = write(curves(0.5), method=method)
    (panel,) = read([folder]).panels
    assert panel.labels == [
        *("HAG-Meta", "CEC", "iCaRL", "Posterior means (transductive)", "Frozen", "Joint (oracle)")
    ]


def test_a_plug_in_is_called_by_its_title(write: Write) -> None:
    write(curves(0.5))
    mine = plugged(
        write(curves(0.6), study="mine", method="cec"), "Mine@0123456789ab", transductive="it guesses"
    )
    results = read([mine.parent / "study", mine])
    assert set(results.runs["label"]) == {"HAG-Meta", "Mine (transductive)"}
    assert transductive_words(results.runs) == ["Mine has transductive predictions: it guesses."]


def test_plug_ins_of_one_title_are_told_apart_by_their_source(write: Write) -> None:
    one = plugged(write(curves(0.5), study="one", method="cec"), "Mine@0123456789ab")
    two = plugged(write(curves(0.6), study="two", method="cec"), "Mine@fedcba987654")
    assert set(read([one, two]).runs["label"]) == {"Mine [012345]", "Mine [fedcba]"}


def test_a_role_of_later_code_is_that_of_a_baseline() -> None:
    places = sorted(
        [Traits("B", "bound"), Traits("A", "of later code"), Traits("C", "studied")], key=lambda t: t.place
    )
    assert [traits.title for traits in places] == ["C", "A", "B"]


def test_graphs_made_in_memory_are_called_by_their_names(write: Write) -> None:
    def named(data: str) -> Any:
        return lambda record: (
            record | {"data": data, "config": record["config"] | {"dataset": f"mine@{data[:12]}"}}
        )

    one = rewritten(write(curves(0.5), study="one"), named("a" * 64))
    assert set(read([one]).runs["dataset"]) == {"mine"}
    two = rewritten(write(curves(0.5), study="two"), named("b" * 64))
    results = read([one, two])
    assert set(results.runs["dataset"]) == {"mine [aaaaaa]", "mine [bbbbbb]"}
    assert results.graphs[0].startswith("mine is the name of 2 different graphs")
