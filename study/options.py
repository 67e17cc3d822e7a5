"""How to launch a study: from a command line or from Python, checked before anything starts."""

from __future__ import annotations

import argparse
import math
import operator
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hagmeta.common.command import COMMANDS, Parser, as_typed, parse_seeds, parse_settings
from hagmeta.common.errors import UserError, choose, shown
from study import space as spaces
from study.loggers import LOGGERS, check_loggers
from study.plan import LAST

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
LEAST_SHARE = 0.0001  # of a core or a GPU: Ray counts in these


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How to launch a study.

    Every value may also be text, as on a command line: it becomes its type, or a UserError names the option.
    ``python study/launch.py --help`` describes them.
    """

    methods: tuple[str, ...] = ()  # to compare, in place of a space
    name: str | None = None  # of the study's folder; None: the space's
    datasets: tuple[str, ...] = ()  # instead of the space's
    seeds: tuple[int, ...] | None = None  # None: the space's
    settings: Mapping[str, Any] = field(default_factory=dict)  # of every run
    metrics: tuple[str, ...] = ()  # additional ones, as references such as my_metric.py:Mine
    quick: bool = False
    dry_run: bool = False
    results: str = "results"
    address: str | None = None  # None: this machine
    seeds_per_trial: int | None = None  # None: chosen by the number of runs and machines
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None  # None: measured
    mps: bool = False
    eager: bool = False
    max_concurrent: int | None = None
    retries: int = 2
    time_budget: float | None = None  # seconds
    save_embeddings: int | None = None  # a session; `study.plan.LAST` is the last one
    log: tuple[str, ...] = ()
    report: bool = True
    open: bool = False
    command: str = "the same call again"  # what a user repeats to go on

    def __post_init__(self) -> None:
        typed = {
            "methods": _texts(self.methods, "--methods"),
            "datasets": _texts(self.datasets, "--dataset"),
            "metrics": _texts(self.metrics, "--metric"),
            "seeds": _seeds(self.seeds),
            "results": str(self.results),
            "seeds_per_trial": _number(self.seeds_per_trial, "--seeds-per-trial", int, 1, auto=True),
            "cpus_per_trial": _number(self.cpus_per_trial, "--cpus-per-trial", float, 0),
            "gpus_per_trial": _number(self.gpus_per_trial, "--gpus-per-trial", float, 0, auto=True),
            "max_concurrent": _number(self.max_concurrent, "--max-concurrent", int, 1),
            "retries": _number(self.retries, "--retries", int, 0),
            "time_budget": _duration(self.time_budget),
            "save_embeddings": _session(self.save_embeddings),
            "log": _texts(self.log, "--log"),
        }
        for name, value in typed.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if self.methods and self.quick:
            raise UserError(
                "--quick is the small version of a space; with --methods, give fewer --seeds instead."
            )
        if self.dry_run and self.address:
            raise UserError("--dry-run starts nothing, so --address has no meaning with it.")
        if self.open and not self.report:
            raise UserError("--open opens the report, and --no-report makes none; give one of them.")
        if self.mps and self.address:
            raise UserError(
                "--mps starts NVIDIA's MPS on this machine, not on a cluster's nodes; "
                "leave it out, and start MPS there before Ray (see docs/cluster.md)."
            )
        _check_address(self.address)
        for name in self.log:
            choose("logger", name, LOGGERS)
        check_loggers(self.log)
        _check_no_nul("--results", self.results)
        if not self.results.strip():
            raise UserError("--results is empty; give a folder, such as results.")
        for name, share in (("cpus", self.cpus_per_trial), ("gpus", self.gpus_per_trial)):
            if share and share < LEAST_SHARE:
                raise UserError(
                    f"--{name}-per-trial is {share:g}; the least that Ray knows is {LEAST_SHARE:g}."
                )
        if self.gpus_per_trial and self.gpus_per_trial > 1 and self.gpus_per_trial % 1:
            raise UserError(
                f"--gpus-per-trial is {self.gpus_per_trial:g}; above 1 it must be a whole number."
            )
        if self.cpus_per_trial == 0 and self.gpus_per_trial == 0:
            raise UserError("--cpus-per-trial and --gpus-per-trial are both 0; one of them must be above.")


class CommandLine(NamedTuple):
    """What was typed: a space to launch and how, or that the spaces are to be listed."""

    space: str | None
    lists: bool
    options: LaunchOptions


def read_options(arguments: Sequence[str] | None, description: str | None) -> CommandLine:
    """Parse and check a command line; every complaint is a UserError."""
    given = vars(_parser(description).options(arguments))
    space, lists = given.pop("space"), given.pop("list")
    methods = given.pop("methods")
    if not lists and space is None and methods is None:
        known = ", ".join(spaces.names())
        raise UserError(f"--space is missing; one of: {known}, or a YAML file. Or give --methods.")
    if space is not None and methods is not None:
        raise UserError("--space and --methods both say what to run; give one of them.")
    _check_no_nul("--space", space or "")
    words = sys.argv[1:] if arguments is None else arguments
    typed = shlex.join([*as_typed("hagmeta-study").split(), *words])
    settings = parse_settings(given.pop("settings"))
    options = LaunchOptions(**given, methods=_methods(methods), settings=settings, command=typed)
    return CommandLine(space, lists, options)


def _methods(text: str | None) -> tuple[str, ...]:
    """Return the methods of a list with commas."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(f"--methods is {shown(text)}; give names with commas between them.")
    return tuple(dict.fromkeys(names))


