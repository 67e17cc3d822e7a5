"""What searches propose and keep, without machines to run it: dealt in any order, killed at any time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from rich.console import Console

from hagmeta.config import RunConfig
from study import space
from study.plan import Trial
from study.progress import StudyProgress
from study.search.history import AT_ONCE, STARTUP, SearchHistory, open_histories
from study.search.running import Dealer
from study.space import Space
from study.store import Store

SPACE = """
datasets: [debian]
fixed: {val_classes: half}
grid: {method: [hag-meta, cec]}
search: {algorithm: optuna, samples: 12, objective: val_accuracy}
sample:
  learning_rate: {loguniform: [0.001, 0.1]}
  hidden: {choice: [16, 32, 64]}
  finetune_steps: {randint: [0, 9]}
  cosine_scale: {uniform: [4.0, 64.0]}
seeds: 2
"""
Write = Callable[..., Space]


@pytest.fixture
def searched(tmp_path: Path) -> Write:
    def read(text: str = SPACE, **asked: Any) -> Space:
        (tmp_path / "mine.yaml").write_text(text)
        return space.read(str(tmp_path / "mine.yaml"), **asked)

    return read


def made(folder: Path) -> Store:
    folder.mkdir(exist_ok=True)
    return Store(folder)


def worth(trial: Trial) -> float:
    """As if a sample had run."""
    config = trial.config
    return 0.5 - abs(config.learning_rate - 0.02) + config.hidden / 1000 + config.finetune_steps / 1000


class Machine:
    """Runs what is dealt, so many at once, and ends them in any order."""

    def __init__(self, histories: list[SearchHistory], store: Store, at_once: int, seed: int = 0) -> None:
        progress = StudyProgress(Console(quiet=True), [], 0)
        self.dealer = Dealer(histories, store, progress, lambda trial: {"trial": trial})
        self.at_once, self.random = at_once, random.Random(seed)
        self.running: dict[str, Trial] = {}
        self.dealt: list[Trial] = []

    def run(self, most: int = 10**6, fails: Callable[[Trial], bool] = lambda trial: False) -> Machine:
        """Until all have ended, or ``most`` have: then those that run are killed."""
        ended = 0
        while ended < most:
            while len(self.running) < self.at_once:
                name = str(len(self.dealt))
                found = self.dealer.suggest(name)
                if found is None or found == Dealer.FINISHED:
                    break
                self.running[name] = found["spec"]["trial"]
                self.dealt.append(self.running[name])
            if not self.running:
                break
            name = self.random.choice(list(self.running))
            trial = self.running.pop(name)
            failed = fails(trial)
            self.dealer.on_trial_complete(name, None if failed else {"val_accuracy": worth(trial)}, failed)
            ended += 1
        return self


def values(histories: list[SearchHistory]) -> list[dict[int, Any]]:
    return [{n: (trial.params, trial.value) for n, trial in sorted(m.found.items())} for m in histories]


def test_a_search_finds_the_same_alone_beside_others_and_killed(tmp_path: Path, searched: Write) -> None:
    whole = open_histories(searched(), made(tmp_path / "a"))
    Machine(whole, made(tmp_path / "a"), at_once=8).run()
    assert [len(history.found) for history in whole] == [12, 12]
    assert len({json.dumps(v[0]) for found in values(whole) for v in found.values()}) == 24

    alone = open_histories(searched(settings={"method": "cec"}), made(tmp_path / "b"))
    Machine(alone, made(tmp_path / "b"), at_once=1).run()
    assert values(alone) == values(whole)[1:]

    dealt: list[Trial] = []
    for seed, most in enumerate((3, 9, 10**6)):
        killed = open_histories(searched(), made(tmp_path / "c"))
        dealt += Machine(killed, made(tmp_path / "c"), at_once=3, seed=seed).run(most).dealt
    assert values(killed) == values(whole)
    assert [history.best() for history in killed] == [history.best() for history in whole]
    assert len(dealt) <= 24 + 2 * 2  # what ran at a kill ran again, and nothing else


def test_what_was_found_guides_what_is_drawn_and_methods_do_not_share_draws(
    tmp_path: Path, searched: Write
) -> None:
    histories = open_histories(searched(), made(tmp_path / "a"))
    Machine(histories, made(tmp_path / "a"), at_once=1).run()
    first, second = values(histories)
    assert (first[0][0]["learning_rate"], first[0][0]["hidden"]) == (0.005, 32)  # the defaults
    assert first[1][0]["learning_rate"] != second[1][0]["learning_rate"]
    assert set(second[0][0]) == {"learning_rate", "hidden", "cosine_scale"}  # what applies to the method
    elsewhere = SearchHistory(histories[0].cell, 12, optuna.create_study(direction="maximize"))
    for number in range(12):
        elsewhere.draw(number)
        elsewhere.tell(number, -worth(Trial(histories[0].cell.sample(first[number][0]), (0,))))
    same = [elsewhere.found[n].params == first[n][0] for n in range(12)]
    assert all(same[:STARTUP]) and not any(same[STARTUP:])


def test_a_sample_waits_for_those_that_it_goes_by(tmp_path: Path, searched: Write) -> None:
    histories = open_histories(searched(settings={"method": "cec"}), made(tmp_path / "a"))
    machine = Machine(histories, made(tmp_path / "a"), at_once=12)
    machine.run(0)
    dealt = [machine.dealer.suggest(str(number)) for number in range(12)]
    assert sum(each is not None for each in dealt) == STARTUP
    for number in range(STARTUP - AT_ONCE + 1):
        machine.dealer.on_trial_complete(str(number), {"val_accuracy": 0.5})
    assert machine.dealer.suggest("next") is not None and machine.dealer.suggest("one more") is None


def test_more_samples_extend_a_search_and_other_ranges_or_seeds_are_another(
    tmp_path: Path, searched: Write
) -> None:
    store = made(tmp_path / "a")
    first = open_histories(searched(), store)
    Machine(first, store, at_once=2).run()
    more = open_histories(searched(SPACE.replace("samples: 12", "samples: 14")), store)
    assert [history.missing for history in more] == [[12, 13]] * 2
    fewer = open_histories(searched(SPACE.replace("samples: 12", "samples: 4")), store)
    assert [list(history.found) for history in fewer] == [[0, 1, 2, 3]] * 2
    for other in (
        searched(SPACE.replace("[16, 32, 64]", "[16, 32]")),
        searched(SPACE.replace("[0.001, 0.1]", "[0.001, 0.2]")),
        searched(SPACE.replace("half", "3")),
        searched(seeds=[0, 1, 2]),
        searched(settings={"episodes": 7}),
        searched(datasets=["cora-full"]),
    ):
        names = [history.cell.name for history in open_histories(other, store, make=False) if history.found]
        assert not [name for name in names if "hag-meta" in name]
    assert first[0].cell.name.startswith("debian-hag-meta-")


def test_a_sample_whose_records_are_there_is_told_and_not_run(tmp_path: Path, searched: Write) -> None:
    store = made(tmp_path / "a")
    histories = open_histories(searched(), store)
    trial = Trial(histories[0].cell.sample(histories[0].draw(0)), (0, 1))
    for seed, last in ((0, 0.4), (1, 0.6)):
        validation = {"gpil": None, "stream": 0.9, "last": last, "average": 0.7}
        store.write(record_of(trial.config, seed, validation))
    machine = Machine(histories, store, at_once=4).run()
    assert trial not in machine.dealt and len(machine.dealt) == 23
    assert histories[0].found[0].value == pytest.approx(0.6)  # the mean of 0.5 and 0.7
    store.write(record_of(trial.config, 0, {"gpil": None, "stream": 0.9}))  # of a version before
    again = open_histories(searched(), made(tmp_path / "b"))
    assert trial in Machine(again, store, at_once=4).run().dealt


def record_of(config: RunConfig, seed: int, validation: dict[str, Any]) -> dict[str, Any]:
    about = {"config": config.canonical(), "config_hash": config.hash(), "seed": seed}
    about |= {"unhashed": config.unhashed(), "revisions": config.revisions()}
    figures = {"accuracy": [0.5], "matrix": [[0.5]], "pd": 0.0, "rpd": 0.0, "seconds": {}}
    return about | figures | {"validation": validation}


def test_failures_hold_nothing_up_and_are_tried_again_by_the_next_launch(
    tmp_path: Path, searched: Write
) -> None:
    store = made(tmp_path / "a")
    histories = open_histories(searched(), store)
    Machine(histories, store, at_once=3).run(fails=lambda trial: trial.config.method == "cec")
    assert [len(history.found) for history in histories] == [12, 0]
    assert len(histories[1].failed) == 12 and histories[1].best() is None
    again = open_histories(searched(), store)
    machine = Machine(again, store, at_once=3).run()
    assert {trial.config.method for trial in machine.dealt} == {"cec"} and len(machine.dealt) == 12
    assert not again[1].missing


def test_values_that_do_not_go_together_are_a_failure_with_its_reason(
    tmp_path: Path, searched: Write
) -> None:
    # Each goes with the defaults of the other, and 16 heads do not divide 20.
    text = SPACE.replace("cosine_scale: {uniform: [4.0, 64.0]}", "heads: {choice: [4, 16]}")
    text = text.replace("[hag-meta, cec]", "[proto-gat]").replace("[16, 32, 64]", "[16, 20]")
    store = made(tmp_path / "a")
    (history,) = open_histories(searched(text), store)
    dealt = Machine([history], store, at_once=2).run().dealt
    assert len(dealt) == len(history.found) == 12 - len(history.failed) and history.failed
    assert set(history.failed.values()) == {"hidden is 20; expected a multiple of heads (16)."}
