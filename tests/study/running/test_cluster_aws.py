"""cluster.yaml through Ray's own launcher, moto's server in place of AWS: what AWS would be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

moto_server = pytest.importorskip(
    "moto.server", reason="moto is not installed: pip install moto flask flask-cors boto3"
)
boto3 = pytest.importorskip("boto3", reason="boto3 is not installed: it is what Ray talks to AWS with")

from ray.autoscaler._private import commands  # noqa: E402
from ray.autoscaler.tags import (  # noqa: E402
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    TAG_RAY_NODE_KIND,
    TAG_RAY_USER_NODE_TYPE,
)

pytestmark = pytest.mark.slow  # a minute

ROOT = Path(__file__).parents[3]
REGION = "us-west-2"
IMAGE = "ami-0123456789abcdef0"
PROFILE = "hagmeta-ray"  # as docs/guides/cluster.md makes it


class Recorded:
    """In place of ssh and rsync: every command is noted, and succeeds. Docker is there, no container runs."""

    ANSWERS = {  # noqa: RUF012
        "command -v docker": b"/usr/bin/docker",
        ".Config.Env": b'["HOME=/home/ray"]',
        "printenv HOME": b"/home/ray",
    }

    def __init__(self) -> None:
        self.commands: list[str] = []

    def check_call(self, command: list[str], *_: Any, **__: Any) -> int:
        self.commands.append(" ".join(command))
        return 0

    def check_output(self, command: list[str], *_: Any, **__: Any) -> bytes:
        self.commands.append(" ".join(command))
        return next((answer for asked, answer in self.ANSWERS.items() if asked in self.commands[-1]), b"")

    def call(self, command: list[str], *_: Any, **__: Any) -> int:
        return self.check_call(command)


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fresh AWS with the profile of docs/guides/cluster.md, and nothing of this machine's in reach."""
    server = moto_server.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)  # a port that is free
    server.start()
    try:
        values = {
            "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
            "AWS_ACCESS_KEY_ID": "made",
            "AWS_SECRET_ACCESS_KEY": "up",
            "AWS_DEFAULT_REGION": REGION,
            "HOME": str(tmp_path),
            "RAY_TMPDIR": str(tmp_path),
        }
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        iam = boto3.client("iam")
        iam.create_role(RoleName=PROFILE, AssumeRolePolicyDocument="{}")
        iam.create_instance_profile(InstanceProfileName=PROFILE)
        iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=PROFILE)
        yield
    finally:
        server.stop()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The file as a user has filled it in, with the two placeholders replaced."""
    text = (ROOT / "cluster.yaml").read_text()
    assert text.count("ami-00000000000000000") == text.count("YOUR-INSTANCE-PROFILE") == 1
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("ami-00000000000000000", IMAGE).replace("YOUR-INSTANCE-PROFILE", PROFILE))
    return path


def instances(kind: str) -> list[dict[str, Any]]:
    found = boto3.client("ec2").describe_instances(
        Filters=[{"Name": f"tag:{TAG_RAY_NODE_KIND}", "Values": [kind]}]
    )
    return [instance for group in found["Reservations"] for instance in group["Instances"]]


def disks_of(instance: dict[str, Any]) -> list[tuple[int, str]]:
    found = boto3.client("ec2").describe_volumes(
        Filters=[{"Name": "attachment.instance-id", "Values": [instance["InstanceId"]]}]
    )
    return [(volume["Size"], volume["VolumeType"]) for volume in found["Volumes"]]


def test_ray_asks_aws_for_what_cluster_yaml_says(
    aws: None, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    ec2 = boto3.client("ec2")
    runner = Recorded()
    config = commands._bootstrap_config(yaml.safe_load(mine.read_text()), no_config_cache=True)
    # This is `ray up`, but for what would go through SSH.
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(commands, "POLL_INTERVAL", 0.1)  # moto starts machines at once
    commands.get_or_create_head_node(
        config,
        str(mine),
        no_restart=False,
        restart_only=False,
        yes=True,
        override_cluster_name=None,
        _runner=runner,
    )

    (head,) = instances(NODE_KIND_HEAD)
    assert head["InstanceType"] == "m6i.xlarge" and head["ImageId"] == IMAGE
    assert head.get("InstanceLifecycle") != "spot"
    assert disks_of(head) == [(140, "gp3")]
    assert head["IamInstanceProfile"]["Arn"].endswith(f"instance-profile/{PROFILE}")
    # Ray made a key pair, kept its private half here, and closed the group to all but SSH and its own nodes.
    (pair,) = ec2.describe_key_pairs()["KeyPairs"]
    assert head["KeyName"] == pair["KeyName"]
    key = Path(config["auth"]["ssh_private_key"])
    assert key.parent == tmp_path / ".ssh" and key.stat().st_mode & 0o777 == 0o600
    (group,) = ec2.describe_security_groups(GroupIds=[head["SecurityGroups"][0]["GroupId"]])["SecurityGroups"]
    opened = {rule.get("FromPort") for rule in group["IpPermissions"] if rule["IpRanges"]}
    assert opened == {22}
    inner = [rule for rule in group["IpPermissions"] if rule["UserIdGroupPairs"]]
    assert [rule["UserIdGroupPairs"][0]["GroupId"] for rule in inner] == [group["GroupId"]]
    # What went to the head, in this order.
    sent = "\n".join(runner.commands)
    order = ["docker pull rayproject/ray", "docker run", "pip install", "ray stop", "ray start --head"]
    assert [sent.find(word) for word in order] == sorted(sent.find(word) for word in order)
    assert all(word in sent for word in [*order, "RAY_AUTH_MODE=token", ".ray/auth_token"])

    # What the autoscaler does on the head, when a trial asks for a GPU.
    provider = commands._get_node_provider(config["provider"], config["cluster_name"])
    worker = config["available_node_types"]["gpu_worker"]
    assert worker["resources"]["GPU"] == 1 and worker["resources"]["CPU"] == 8  # asked of AWS
    tags = {TAG_RAY_NODE_KIND: NODE_KIND_WORKER, TAG_RAY_USER_NODE_TYPE: "gpu_worker"}
    for _ in range(2):  # asked for several at once, moto starts one
        provider.create_node(worker["node_config"], tags, 1)
    workers = instances(NODE_KIND_WORKER)
    assert len(workers) == 2
    for instance in workers:
        assert instance["InstanceType"] == "g5.2xlarge" and instance["ImageId"] == IMAGE
        assert instance["InstanceLifecycle"] == "spot"
        assert disks_of(instance) == [(140, "gp3")]
        assert instance["IamInstanceProfile"]["Arn"].endswith(f"instance-profile/{PROFILE}")
        assert instance["SecurityGroups"] == head["SecurityGroups"]

    # `ray down`: terminated, not stopped, since a stopped machine's disk keeps costing.
    provider.terminate_nodes([instance["InstanceId"] for instance in [head, *workers]])
    states = {
        each["State"]["Name"] for kind in (NODE_KIND_HEAD, NODE_KIND_WORKER) for each in instances(kind)
    }
    assert states == {"terminated"}
