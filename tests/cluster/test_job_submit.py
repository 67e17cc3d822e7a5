"""``ray job submit`` of a study, to a cluster of ``ray up`` with one machine, through ``ray dashboard``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.machines import lacking, machines
from tests.cluster.test_ray_up import ROOT, filled_in
from tests.waiting import HANG

pytest.importorskip("aiohttp_cors", reason="jobs need ray[default]: pip install -e '.[cluster]'")
reason = lacking()
pytestmark = pytest.mark.skipif(reason is not None, reason=str(reason))
DASHBOARD = "http://localhost:8265"


def test_a_study_as_a_job(tmp_path: Path) -> None:
    with machines(tmp_path, ["head"]) as made:
        mine = made.laptop.folder / "mine.yaml"
        mine.write_text(filled_in((ROOT / "cluster-ssh.yaml").read_text(), made))
        made.run(["ray", "get-auth-token", "--generate"])
        made.run(["ray", "up", str(mine), "-y"])
        tunnel = made.start(["ray", "dashboard", str(mine)])
        try:
            token = {"RAY_AUTH_MODE": "token"}
            study = "cd ~/hagmeta && python study/launch.py --address auto --space smoke --quick"
            command = ["ray", "job", "submit", "--address", DASHBOARD, "--", "bash", "-c"]
            deadline = time.monotonic() + HANG
            while True:  # the tunnel takes a moment
                job = made.start([*command, f"{study} --results ~/results --no-report"], token)
                output, _ = job.communicate(timeout=HANG)
                if job.returncode == 0 or time.monotonic() > deadline or "onnect" not in output:
                    break
            assert job.returncode == 0, output
            assert "4 runs (2 configurations x 2 seeds): 0 done, 4 to go" in output
            assert "succeeded" in output
            refused = made.start(
                ["ray", "job", "list", "--address", DASHBOARD], {"RAY_AUTH_MODE": "disabled"}
            )
            assert refused.wait(timeout=HANG)
        finally:
            tunnel.kill()
        found = made.run(["ray", "exec", str(mine), "find ~/results -path '*/runs/*.json' | wc -l"])
        assert "\n4" in found.replace("\r", "")