def _parser(description: str | None) -> Parser:
    prog = as_typed("hagmeta-study")
    description = (description or "").replace(COMMANDS["hagmeta-study"], prog)
    parser = Parser(prog=prog, description=description, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--space", metavar="NAME|FILE", help="a search space by name (see --list) or a YAML file")
    add("--methods", metavar="A,B,...", help="compare these on each --dataset, ten seeds, without a space")
    add("--list", action="store_true", help="list the search spaces, how many runs, and roughly how long")
    add(
        "--dataset",
        dest="datasets",
        action="append",
        default=[],
        metavar="NAME",
        help="run on this graph, in place of the space's; repeat it for more",
    )
    add("--seeds", metavar="SEEDS", help="10 (the first ten), 0-9 or 1,4,7")
    add("--seeds-per-trial", default="auto", metavar="auto|n", help="seeds that run as one pack")
    add(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="fix a setting of every run",
    )
    add(
        "--metric",
        dest="metrics",
        action="append",
        default=[],
        metavar="FILE.py:NAME",
        help="also compute this metric of yours, for finished runs as well; repeat it for more",
    )
    add("--quick", action="store_true", help="the space's small version, for a first look")
    add("--dry-run", action="store_true", help="print what would run, and start nothing")
    add("--results", default="results", metavar="DIR|s3://...", help="where studies go (default: results)")
    add("--name", metavar="NAME", help="the study's folder there (default: the space's name, or comparison)")
    add("--address", metavar="auto|HOST:PORT", help="a running Ray cluster; by default this machine")
    add("--cpus-per-trial", metavar="n", help="default: 1")
    add("--gpus-per-trial", default="auto", metavar="auto|f", help="share of a GPU, 1/n")
    add("--mps", action="store_true", help="trials that share a GPU compute at once (NVIDIA's MPS)")
    add("--eager", action="store_true", help="no CUDA graphs, for debugging: slower, the same results")
    add("--max-concurrent", metavar="n", help="run at most n trials at once")
    add("--retries", default="2", metavar="n", help="tries after a failure (default: 2)")
    add("--time-budget", metavar="2h", help="stop after this time; the same command goes on from there")
    add("--save-embeddings", metavar="SESSION|last", help="keep embeddings after a session, for t-SNE")
    add("--log", action="append", default=[], metavar="|".join(LOGGERS), help="also report to these loggers")
    add("--no-report", dest="report", action="store_false", help="do not write the report")
    add("--open", action="store_true", help="open the report in a browser at the end")
    return parser


def _check_no_nul(option: str, text: str) -> None:
    if "\0" in text:
        raise UserError(f"{option} is {text!r}; no path or name can have a NUL byte.")


def _check_address(address: str | None) -> None:
    """Where a running cluster is; the driver must be one of its machines."""
    if address is None or address == "auto":
        return
    if address.startswith("ray://"):
        raise UserError(
            f"--address {address}: Ray Client cannot run a study, whose driver writes the records. Run this "
            "command on a machine of the cluster with --address auto: by ray exec, ray job submit or ssh."
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"--address is {address!r}; give auto, or HOST:PORT of the head (its port is 6379).")


def _texts(given: Iterable[str] | str, option: str) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    for text in texts:
        _check_no_nul(option, text)
    return texts


def _seeds(given: Any) -> tuple[int, ...] | None:
    """Seeds from a count, a range or a list; None leaves them to the space."""
    if given is None:
        return None
    if isinstance(given, str | int):
        return tuple(parse_seeds(str(given)))
    try:
        seeds = [operator.index(seed) for seed in given]
    except TypeError:
        raise UserError(f"seeds are {shown(given)}; give a count or a list of whole numbers.") from None
    return spaces.check_seeds(seeds)


def _number(given: Any, name: str, kind: type, least: float, *, auto: bool = False) -> Any:
    if given is None or (auto and given == "auto"):
        return None
    try:
        value = kind(given)
        if not least <= value < 1e6 or isinstance(given, bool) or (kind is int and value != float(given)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        words = ("auto or " if auto else "") + ("a whole number" if kind is int else "a number")
        raise UserError(f"{name} is {shown(given)}; it must be {words} of at least {least}.") from None
    return value


def _session(given: Any) -> int | None:
    if given in ("last", LAST):
        return LAST
    session: int | None = _number(given, "--save-embeddings", int, 0)
    return session


def _duration(given: Any) -> float | None:
    """Seconds, from a number of them or from text such as 2h."""
    if given is None:
        return None
    if isinstance(given, int | float) and 0 < given < math.inf:
        return float(given)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(given))
    if not match or not float(match[1]):
        raise UserError(f"--time-budget is {shown(given)}; give a duration such as 90s, 30m or 2h.")
    return float(match[1]) * SECONDS[match[2]]
