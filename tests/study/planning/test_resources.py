"""What trials take of CPUs and GPUs, and how that is found out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import run
from study.planning import data, gpu_memory
from study.planning.plan import Trial
from study.planning.resources import (
    MOST_TRIALS_PER_GPU,
    check_possible,
    choose_resources,
    count_lanes,
    kind,
    share_of,
)
from study.running.connection import PRIVATE, why_nothing_runs
from study.running.tuning import Patience
from tests.study.test_launch import HAS_GPU, ROOT
from tests.waiting import HANG

GB = 1e9
SMALL = RunConfig.of(
    dataset="synthetic:nodes=600,edges=2500,features=80,classes=12,seed=1",
    classes=(4, 4, 4),
    n_way=2,
    k_shot=3,
)
WIDE = RunConfig.of(dataset=SMALL.dataset, classes=(4, 4, 4), n_way=4, k_shot=3)
OTHER = RunConfig.of(dataset=SMALL.dataset, classes=(4, 4, 4), n_way=2, k_shot=3, method="cec")
TRIALS = [Trial.of(resolve(config), (0, 1, 2)) for config in (SMALL, WIDE, OTHER)]


def test_without_gpus_a_trial_takes_a_core() -> None:
    resources = choose_resources({"CPU": 2.0}, 0.0, None, None)
    assert (resources.cpus, resources.gpus, resources.slots) == (1, 0, 2)
    assert choose_resources({"CPU": 8.0}, 0.0, 2, 3).slots == 3


def test_packs_are_small_on_many_cores_and_large_on_one_gpu() -> None:
    # Ten seeds in a pack cost a GPU hardly more than one, so its shares are no reason for smaller packs.
    assert count_lanes({"CPU": 16.0}, None, None, None) == 16
    assert count_lanes({"CPU": 16.0, "GPU": 1.0}, None, None, None) == 1
    assert count_lanes({"CPU": 16.0, "GPU": 1.0}, 0.125, None, None) == 1
    assert count_lanes({"CPU": 16.0, "GPU": 1.0}, 0.0, None, None) == 16
    assert count_lanes({"CPU": 4.0}, 0.25, None, 16) == 4  # GPUs that come when they are asked for


def test_a_share_is_one_of_n_that_hold_the_trial_with_slack() -> None:
    assert share_of(0.1 * GB, 140 * GB) == 1 / MOST_TRIALS_PER_GPU
    assert share_of(30 * GB, 140 * GB) == 1 / 3
    assert share_of(60 * GB, 80 * GB) == share_of(float("inf"), 80 * GB) == 1


def test_kinds_of_trials_take_their_own_shares() -> None:
    shares = {kind(SMALL): 0.125, kind(OTHER): 0.5}
    resources = choose_resources({"CPU": 16.0, "GPU": 1.0}, shares, None, None)
    assert [resources.gpu_share(config) for config in (SMALL, WIDE, OTHER)] == [0.125, 0.125, 0.5]
    assert str(resources) == "1 CPU, 0.125 to 0.5 GPU per trial, up to 8 at once"
    same = choose_resources({"CPU": 16.0, "GPU": 1.0}, 0.25, None, None)  # as --gpus-per-trial asks
    assert same.gpu_share(OTHER) == 0.25 and str(same) == "1 CPU, 0.25 GPU per trial, 4 at once"


def test_the_bound_of_the_largest_configuration_and_pack_decides_the_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_memory, "_gpu_bytes", lambda: 140 * GB)
    assert set(gpu_memory.gpu_shares(TRIALS).values()) == {1 / 8}
    monkeypatch.setattr(gpu_memory, "OTHER_BYTES", 20 * GB)
    gone = Trial.of(resolve(RunConfig.of(dataset="npz:gone.npz", classes=(4, 4, 4))), (0,))
    shares = gpu_memory.gpu_shares([*TRIALS, gone])
    assert shares == {kind(SMALL): 1 / 5, kind(OTHER): 1 / 5, kind(gone.config): 1}
    wider, more = replace(TRIALS[0].config, hidden=4096), Trial.of(TRIALS[0].config, range(5000))
    for larger in (Trial.of(wider, range(100)), more):
        assert gpu_memory.gpu_shares([*TRIALS, larger])[kind(SMALL)] > 1 / 5


def test_dense_inputs_count_for_all_seeds_and_propagated_for_each() -> None:
    def most(config: RunConfig) -> float:
        return gpu_memory.most_bytes(resolve(config), 10)

    words, dense = most(SMALL), most(replace(SMALL, dataset=f"{SMALL.dataset},dense=1"))
    assert dense - words == pytest.approx(4 * 600 * 80 * (10 + 1))
    assert most(replace(SMALL, inputs="svd")) == pytest.approx(dense)  # 80 words have at most 80 columns


@pytest.mark.slow
def test_trials_of_different_shares_fill_a_gpu_and_reuse_their_workers(tmp_path: Path) -> None:
    # Ray counts GPUs that are not there; the trials only say who they were and when.
    program = f"""
