"""What searches propose and keep, without machines to run it: dealt in any order, killed at any time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hagmeta.common.records.records import RunKey
from hagmeta.config.run_config import RunConfig, pack_key
from study.planning.packing import Packing
from study.planning.plan import Trial
from study.search.history import AT_ONCE, STARTUP, SearchHistory, open_histories
from study.search.objective import score_of
from study.search.running import Dealer
from study.space import spaces as space
from study.space.spaces import Space
from study.store.store import Store
from study.terminal.progress import StudyProgress
from tests.analysis.conftest import about, figures

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


def worth(config: RunConfig, seed: int = 0) -> float:
    """As if a run had been scored; seeds differ in how hard they are, by the same for all samples."""
    value = 0.5 - abs(config.learning_rate - 0.02) + config.hidden / 1000 + config.finetune_steps / 1000
    return value + seed / 50


class Machine:
    """Runs what is dealt, so many at once, and ends them in any order."""

    def __init__(
        self,
        histories: list[SearchHistory],
        store: Store,
        at_once: int,
        seed: int = 0,
        packing: Packing | None = None,
    ) -> None:
        self.progress = StudyProgress(Console(quiet=True), [], 0)
        packing = packing or Packing(lanes=at_once)
        self.dealer = Dealer(histories, packing, self.progress, lambda trial: {"trial": trial})
        self.store, self.at_once, self.random = store, at_once, random.Random(seed)
        self.running: dict[str, Trial] = {}
        self.diverging: set[RunKey] = set()
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
            self.end(name, failed=fails(self.running[name]))
            ended += 1
        return self

    def end(self, name: str, *, failed: bool = False) -> None:
        """As Tune and the recorder do: records first, then the result."""
        trial = self.running.pop(name)
        if failed:
            self.dealer.failed(name, "ValueError: no")
            return
        for config, seed in trial.members:
            if (config.hash(), seed) in self.diverging:
                key = config.hash(), seed
                self.store.write_failure(key, config.canonical(), f"seed {seed} diverged", diverged=True)
                continue
            score = worth(config, seed)
            self.store.write(record_of(config, seed, {"gpil": None, "last": score, "average": score}))
        self.dealer.finished(name)


def test_a_score_is_of_validation_streams_alone() -> None:
    record = record_of(RunConfig.of(), 0, {"gpil": 0.9, "last": 0.4, "average": 0.6})
    assert score_of(record | {"macro_accuracy": [0.8, 0.7], "average_accuracy": 0.75}) == (0.4, 0.6)


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
    runs = sum(len(trial.members) for trial in dealt)
    assert runs <= 2 * 24 + 2 * 2 * 16  # what ran at a kill ran again, and nothing else


def test_what_was_found_guides_what_is_drawn_and_methods_do_not_share_draws(
    tmp_path: Path, searched: Write
) -> None:
    histories = open_histories(searched(), made(tmp_path / "a"))
    Machine(histories, made(tmp_path / "a"), at_once=1).run()
    first, second = values(histories)
    assert (first[0][0]["learning_rate"], first[0][0]["hidden"]) == (0.005, 32)  # the defaults
    assert first[1][0]["learning_rate"] != second[1][0]["learning_rate"]
    assert set(second[0][0]) == {"learning_rate", "hidden", "cosine_scale"}  # what applies to the method
    elsewhere = SearchHistory(histories[0].cell, 12, made(tmp_path / "b"))
    for number in range(12):
        elsewhere.draw(number)
        score = -worth(histories[0].cell.sample(first[number][0]))
        elsewhere.tell(number, [(score, score)])
    same = [elsewhere.found[n].params == first[n][0] for n in range(12)]
    assert all(same[:STARTUP]) and not any(same[STARTUP:])


def test_a_sample_waits_for_those_that_it_goes_by(tmp_path: Path, searched: Write) -> None:
    histories = open_histories(searched(settings={"method": "cec"}), made(tmp_path / "a"))
    machine = Machine(histories, made(tmp_path / "a"), at_once=12, packing=Packing(seeds=2))
    dealt = [machine.dealer.suggest(str(number)) for number in range(12)]
    assert sum(each is not None for each in dealt) == STARTUP
    machine.running = {str(number): each["spec"]["trial"] for number, each in enumerate(dealt[:STARTUP])}
    for number in range(STARTUP - AT_ONCE + 1):
        machine.end(str(number))
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
        names = [history.cell.name for history in open_histories(other, store) if history.found]
        assert not [name for name in names if "hag-meta" in name]
    assert first[0].cell.name.startswith("debian-hag-meta-")


def test_a_sample_whose_records_are_there_is_told_and_not_run(tmp_path: Path, searched: Write) -> None:
    store = made(tmp_path / "a")
    histories = open_histories(searched(), store)
    config = histories[0].cell.sample(histories[0].draw(0))
    for seed, last in ((0, 0.4), (1, 0.6)):
        validation = {"gpil": None, "stream": 0.9, "last": last, "average": 0.7}
        store.write(record_of(config, seed, validation))
    machine = Machine(histories, store, at_once=4).run()
    assert ran(machine).isdisjoint(Trial.of(config, (0, 1)).keys) and len(ran(machine)) == 2 * 23
    found, record = histories[0].found[0], store.find((config.hash(), 0))
    assert found.value == pytest.approx(0.6)  # the mean of 0.5 and 0.7
    assert record and found.duration  # in Optuna's dashboard
    assert found.duration.total_seconds() == pytest.approx(2 * sum(record["seconds"].values()))
    store.write(record_of(config, 0, {"gpil": None, "stream": 0.9}))  # of a version before
    again = open_histories(searched(), store)
    assert ran(Machine(again, store, at_once=4).run()) == {(config.hash(), 0)}  # all others are there


def ran(machine: Machine) -> set[RunKey]:
    return {key for trial in machine.dealt for key in trial.keys}


def record_of(config: RunConfig, seed: int, validation: dict[str, Any]) -> dict[str, Any]:
    return {**about(config), **figures([0.5]), "seed": seed, "validation": validation}


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
    assert {trial.config.method for trial in machine.dealt} == {"cec"} and len(ran(machine)) == 24
    assert not again[1].missing


# A later sample depends on all results before it, also on that of a second try.
def test_search_with_a_failure_that_is_gone_ends_as_without_it(tmp_path: Path, searched: Write) -> None:
    (whole,) = open_histories(searched(ALIKE), made(tmp_path / "a"))
    Machine([whole], made(tmp_path / "a"), at_once=1).run()
    bad = whole.cell.sample(whole.values[3])
    (failed,) = open_histories(searched(ALIKE), made(tmp_path / "b"))
    Machine([failed], made(tmp_path / "b"), at_once=1).run(fails=lambda trial: bad in trial.configs)
    assert list(failed.failed) == [3] and values([failed]) != values([whole])
    (again,) = open_histories(searched(ALIKE), made(tmp_path / "b"))
    Machine([again], made(tmp_path / "b"), at_once=1).run()
    assert values([again]) == values([whole])


@pytest.mark.parametrize(
    "packing", [Packing(seeds=2), pytest.param(Packing(most=64), marks=pytest.mark.slow)]
)
def test_diverged_sample_fails_alone_and_for_good(tmp_path: Path, searched: Write, packing: Packing) -> None:
    (whole,) = open_histories(searched(ALIKE), made(tmp_path / "a"))
    bad = whole.cell.sample(whole.values[3]).hash()
    machine = Machine([whole], made(tmp_path / "a"), at_once=1, packing=packing)
    machine.diverging = {(bad, 1)}
    machine.run()
    assert whole.failed == {3: "seed 1 diverged"} and whole.hopeless == {3} and len(whole.found) == 23
    assert (bad, 0) in ran(machine)  # it shared a trial with the seed that diverged
    (again,) = open_histories(searched(ALIKE), made(tmp_path / "a"))
    assert not again.missing and again.failed == whole.failed and values([again]) == values([whole])


def test_values_that_do_not_go_together_are_a_failure_with_its_reason(
    tmp_path: Path, searched: Write
) -> None:
    # Each goes with the defaults of the other, and 16 heads do not divide 20.
    text = SPACE.replace("cosine_scale: {uniform: [4.0, 64.0]}", "heads: {choice: [4, 16]}")
    text = text.replace("[hag-meta, cec]", "[proto-gat]").replace("[16, 32, 64]", "[16, 20]")
    store = made(tmp_path / "a")
    (history,) = open_histories(searched(text), store)
    machine = Machine([history], store, at_once=2).run()
    assert len(ran(machine)) == 2 * len(history.found) == 2 * (12 - len(history.failed)) and history.failed
    assert set(history.failed.values()) == {"hidden is 20; expected a multiple of heads (16)."}


ALIKE = """
datasets: [debian]
fixed: {val_classes: half, method: cec}
search: {algorithm: optuna, samples: 24, objective: val_accuracy}
sample:
  learning_rate: {loguniform: [0.001, 0.1]}
  cosine_scale: {uniform: [4.0, 64.0]}
