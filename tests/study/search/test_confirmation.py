"""Which seeds confirm a choice, and what is kept of an earlier one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from study.search.confirmation import fresh_seeds, roles, seen_seeds, write_best
from study.store.store import Store


def config(name: str) -> Any:
    settings = {"dataset": "debian", "method": "cec", "protocol": "strict", "n_way": 2, "k_shot": 5}
    return SimpleNamespace(hash=lambda: name, canonical=lambda: settings, given=list)


def choice(chosen: str, question: str = "cec", cell: str = "ranges", default: str = "plain") -> Any:
    history = SimpleNamespace(cell=SimpleNamespace(question=question, name=cell))
    return SimpleNamespace(history=history, config=config(chosen), values={}, default=config(default))


class Study:
    """A folder in which searches are launched one after the other, each as told."""

    def __init__(self, folder: Path) -> None:
        self.store, self.launches = Store(folder), 0
        folder.mkdir(exist_ok=True)

    def confirms(self, samples: int, *choices: Any) -> tuple[int, ...]:
        """Launch a search; return the seeds of its confirmation."""
        space: Any = SimpleNamespace(seeds=(0, 1, 2), search=SimpleNamespace(samples=samples), name="mine")
        seen = seen_seeds(space, choices, self.store)
        fresh = fresh_seeds([*space.seeds, *seen])
        write_best(space, choices, fresh, self.store)
        cells = [
            {
                "question": each.history.cell.question,
                "study": each.history.cell.name,
                "chosen": each.config.hash(),
            }
            for each in choices
        ]
        self.launches += 1
        self.store.write_launch(
            {
                "time": f"2026-01-0{self.launches}",
                "configs": {each.config.hash(): {} for each in choices},
                "seeds": list(fresh),
                "search": {"samples": samples, "cells": cells, "seen": list(seen)},
            }
        )
        return fresh


def test_a_continued_search_is_confirmed_on_new_seeds(tmp_path: Path) -> None:
    study, first, second = Study(tmp_path), tuple(range(3, 13)), tuple(range(13, 23))
    assert study.confirms(12, choice("a")) == first
    assert study.confirms(12, choice("a")) == first  # the same launch goes on
    assert study.confirms(14, choice("a")) == second  # the same choice, after more samples
    assert study.confirms(14, choice("a")) == second
    assert study.confirms(14, choice("b", cell="other ranges")) == tuple(range(23, 33))
    assert study.confirms(12, choice("a")) == first


def test_searches_of_other_methods_share_seeds(tmp_path: Path) -> None:
    study = Study(tmp_path)
    first = study.confirms(12, choice("a"))
    assert study.confirms(12, choice("b", question="gpn")) == first  # results are paired by seed
    assert study.confirms(12, choice("a"), choice("b", question="gpn")) == first
    assert study.confirms(16, choice("a"), choice("b", question="gpn")) == tuple(range(13, 23))


def test_an_earlier_choice_is_kept(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.confirms(12, choice("a"))
    before = (tmp_path / "best.yaml").read_text()
    study.confirms(14, choice("b"))
    assert (tmp_path / "best-1.yaml").read_text() == before
    assert "seeds: [13, 14" in (tmp_path / "best.yaml").read_text()
    study.confirms(14, choice("b"))
    assert len(list(tmp_path.glob("best*"))) == 2 and len(list((tmp_path / "launches").iterdir())) == 2


def test_rows_of_a_confirmation_are_tuned_or_default() -> None:
    found = roles([choice("a"), choice("plain", question="gpn")])
    assert found == {"a": "tuned", "plain": "tuned, the defaults"}
