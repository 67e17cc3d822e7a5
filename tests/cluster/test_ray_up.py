"""``ray up`` to ``ray down`` with cluster-ssh.yaml, on machines made here; nothing else is simulated."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import ROOT, Machine, Machines, lacking, machines
from tests.waiting import HANG

reason = lacking()
pytestmark = pytest.mark.skipif(reason is not None, reason=str(reason))
NODES = ["head", "one", "two"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Machines, str]]:
    """Three machines, and the path of the user's copy of cluster-ssh.yaml."""
    with machines(tmp_path, NODES) as made:
        mine = made.laptop.folder / "mine.yaml"
        mine.write_text(filled_in((ROOT / "cluster-ssh.yaml").read_text(), made))
        yield made, str(mine)


def filled_in(text: str, made: Machines) -> str:
    """What a user does to the file: only lines marked CHANGE are other than before."""
    head, *workers = [node.address for node in made.nodes]
    values = {
        "head_ip": head,
        "worker_ips": f"[{', '.join(workers)}]",
        "ssh_user": "hagmeta",
        "ssh_private_key": str(made.key),
        "- cd ~/hagmeta && python3 -m venv": f"- ln -sfn {sys.prefix} ~/hagmeta/.venv",
    }
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if "# CHANGE" in line:
            key = next(key for key in values if line.strip().startswith(key))
            value = values.pop(key)
            indent = line[: len(line) - len(line.lstrip())]
            lines[i] = indent + (value if key.startswith("-") else f"{key}: {value}")
    assert not values
    return "\n".join(lines)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline, f"not within {HANG:.0f} s: {what}"
        time.sleep(0.5)


def ray_processes(node: Machine) -> list[str]:
    return [line for line in node.processes() if re.search(r"raylet|gcs_server|ray::|/ray/|bin/ray ", line)]


def test_a_study_on_a_cluster_of_ray_up_outlives_a_machine_that_is_cut_off(
    cluster: tuple[Machines, str],
) -> None:
    made, mine = cluster
    head, _, lost = made.nodes
    began = time.monotonic()

    def step(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}")

    def nodes_up() -> int:
        status = made.run(["ray", "exec", mine, "ray status"])
        return sum(int(count) for count in re.findall(r"(\d+) local\.cluster\.node", status))

    def records() -> list[str]:
        command = ["find", "/home/hagmeta/results", "-path", "*/runs/*.json"]
        return subprocess.run(head.inside(command), capture_output=True, text=True).stdout.split()

    # A `ray stop` there sees nothing of what runs here, and of what runs on the others.
    assert all(len(node.processes()) < 5 for node in made.nodes)
    made.run(["ray", "get-auth-token", "--generate"])
    made.run(["ray", "up", mine, "-y"])
    step("ray up: the head is up")
    wait_until(lambda: nodes_up() == 3, "all three machines are in the cluster")
    step("all three machines are in the cluster")
    # Without the token Ray says nothing.
    refused = made.start(["ray", "exec", mine, "RAY_AUTH_MODE=disabled ray status"])
    assert "authenticat" in refused.communicate(timeout=HANG)[0].lower() and refused.returncode

    command = (
        "cd hagmeta && python study/launch.py --address auto --space smoke --seeds 8 --seeds-per-trial 1"
    )
    study = made.start(
        ["ray", "exec", mine, f"{command} --cpus-per-trial 2 --results ~/results --no-report"],
    )
    wait_until(lambda: len(records()) > 6 or study.poll() is not None, "the first records")
    step(f"{len(records())} of 32 runs are done: {lost.name} is cut off")
    made.cut_off(lost)
    output, _ = study.communicate(timeout=HANG)
    step("the study has ended")
    assert study.returncode == 0, output
    assert "3 at once" in output
    assert "it will run again" in output
    assert len(records()) == 32

    made.run(["ray", "rsync-down", mine, "/home/hagmeta/results/", f"{made.laptop.folder}/results/"])
    (state,) = (made.laptop.folder / "results").glob("smoke/tune/experiment_state-*.json")
    trials = [json.loads(told) for _, told in json.loads(state.read_text())["trial_data"]]
    told = [trial["last_result"] for trial in trials]  # empty if its machine was cut off before
    ran = Counter(result["hostname"] for result in told if "hostname" in result)
    step(f"runs by machine: {dict(ran)}")
    assert set(ran) == set(NODES)

    made.reconnect(lost)
    wait_until(lambda: nodes_up() == 3, "the machine that was cut off is in the cluster again")
    step(f"{lost.name} was reconnected and is in the cluster again")
    made.run(["ray", "down", mine, "-y"])
    step("ray down")
    assert not ray_processes(head)
    # The workers' end when they have missed the head for long enough, the last of them a minute later.
    wait_until(lambda: not any(map(ray_processes, made.nodes)), "no Ray process is left")
    step("no Ray process is left on any machine")