seeds: 10
"""


def test_samples_that_are_ready_together_share_packs_and_are_the_same_samples(
    tmp_path: Path, searched: Write
) -> None:
    text = ALIKE.replace("seeds: 10", "seeds: 2")
    found = []
    for place, packing in enumerate((Packing(seeds=2), Packing(most=64), Packing(members=6, lanes=3))):
        store = made(tmp_path / str(place))
        histories = open_histories(searched(text), store)
        machine = Machine(histories, store, at_once=packing.lanes, packing=packing).run()
        found.append(values(histories))
        sizes = [len(trial.configs) for trial in machine.dealt]
        if place == 0:
            assert sizes == [1] * 24
        elif place == 1:  # all random samples at once, and then as many as a search draws ahead
            assert sizes == [STARTUP, *[AT_ONCE] * 3, 2]
        assert max(len(trial.members) for trial in machine.dealt) <= packing.largest
        assert all(len({pack_key(config) for config in trial.configs}) == 1 for trial in machine.dealt)
    assert found[0] == found[1] == found[2]


def test_samples_of_a_pack_that_failed_run_separately_and_only_one_fails(
    tmp_path: Path, searched: Write
) -> None:
    store = made(tmp_path / "a")
    (history,) = open_histories(searched(ALIKE), store)
    bad = [history.cell.sample(history.draw(number)).hash() for number in range(4)][3]
    machine = Machine([history], store, at_once=1, packing=Packing(members=100))
    machine.run(fails=lambda trial: bad in {config.hash() for config in trial.configs})
    assert list(history.failed) == [3] and len(history.found) == 23
    assert [len(trial.configs) for trial in machine.dealt[:12]] == [STARTUP, *[1] * STARTUP, AT_ONCE]


def test_the_best_sample_is_the_one_of_the_highest_objective_however_often_killed(
    tmp_path: Path, searched: Write
) -> None:
    store = made(tmp_path / "a")
    (history,) = whole = open_histories(searched(ALIKE), store)
    machine = Machine(whole, store, at_once=1, packing=Packing(most=64)).run()
    assert not history.missing and len(history.found) == 24
    assert history.runs == len(ran(machine)) == 10 * len(history.found)
    assert history.best() == (
        history.cell.sample(history.values[max(history.found, key=lambda n: history.found[n].value or 0)]),
        max(trial.value for trial in history.found.values()),
    )
    for seed, most in enumerate((2, 3, 10**6)):  # killed twice, with other packs
        killed = open_histories(searched(ALIKE), made(tmp_path / "b"))
        Machine(killed, made(tmp_path / "b"), at_once=3, seed=seed).run(most)
    assert values(killed) == values(whole) and killed[0].best() == history.best()


GROUPED = """
datasets: [debian]
fixed: {val_classes: half, method: hag-meta}
search: {algorithm: optuna, samples: 22, objective: val_accuracy, group: 4}
sample:
  learning_rate: {loguniform: [0.001, 0.1]}
  hidden: {choice: [16, 32, 64]}
  finetune_steps: {randint: [0, 9]}
  finetune_rate: {loguniform: [0.001, 0.1]}
  smoothing: {choice: [0.0, 0.25, 0.5, 0.75]}
  logit_adjustment: {choice: [0.0, 0.1, 0.3, 1.0]}
