from __future__ import annotations

from pathlib import Path

from hagmeta.config import RunConfig
from hagmeta.datasets import describe
from study.cost import in_words, rough_seconds
from study.plan import make_plan, pack_size
from study.resources import Resources, choose_resources

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


def test_trials_share_a_gpu_by_the_size_of_their_data() -> None:
    cluster = {"CPU": 16.0, "GPU": 1.0}
    small, large = (
        choose_resources(cluster, [describe(name, Path())], 10, None, None, None)
        for name in ("debian", "reddit")
    )
    assert small.gpus < large.gpus <= 1
    assert small.slots == round(1 / small.gpus)


def test_without_gpus_a_trial_takes_a_core() -> None:
    resources = choose_resources({"CPU": 2.0}, [describe("debian", Path())], 10, None, None, None)
    assert (resources.cpus, resources.gpus, resources.slots) == (1, 0, 2)
    assert choose_resources({"CPU": 8.0}, [describe("debian", Path())], 10, 2, None, 3).slots == 3


def test_packs_are_small_on_many_cores_and_large_on_one_gpu() -> None:
    # Ten seeds in a pack cost a GPU hardly more than one, so its shares are no reason for smaller packs.
    assert Resources(cpus=1, gpus=0, slots=16).lanes == 16
    assert Resources(cpus=1, gpus=0.125, slots=8).lanes == 1
    assert Resources(cpus=1, gpus=0.25, slots=16).lanes == 4


def test_rough_costs_grow_with_the_work() -> None:
    short, long = RunConfig(episodes=100), RunConfig(episodes=1000)
    assert rough_seconds(short) < rough_seconds(long)
    assert rough_seconds(RunConfig(gpil=False)) < rough_seconds(short)
    assert rough_seconds(RunConfig(dataset="reddit")) > 10 * rough_seconds(RunConfig(dataset="dblp"))
    assert [in_words(seconds) for seconds in (20, 100, 5400, 200_000)] == [
        *("20 seconds", "2 minutes", "2 hours", "2 days")
    ]
