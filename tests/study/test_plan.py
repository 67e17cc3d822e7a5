from __future__ import annotations

from hagmeta.config import RunConfig
from study.cost import in_words, rough_seconds
from study.plan import make_plan, pack_size

CONFIGS = [RunConfig(nla=nla) for nla in (False, True)]


def test_finished_runs_are_subtracted() -> None:
    done = {(CONFIGS[0].hash(), 0), (CONFIGS[0].hash(), 1), (CONFIGS[1].hash(), 2)}
    plan = make_plan(CONFIGS, range(3), done, None, 1)
    assert (plan.total, plan.missing) == (6, 3)
    assert [(trial.config.nla, trial.seeds) for trial in plan.trials] == [(False, (2,)), (True, (0, 1))]


def test_more_seeds_later_run_only_those() -> None:
    done = {(config.hash(), seed) for config in CONFIGS for seed in range(3)}
    plan = make_plan(CONFIGS, range(10), done, None, 1)
    assert all(trial.seeds == tuple(range(3, 10)) for trial in plan.trials)


def test_a_configuration_given_twice_runs_once() -> None:
    assert make_plan([*CONFIGS, *CONFIGS], range(2), set(), None, 1).total == 4


def test_packs_are_as_large_as_asked_and_leave_no_slot_idle() -> None:
    assert [len(t.seeds) for t in make_plan(CONFIGS[:1], range(10), set(), 4, 1).trials] == [4, 4, 2]
    assert pack_size(missing=80, lanes=2) == 10
    assert pack_size(missing=10, lanes=4) == 3
    assert pack_size(missing=1, lanes=8) == 1


def test_rough_costs_grow_with_the_work() -> None:
    short, long = RunConfig(episodes=100), RunConfig(episodes=1000)
    assert rough_seconds(short) < rough_seconds(long)
    assert rough_seconds(RunConfig(gpil=False)) < rough_seconds(short)
    assert rough_seconds(RunConfig(dataset="reddit")) > 10 * rough_seconds(RunConfig(dataset="dblp"))
    assert [in_words(seconds) for seconds in (1, 20, 100, 5400, 200_000)] == [
        *("1 second", "20 seconds", "2 minutes", "2 hours", "2 days")
    ]