seeds: 2
"""


def groups_of(history: SearchHistory, size: int = 4) -> list[list[dict[str, Any]]]:
    drawn = [history.values[number] for number in sorted(history.values)]
    return [drawn[start : start + size] for start in range(0, len(drawn), size)]


def test_each_group_is_one_pack_whose_samples_differ(tmp_path: Path, searched: Write) -> None:
    store = made(tmp_path / "a")
    (history,) = open_histories(searched(GROUPED), store)
    machine = Machine([history], store, at_once=1, packing=Packing(most=64)).run()
    # Three random groups, then one after the other; the last one is smaller.
    assert sorted(len(trial.configs) for trial in machine.dealt) == [2, 4, 4, 4, 4, 4]
    for group in groups_of(history):
        assert len({pack_key(history.cell.sample(each)) for each in group}) == 1
        assert len({(each["hidden"], each["finetune_steps"]) for each in group}) == 1
        assert len({each["learning_rate"] for each in group}) == len(group)
        assert len({each["smoothing"] == 0 for each in group}) == 1  # it would take other code
    assert len({each["smoothing"] for group in groups_of(history) for each in group}) > 2
    assert len({group[0]["hidden"] for group in groups_of(history)}) > 1
    defaults = history.cell.defaults
    assert defaults["hidden"] == 32 and defaults.items() <= history.values[0].items()


def test_the_first_of_each_random_group_is_the_sample_of_a_search_without_groups(
    tmp_path: Path, searched: Write
) -> None:
    store = made(tmp_path / "a")
    (grouped,), (single,), (without,) = (
        open_histories(searched(GROUPED.replace(", group: 4", text)), store)
        for text in (", group: 4", ", group: 1", "")
    )
    assert single.cell.name == without.cell.name != grouped.cell.name
    for number in range(STARTUP):
        assert (grouped.draw(number) == without.draw(number)) == (number % 4 == 0)


@pytest.mark.parametrize(("size", "waits_for"), [(1, 9), (2, 10), (4, 12), (5, 10)])
def test_a_group_waits_for_the_groups_before_it(
    tmp_path: Path, searched: Write, size: int, waits_for: int
) -> None:
    text = GROUPED.replace("group: 4", f"group: {size}")
    (history,) = open_histories(searched(text), made(tmp_path / "a"))
    for number in range(waits_for):
        assert not history.is_ready(12)
        history.draw(number)
        history.tell(number, [(0.5, 0.5)] * 2)
    assert history.is_ready(12)
    assert history.is_ready(13) == (size != 1)


STARTED = SPACE.replace("samples: 12", "samples: 12%s")
START = ", start: [{hidden: 64, cosine_scale: 8.0}, {cosine_scale: 9.0}, {hidden: 32}, {hidden: 64}]"


def test_a_search_takes_the_starting_points_that_differ_for_its_method(
    tmp_path: Path, searched: Write
) -> None:
    store = made(tmp_path / "a")
    (started, _), (plain, _) = (open_histories(searched(STARTED % text), store) for text in (START, ""))
    own = [each | {"hidden": 64} for each in started.cell.given_samples[:1]]
    assert started.cell.given_samples == [plain.cell.defaults, *own]  # the others are equal for HAG-Meta
    drawn = [started.draw(number) for number in range(4)]
    assert drawn[0] == plain.draw(0) and drawn[1] == drawn[0] | {"hidden": 64}
    assert plain.draw(1) != drawn[1]
    assert drawn[2:] == [plain.draw(number) for number in (2, 3)]  # random, and the same without


def test_starting_points_keep_their_order_and_make_another_search(tmp_path: Path, searched: Write) -> None:
    store = made(tmp_path / "a")

    def cec(start: str) -> SearchHistory:
        return open_histories(searched(STARTED % start, settings={"method": "cec"}), store)[0]

    points = [(each["hidden"], each["cosine_scale"]) for each in cec(START).cell.given_samples]
    default = cec("").cell.defaults["cosine_scale"]
    assert points == [(32, default), (64, 8.0), (32, 9.0), (64, default)]
    assert cec(START).cell.name != cec("").cell.name != cec(START.replace("8.0", "7.0")).cell.name
    assert cec(", start: [{hidden: 32}, {finetune_steps: 3}]").cell.name == cec("").cell.name


def test_starting_points_are_the_same_killed_and_extended(tmp_path: Path, searched: Write) -> None:
    start = "start: [{hidden: 64}, {learning_rate: 0.02}, {smoothing: 0.5}, {hidden: 16}, {hidden: 32}]"
    text = GROUPED.replace("group: 4", f"group: 4, {start}").replace("[0, 9]", "[0, 20]")
    text = text.replace("samples: 22", "samples: 10")
    (whole,) = open_histories(searched(text), made(tmp_path / "a"))
    Machine([whole], made(tmp_path / "a"), at_once=1, packing=Packing(most=64)).run()
    assert len(whole.found) == 10
    changes: list[dict[str, Any]] = [
        {},
        {"hidden": 64},
        {"learning_rate": 0.02},
        {"smoothing": 0.5},
        {"hidden": 16},
    ]
    assert [whole.values[n] for n in range(5)] == [whole.values[0] | change for change in changes]
    assert whole.values[5]["hidden"] == 16  # it shares a pack with the first of its group
    for seed, (samples, most) in enumerate(((7, 3), (10, 10**6))):
        asked = searched(text.replace("samples: 10", f"samples: {samples}"))
        (killed,) = open_histories(asked, made(tmp_path / "b"))
        Machine([killed], made(tmp_path / "b"), at_once=1 + seed, seed=seed).run(most)
    assert values([killed]) == values([whole])
