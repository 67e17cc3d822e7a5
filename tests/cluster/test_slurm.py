"""slurm/launch.sbatch on a Slurm of one node: submitted, run to its end, and submitted again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import PACKAGES, ROOT, Machine, lacking, machines
from tests.waiting import HANG

reason = lacking(PACKAGES)
pytestmark = pytest.mark.skipif(reason is not None, reason=str(reason))

CONFIG = """
ClusterName=made
SlurmctldHost=slurm
NodeName=slurm CPUs=2 RealMemory=2000
PartitionName=all Nodes=ALL Default=YES
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
"""
DAEMONS = """
set -e
mkdir -p /run/munge "$0/state" "$0/spool"
chown munge /run/munge
runuser -u munge -- munged --force
slurmctld
slurmd
"""


class Slurm:
    """A machine with Slurm's daemons, and its user's commands."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._config = f"{machine.folder}/slurm.conf"

    def user(self, command: str) -> str:
        """What a command of the user prints, in the project's folder."""
        login = ["runuser", "-u", "hagmeta", "--", "env", "-i", "HOME=/home/hagmeta", "USER=hagmeta"]
        login += [f"SLURM_CONF={self._config}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
        done = subprocess.run(
            self._machine.inside([*login, "bash", "-c", f"cd {ROOT} && {command}"]),
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def run_job(self, arguments: str) -> tuple[str, str]:
        """Submit and wait: the job's last state, and what it printed."""
        job = self.user(f"sbatch --parsable --output=/home/hagmeta/%j.out {arguments}")
        deadline = time.monotonic() + HANG
        while (state := self.user(f"squeue --noheader --states=all --jobs={job} --format=%T")) in (
            "PENDING",
            "CONFIGURING",
            "RUNNING",
            "COMPLETING",
        ):
            assert time.monotonic() < deadline, f"{state}: {self.user(f'cat ~/{job}.out; sinfo')}"
            time.sleep(1)
        return state, self.user(f"cat ~/{job}.out")


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    with machines(tmp_path, ["slurm"], shown=[str(ROOT)]) as made:
        (node,) = made.nodes
        (node.folder / "slurm.conf").write_text(CONFIG.format(folder=node.folder))
        tmp_path.chmod(0o755)
        environment = ["env", f"SLURM_CONF={node.folder}/slurm.conf"]
        deadline = time.monotonic() + HANG
        while not any("sshd" in line for line in node.processes()):  # the machine is ready
            assert time.monotonic() < deadline, (node.folder / "log").read_text()
            time.sleep(0.1)
        subprocess.run(node.inside([*environment, "bash", "-c", DAEMONS, str(node.folder)]), check=True)
        yield Slurm(node)


def test_a_study_as_a_slurm_job_goes_on_where_it_was(slurm: Slurm) -> None:
    slurm.user(".venv/bin/ray get-auth-token --generate")
    # What stands on the file's CHANGE lines, given on the command line, as Slurm allows.
    fitting = "--nodes=1 --gpus-per-node=0 --cpus-per-task=2 --time=15"
    study = f"{fitting} slurm/launch.sbatch --space smoke --quick --no-report --results /home/hagmeta/results"
    state, output = slurm.run_job(study)
    assert state == "COMPLETED", output
    assert "4 runs (2 configurations x 2 seeds): 0 done, 4 to go" in output
    assert slurm.user("find ~/results -path '*/runs/*.json' | wc -l") == "4"
    state, output = slurm.run_job(f"{study} --seeds 3")
    assert state == "COMPLETED", output
    assert "6 runs (2 configurations x 3 seeds): 4 done, 2 to go" in output
    assert slurm.user("find ~/results -path '*/runs/*.json' | wc -l") == "6"