import sys, time, os, json
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from study.running import tuning
from study.running.queue import Supply
from study.planning.resources import choose_resources
from study.store.store import Store
import ray
from ray import tune
ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)

def nothing(spec):
    start = time.time()
    time.sleep(0.5)
    share = spec["gpu_share"]
    tune.report({{"line": json.dumps([share, os.getpid(), start, time.time()])}})

class Lines(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        print("line", result["line"], flush=True)

class Counted:
    copies = 0
    def __deepcopy__(self, memo):
        Counted.copies += 1
        return self

class Specs(Supply):
    most = 6
    def suggest(self, trial_id):
        return {{"spec": specs.pop(0)}} if specs else self.FINISHED

shares = [1.0] * 2 + [0.5] * 4
resources = choose_resources({{"CPU": 2, "GPU": 1}}, {{("a", "b"): 1.0, ("c", "d"): 0.5}}, None, None)
specs = [{{"gpu_share": s, "name": str(n), "counted": Counted()}} for n, s in enumerate(shares)]
store = Store(Path({str(tmp_path)!r}))
runner = tuning.StudyRunner(store, resources, None, tuning.TrialOptions())
runner.supplied(nothing, Specs(), Lines())
print("copies", Counted.copies)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("line ")]
    assert sorted(share for share, *_ in lines) == [0.5] * 4 + [1.0] * 2
    for _, _, start, _ in lines:
        together = sum(share for share, _, other, end in lines if other <= start < end)
        assert together <= 1
    # A worker is kept for trials of the same share, and for no others.
    shares_of: dict[int, set[float]] = {}
    for share, worker, *_ in lines:
        shares_of.setdefault(worker, set()).add(share)
    assert len(shares_of) < len(lines) and all(len(shares) == 1 for shares in shares_of.values())
    # What a trial is told is copied for that trial, not for all: thousands of trials start as fast as a few.
    copies = int(done.stdout.splitlines()[-1].removeprefix("copies "))
    assert copies <= 3 * len(lines)


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_a_pack_needs_no_more_than_its_bound() -> None:
    config = TRIALS[0].config
    options = RunOptions(device=torch.device("cuda"))
    run(config, range(3), data.load(config.dataset), options)
    assert 1e6 < torch.cuda.max_memory_reserved() < gpu_memory.most_bytes(config, 3)


@pytest.mark.parametrize(
    ("cpus", "gpus", "named"),
    [
        (100, None, "--cpus-per-trial is 100, but Ray finds 2 CPUs"),
        (None, 5, "--gpus-per-trial is 5, but Ray finds 0 GPUs"),
    ],
)
def test_what_a_machine_will_never_have_is_refused(
    cpus: float | None, gpus: float | None, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        check_possible({"CPU": 2.0}, cpus, gpus)
    check_possible({"CPU": 2.0}, 2, 0)


def test_a_trial_that_stays_pending_is_explained_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("study.running.tuning.time.monotonic", lambda: now)
    patience, told = Patience(30), []
    for now in range(400):
        if patience.is_over(waiting=not 100 <= now < 110):
            told.append(now)
    assert told == [30, 139]
    text = why_nothing_runs({"CPU": 1, "GPU": 2}, [{"CPU": 2.0}, {"CPU": 8.0, "GPU": 1.0, "memory": 9.0}])
    assert text is not None
    assert "a trial needs 1 CPU and 2 GPU, but the nodes have 2 CPU; 8 CPU and 1 GPU" in text
    assert "others use the cluster" in (why_nothing_runs({"CPU": 1}, [{"CPU": 2.0}]) or "")
    assert why_nothing_runs({"CPU": 1}, [{"CPU": 2.0, PRIVATE: 1}]) is None  # a slow start
