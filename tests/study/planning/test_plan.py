from __future__ import annotations

from hagmeta.config.run_config import RunConfig, pack_key, resolve
from study.planning.cost import rough_seconds
from study.planning.packing import Packing
from study.planning.plan import Trial, make_plan

CONFIGS = [RunConfig.of(nla=nla) for nla in (False, True)]
RATES = [resolve(RunConfig.of(learning_rate=rate)) for rate in (0.001, 0.002, 0.003)]


def test_finished_runs_are_subtracted() -> None:
    done = {(CONFIGS[0].hash(), 0), (CONFIGS[0].hash(), 1), (CONFIGS[1].hash(), 2)}
    plan = make_plan(CONFIGS, range(3), done, Packing())
    assert (plan.total, plan.missing) == (6, 3)
    assert [(trial.config.nla, trial.seeds) for trial in plan.trials] == [(False, (2,)), (True, (0, 1))]


def test_packs_are_as_large_as_asked_and_leave_no_slot_idle() -> None:
    plan = make_plan(CONFIGS[:1], range(10), set(), Packing(seeds=4))
    assert [len(t.seeds) for t in plan.trials] == [4, 4, 2]
    assert Packing(lanes=2).size(80, mixed=False) == 10
    assert Packing(lanes=4).size(10, mixed=False) == 3
    assert Packing(lanes=8).size(1, mixed=False) == 1
    assert Packing(lanes=2, most=64).size(80, mixed=True) == 40
    assert Packing(lanes=1, most=64).size(80, mixed=True) == 64
    assert Packing(members=7, lanes=8).size(80, mixed=True) == 7


def test_configurations_that_may_differ_share_packs_seed_by_seed() -> None:
    apart = resolve(RunConfig.of(hidden=16))
    plan = make_plan([*RATES, apart], range(4), {(RATES[1].hash(), 2)}, Packing(most=8))
    *mixed, alone = plan.trials
    assert [len(trial.members) for trial in mixed] == [6, 5]  # of nearly equal sizes
    assert [seed for trial in mixed for _, seed in trial.members] == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3]
    assert alone == Trial.of(apart, range(4))
    assert all(len({pack_key(config) for config in trial.configs}) == 1 for trial in plan.trials)
    assert {key for trial in plan.trials for key in trial.keys} == plan.keys - {(RATES[1].hash(), 2)}
    assert len({trial.name for trial in plan.trials}) == 3
    assert all(len(t.configs) == 1 for t in make_plan(RATES, range(4), set(), Packing(seeds=10)).trials)


def test_a_trial_comes_apart_by_configuration() -> None:
    (trial,) = make_plan(RATES, range(4), set(), Packing()).trials
    assert trial.apart() == [Trial.of(config, range(4)) for config in RATES]


def test_rough_costs_grow_with_the_work() -> None:
    short, long = RunConfig.of(episodes=100), RunConfig.of(episodes=1000)
    assert rough_seconds(short) < rough_seconds(long)
    assert rough_seconds(RunConfig.of(gpil=False)) < rough_seconds(short)
    assert rough_seconds(RunConfig.of(dataset="reddit")) > 10 * rough_seconds(RunConfig.of(dataset="dblp"))
