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
from study import calibration
from study.connection import PRIVATE, why_nothing_runs
from study.plan import Trial
from study.resources import MOST_TRIALS_PER_GPU, check_possible, choose_resources, count_lanes, kind, share_of
from study.tuning import Patience
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
    assert share_of(60 * GB, 80 * GB) == share_of(calibration.NOT_MEASURED, 80 * GB) == 1


def test_kinds_of_trials_take_their_own_shares() -> None:
    shares = {kind(SMALL): 0.125, kind(OTHER): 0.5}
    resources = choose_resources({"CPU": 16.0, "GPU": 1.0}, shares, None, None)
    assert [resources.gpu_share(config) for config in (SMALL, WIDE, OTHER)] == [0.125, 0.125, 0.5]
    assert str(resources) == "1 CPU, 0.125 to 0.5 GPU per trial, up to 8 at once"
    same = choose_resources({"CPU": 16.0, "GPU": 1.0}, 0.25, None, None)  # as --gpus-per-trial asks
    assert same.gpu_share(OTHER) == 0.25 and str(same) == "1 CPU, 0.25 GPU per trial, 4 at once"


def test_the_largest_configuration_of_a_kind_is_measured_in_a_short_run() -> None:
    probes = calibration.make_probes(TRIALS)
    assert set(probes) == {kind(SMALL), kind(OTHER)}
    probe = probes[kind(SMALL)]
    assert (probe.config.n_way, probe.config.sessions, probe.seeds) == (4, 1, 3)
    assert probe.config.episodes == 2 and probe.config.pretrain_epochs == 2


def test_measuring_tells_peaks_and_outlives_a_run_that_fails() -> None:
    probes = list(calibration.make_probes(TRIALS[2:]).values())
    gone = Trial.of(resolve(RunConfig.of(dataset="npz:gone.npz", classes=(4, 4, 4))), (0,))
    probes += calibration.make_probes([gone]).values()
    peak, failed = calibration.measure(probes, torch.device("cpu"))
    assert 0.1 * GB < peak < 10 * GB and failed == calibration.NOT_MEASURED


def test_what_was_measured_is_kept_for_the_same_code_gpu_and_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[calibration.MemoryProbe] = []
    said: list[str] = []

    def measure(probes: list[calibration.MemoryProbe], lent: object) -> list[float]:
        measured.extend(probes)
        return [30 * GB if probe.config.method == "cec" else 0.5 * GB for probe in probes]

    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "_gpu", lambda: ("H200", 140 * GB))
    monkeypatch.setattr(calibration, "_measured_in_a_worker", measure)
    assert set(calibration.gpu_shares(TRIALS, said.append).values()) == {1 / 8}
    assert not measured and not said  # of so small graphs eight fit in any case
    monkeypatch.setattr(calibration, "OTHER_BYTES", 100 * GB)
    shares = calibration.gpu_shares(TRIALS, said.append)
    assert shares == {kind(SMALL): 1 / 8, kind(OTHER): 1 / 3}
    assert said[-1] == "GPU memory of 2 kinds of trials (2 measured now): 0.5 to 30 GB per trial"
    assert calibration.gpu_shares(TRIALS, said.append) == shares and len(measured) == 2
    assert said[-1] == "GPU memory of 2 kinds of trials (0 measured now): 0.5 to 30 GB per trial"
    kept = json.loads((tmp_path / "gpu_memory.json").read_text())
    assert len(kept) == 2 and all("H200" in key and "3 seeds" in key for key in kept)
    # A larger pack, another GPU, other code and a damaged file are measured again.
    calibration.gpu_shares([Trial.of(TRIALS[2].config, tuple(range(10)))], said.append)
    monkeypatch.setattr(calibration, "_gpu", lambda: ("T4", 16 * GB))
    assert calibration.gpu_shares(TRIALS[2:], said.append) == {kind(OTHER): 1.0}
    monkeypatch.setattr(calibration, "code_version", lambda: "changed")
    calibration.gpu_shares(TRIALS[2:], said.append)
    assert len(measured) == 5
    (tmp_path / "gpu_memory.json").write_text("{")
    calibration.gpu_shares(TRIALS[2:], said.append)
    assert len(measured) == 6


def test_a_bound_that_lets_four_trials_fit_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "_gpu", lambda: ("H200", 140 * GB))
    monkeypatch.setattr(calibration, "_measured_in_a_worker", lambda probes, lent: pytest.fail("measured"))
    monkeypatch.setattr(calibration, "OTHER_BYTES", 20 * GB)
    said: list[str] = []
    assert set(calibration.gpu_shares(TRIALS, said.append).values()) == {1 / 5} and not said


def test_dense_inputs_count_for_all_seeds_and_propagated_for_each() -> None:
    def most(config: RunConfig) -> float:
        return calibration.MemoryProbe(resolve(config), seeds=10, eager=False).most()

    words, dense = most(SMALL), most(replace(SMALL, dataset=f"{SMALL.dataset},dense=1"))
    assert dense - words == pytest.approx(4 * 600 * 80 * (10 + 1))
    assert most(replace(SMALL, inputs="svd")) == pytest.approx(dense)  # 80 words have at most 80 columns


def test_figures_stay_valid_until_the_code_that_uses_memory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "CODE", tmp_path)
    monkeypatch.setattr(calibration, "ALLOCATING", ("nn", "engine/run.py"))

    def version(layer: str, other: str = "") -> str:
        for name, text in {"nn/layer.py": layer, "api/calls.py": other, "engine/run.py": "run = 1"}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        return calibration.code_version.__wrapped__()

    first = version("def step(x):\n    return x + 1\n")
    assert version('def step(x):  # add\n    """Add."""\n    return x+1\n', "other = 2") == first
    assert version("def step(x):\n    return x + 2\n") != first


@pytest.mark.slow
def test_trials_of_different_shares_fill_a_gpu_and_reuse_their_workers(tmp_path: Path) -> None:
    # Ray counts GPUs that are not there; the trials only say who they were and when.
    program = f"""
import sys, time, os, json
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from study import tuning
from study.resources import choose_resources
from study.store import Store
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

shares = [1.0] * 2 + [0.5] * 4
resources = choose_resources({{"CPU": 2, "GPU": 1}}, {{("a", "b"): 1.0, ("c", "d"): 0.5}}, None, None)
specs = [{{"gpu_share": s, "name": str(n), "counted": Counted()}} for n, s in enumerate(shares)]
store = Store(Path({str(tmp_path)!r}))
runner = tuning.StudyRunner(store, resources, None, tuning.TrialOptions())
runner.supplied(nothing, tuning.InOrder(specs), len(specs), Lines())
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
def test_a_gpus_memory_is_measured() -> None:
    [peak] = calibration.measure(list(calibration.make_probes(TRIALS[:2]).values()), torch.device("cuda"))
    assert 1e6 < peak < torch.cuda.get_device_properties(0).total_memory


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
    monkeypatch.setattr("study.tuning.time.monotonic", lambda: now)
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
