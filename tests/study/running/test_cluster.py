"""A study on two nodes, one of which goes away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hagmeta import datasets
from hagmeta.datasets.formats import npz
from study.store.store import Store
from tests.study.test_launch import ROOT, SPACE
from tests.waiting import HANG, wait_for


@pytest.mark.slow
def test_a_study_outlives_a_node(tmp_path: Path) -> None:
    # Nodes have neither the user's file, by a path that is relative at that, nor the same home.
    graph = "synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"
    npz.save(tmp_path / "graph.npz", datasets.load(graph, tmp_path))
    (tmp_path / "tiny.yaml").write_text(SPACE.replace(graph, "npz:graph.npz"))
    # The nodes live in a process of their own, which is told when to remove one.
    program = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(second, allow_graceful=False)
print("removed", flush=True)
sys.stdin.readline()
cluster.shutdown()
"""
    # They ask for a token, as those of our cluster files do.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef"}
    environment = {**os.environ, **token, "HAGMETA_HOME": str(tmp_path / "home")}
    nodes = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment, "HAGMETA_HOME": str(tmp_path / "another")},
    )
    assert nodes.stdin is not None and nodes.stdout is not None
    address = nodes.stdout.readline().strip()
    command = [
        sys.executable,
        str(ROOT / "study" / "launch.py"),
        "--space",
        "tiny.yaml",
        "--address",
        address,
    ]
    stranger = subprocess.Popen(
        [*command, "--results", "of_a_stranger"],
        cwd=tmp_path,
        env={**environment, "RAY_AUTH_TOKEN": "another"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    study = subprocess.Popen(
        [*command, "--seeds-per-trial", "1", "--no-report"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    store = Store(tmp_path / "results" / "tiny")
    wait_for(lambda: len(list(store.runs.glob("*/*.json"))) >= 3, study)
    nodes.stdin.write("remove\n")
    nodes.stdin.flush()
    assert nodes.stdout.readline() == "removed\n"
    output, _ = study.communicate(timeout=HANG)
    _, refused = stranger.communicate(timeout=HANG)  # while there still is a cluster to refuse it
    nodes.stdin.write("stop\n")
    nodes.stdin.flush()
    nodes.wait(timeout=HANG)
    assert study.returncode == 0, output
    assert "2 at once" in output and "not all nodes can read" not in output
    assert len(store.scan().done) == 8
    assert all(record["environment"]["commit"] for record in store.records())
    assert list((tmp_path / "home" / "pretrained").glob("*.pt")) and not (tmp_path / "another").exists()
    assert stranger.returncode == 2 and "Traceback" not in refused, refused
    assert "If the cluster uses a token" in refused.splitlines()[-1]


# Without this, all tests of clusters are skipped, and `make test-cluster` succeeds.
def test_cluster_tests_name_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.prepare"],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nowhere", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the cluster tests cannot run: install the packages ")
    assert "rsync" in done.stderr and done.stderr.count("\n") == 1
