"""Machines made of namespaces on this one: a laptop and nodes with an sshd, on a network of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.waiting import HANG

ROOT = Path(__file__).resolve().parents[2]
MACHINE = Path(__file__).with_name("machine.sh")
SSHD = "/usr/sbin/sshd"
LAPTOP = "10.77.0.1"
# Programs, and the Debian packages that have them.
PROGRAMS = {
    SSHD: "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "rsync": "rsync",
    "ip": "iproute2",
    "ps": "procps",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
SLURM = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
PACKAGES = PROGRAMS | SLURM
# What Python needs to be seen: the environment, what it links to, and what made it.
PYTHON = sorted(
    {sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix, os.path.realpath(sys.base_prefix)}
)
SSHD_CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
UsePAM no
UseDNS no
PidFile none
"""


def missing(programs: Iterable[str]) -> list[str]:
    """Return those of some programs that are not installed."""
    return [program for program in programs if not shutil.which(program)]


def lacking(programs: Iterable[str] = PROGRAMS) -> str | None:
    """Return why machines with these programs cannot be made here, or None."""
    if not_there := missing(programs):
        return f"machines need {', '.join(not_there)}"
    if os.geteuid():
        return "machines need root, to make namespaces"
    tried = subprocess.run(
        ["unshare", *KINDS, "--fork", "sh", "-c", "mount -t proc proc /proc && ip link add eth0 type bridge"],
        capture_output=True,
        text=True,
    )
    return f"namespaces cannot be made here: {tried.stderr.strip()}" if tried.returncode else None


KINDS = ["--pid", "--mount", "--net", "--ipc", "--uts"]


class Machine:
    """One of them: its processes see their own PIDs, files of /tmp and /home, network and host name."""

    def __init__(self, folder: Path, address: str, command: Sequence[str], shown: Sequence[str] = ()) -> None:
        self.name, self.address, self.folder = folder.name, address, folder
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *KINDS, "--fork", "--kill-child"]
                + ["bash", str(MACHINE), str(folder), address, *PYTHON, *shown, "--", *command],
                stdout=log,
                stderr=log,
            )
        self.first = self._first()

    def _first(self) -> int:
        """The first process inside, by its number outside: when it is there, so are the namespaces."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while not (found := children.read_text().split()):
            assert self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.01)
        return int(found[0])

    def inside(self, command: Sequence[str]) -> list[str]:
        """A command as it is run inside."""
        return ["nsenter", "--target", str(self.first), "--all", *command]

    def processes(self) -> list[str]:
        """The command lines of all that runs there."""
        listed = subprocess.run(
            self.inside(["ps", "-eo", "args"]), capture_output=True, text=True, check=True
        )
        return listed.stdout.splitlines()[1:]

    def network(self, command: str) -> None:
        """Change the machine's network, from outside."""
        subprocess.run(["nsenter", "--target", str(self.first), "--net", *command.split()], check=True)

    def stop(self) -> None:
        """End it and all that runs there."""
        self._process.kill()
        self._process.wait()


class Machines:
    """A laptop and nodes that it reaches by SSH as the user ``hagmeta``."""

    def __init__(self, laptop: Machine, nodes: list[Machine]) -> None:
        self.laptop, self.nodes = laptop, nodes
        self.key = laptop.folder / "key"

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A command typed on the laptop, in the project's folder."""
        home = {"HOME": str(self.laptop.folder), "PATH": f"{sys.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        # nsenter goes to the laptop's root folder: the project's is entered after it.
        return subprocess.Popen(
            self.laptop.inside(["sh", "-c", 'cd "$0" && exec "$@"', str(ROOT), *command]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"LANG": "C.UTF-8", "TERM": "dumb", **home, **(environment or {})},
        )

    def run(self, command: Sequence[str], timeout: float = HANG) -> str:
        """The same, to its end; what it printed."""
        process = self.start(command)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise AssertionError(f"{' '.join(command)} took over {timeout} s:\n{output}") from None
        assert process.returncode == 0, f"{' '.join(command)}:\n{output}"
        return output

    def cut_off(self, node: Machine) -> None:
        """Its cable is pulled: packets are lost, nobody is told."""
        self.laptop.network(f"ip link set {node.name} down")

    def reconnect(self, node: Machine) -> None:
        self.laptop.network(f"ip link set {node.name} up")


@contextmanager
def machines(folder: Path, names: Sequence[str], shown: Sequence[str] = ()) -> Iterator[Machines]:
    """Nodes by their names, until the end of the block; they see Python, and folders that are ``shown``."""
    with ExitStack() as stack:
        laptop = _machine(folder / "laptop", LAPTOP, ["sleep", "infinity"], stack, [str(ROOT)])
        laptop.network("ip link add eth0 type bridge")
        key = laptop.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        nodes = []
        for i, name in enumerate(names):
            place = folder / name
            place.mkdir(parents=True)
            shutil.copy(f"{key}.pub", place / "authorized_keys")
            subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", str(place / "host_key")], check=True)
            (place / "sshd_config").write_text(SSHD_CONFIG.format(folder=place))
            sshd = [SSHD, "-D", "-e", "-f", str(place / "sshd_config")]
            node = _machine(place, f"10.77.0.{i + 2}", sshd, stack, shown)
            laptop.network(f"ip link add {name} type veth peer name eth0 netns {node.first}")
            laptop.network(f"ip link set {name} master eth0 up")
            nodes.append(node)
        yield Machines(laptop, nodes)


def _machine(
    folder: Path, address: str, command: Sequence[str], stack: ExitStack, shown: Sequence[str] = ()
) -> Machine:
    folder.mkdir(parents=True, exist_ok=True)
    machine = Machine(folder, address, command, shown)
    stack.callback(machine.stop)
    return machine
