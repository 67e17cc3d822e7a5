"""Read and check the options of a launch, from a command line or from Python."""

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

from analysis.__main__ import KINDS
from hagmeta.common.command import COMMANDS, Parser, as_typed, parse_seeds, parse_settings
from hagmeta.common.errors import UserError, choose, shown
from study.planning.packing import LAST, MOST_ON_CPU, MOST_ON_GPU, Packing
from study.running.loggers import LOGGERS, check_loggers

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
LEAST_SHARE = 0.0001  # of a core or a GPU: the resolution of Ray


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Options of a launch; ``python study/launch.py --help`` describes them.

    Each value can also be text, as on a command line. Text is converted to the option's type; a UserError
    names the option if that fails.
    """

    methods: tuple[str, ...] = ()  # methods to compare instead of running a space
    name: str | None = None  # of the study's folder; None: the name of the space
    datasets: tuple[str, ...] = ()  # empty: the datasets of the space
    seeds: tuple[int, ...] | None = None  # None: the seeds of the space
    settings: Mapping[str, Any] = field(default_factory=dict)  # for every run
    metrics: tuple[str, ...] = ()  # additional metrics, as references such as my_metric.py:Mine
    quick: bool = False
    dry_run: bool = False
    results: str = "results"
    address: str | None = None  # None: this machine
    members_per_trial: int | None = None  # None: chosen from the number of runs and workers
    seeds_per_trial: int | None = None  # None: configurations may share a trial
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None  # None: by a bound of the memory
    mps: bool = False
    eager: bool = False
    max_concurrent: int | None = None
    retries: int = 2
    time_budget: float | None = None  # seconds
    save_embeddings: int | None = None  # a session number, or `study.planning.packing.LAST`
    log: tuple[str, ...] = ()
    report: bool = True
    with_references: str | None = None  # also compare with the reference results of this kind
    open: bool = False
    command: str = "repeat the same call"  # shown to users: how to continue

    def __post_init__(self) -> None:
        typed = {
            "methods": _texts(self.methods, "--methods"),
            "datasets": _texts(self.datasets, "--dataset"),
            "metrics": _texts(self.metrics, "--metric"),
            "seeds": _seeds(self.seeds),
            "results": str(self.results),
            "members_per_trial": _number(self.members_per_trial, "--members-per-trial", int, 1, auto=True),
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
            raise UserError("--quick needs --space; with --methods, reduce --seeds instead.")
        if self.dry_run and self.address:
            raise UserError("--dry-run does not use a cluster; remove --dry-run or --address.")
        if self.open and not self.report:
            raise UserError("--open needs the report, and --no-report skips it; remove one of them.")
        if self.mps and self.address:
            raise UserError(
                "--mps starts NVIDIA MPS on this machine only, not on the nodes of a cluster; "
                "remove --mps and start MPS on the nodes before Ray (see docs/guides/cluster.md)."
            )
        if self.members_per_trial and self.seeds_per_trial:
            raise UserError(
                f"--members-per-trial is {self.members_per_trial} and --seeds-per-trial is "
                f"{self.seeds_per_trial}; both set the size of a trial, so remove one of them."
            )
        _check_address(self.address)
        for name in self.log:
            choose("logger", name, LOGGERS)
        check_loggers(self.log)
        _check_no_nul("--results", self.results)
        if not self.results.strip():
            raise UserError("--results is empty; expected a folder, such as results.")
        for name, share in (("cpus", self.cpus_per_trial), ("gpus", self.gpus_per_trial)):
            if share and share < LEAST_SHARE:
                raise UserError(
                    f"--{name}-per-trial is {share:g}; the smallest share in Ray is {LEAST_SHARE:g}."
                )
        if self.gpus_per_trial and self.gpus_per_trial > 1 and self.gpus_per_trial % 1:
            raise UserError(
                f"--gpus-per-trial is {self.gpus_per_trial:g}; values above 1 must be whole numbers."
            )
        if self.cpus_per_trial == 0 and self.gpus_per_trial == 0:
            raise UserError("--cpus-per-trial and --gpus-per-trial are both 0; set one of them above 0.")

    def packing(self, lanes: int = 1, *, on_gpu: bool = False) -> Packing:
        """Return how runs are grouped into trials.

        Args:
            lanes: How many trials to keep busy before packs grow.
            on_gpu: Whether trials run on GPUs.
        """
        most = MOST_ON_GPU if on_gpu else MOST_ON_CPU
        return Packing(self.seeds_per_trial, self.members_per_trial, most, lanes)


class CommandLine(NamedTuple):
    """A parsed command line."""

    space: str | None  # None with --methods, --list or --status
    lists: bool  # whether --list was given
    options: LaunchOptions
    status: str | None = None  # the folder of a study to describe


def read_options(arguments: Sequence[str] | None, description: str | None) -> CommandLine:
    """Parse and check a command line.

    Args:
        arguments: Words of the command line; None for those of this process.
        description: What the program does, a blank line, and examples, for ``--help``.

    Raises:
        UserError: An option is unknown or has a bad value.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if any(word.partition("=")[0] == "--samples" for word in words):
        from study.space.file import NO_OPTION_FOR_SAMPLES  # imports torch: only where it is needed

        raise UserError(NO_OPTION_FOR_SAMPLES)
    given = vars(_parser(description).options(words))
    space, lists, status = (given.pop(name) for name in ("space", "list", "status"))
    methods = given.pop("methods")
    if not lists and status is None and space is None and methods is None:
        from study.space import spaces as spaces

        known = ", ".join(spaces.names())
        raise UserError(f"nothing to run: give --methods, or --space with a YAML file or one of {known}.")
    if space is not None and methods is not None:
        raise UserError("--space and --methods cannot be combined; remove one of them.")
    _check_no_nul("--space", space or "")
    typed = shlex.join([*as_typed("hagmeta-study").split(), *words])
    settings = parse_settings(given.pop("settings"))
    options = LaunchOptions(**given, methods=_methods(methods), settings=settings, command=typed)
    return CommandLine(space, lists, options, status)


def _methods(text: str | None) -> tuple[str, ...]:
    """Return the method names in a comma-separated list."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(f"--methods is {shown(text)}; expected names separated by commas.")
    return tuple(dict.fromkeys(names))


def _parser(description: str | None) -> Parser:
    """Build the parser of the command line.

    Args:
        description: What the program does, then a blank line and the examples for the end of the help.
    """
    prog = as_typed("hagmeta-study")
    summary, _, examples = (description or "").replace(COMMANDS["hagmeta-study"], prog).partition("\n\n")
    parser = Parser(
        prog=prog,
        usage="%(prog)s --space NAME|FILE [options]\n"
        "       %(prog)s --methods A,B,... --dataset NAME [options]\n"
        "       %(prog)s --list\n"
        "       %(prog)s --status FOLDER",
        description=summary,
        epilog=examples,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_what_to_run(parser)
    _add_results(parser)
    _add_resources(parser)
    _add_running(parser)
    return parser


def _add_what_to_run(parser: Parser) -> None:
    add = parser.add_argument_group("what to run").add_argument
    add("--space", metavar="NAME|FILE", help="run a search space: a name from --list, or a YAML file")
    add("--methods", metavar="A,B,...", help="compare these methods on each --dataset")
    add("--list", action="store_true", help="list the search spaces, their sizes and rough times")
    add("--status", metavar="FOLDER", help="show what the launch in the folder of a study is doing")
    add("--dry-run", action="store_true", help="print the plan and start nothing")
    add("--quick", action="store_true", help="run the small version of the space, for a first look")
    add(
        "--dataset",
        dest="datasets",
        action="append",
        default=[],
        metavar="NAME",
        help="run on this dataset (a name or FILE.npz) instead of the space's datasets; can be repeated",
    )
    add(
        "--seeds",
        metavar="SEEDS",
        help="a count (10), a range (0-9) or a list (1,4,7); default: the space's, or 10 with --methods",
    )
    add(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting in every run; can be repeated",
    )
    add(
        "--metric",
        dest="metrics",
        action="append",
        default=[],
        metavar="FILE.py:NAME",
        help="compute your own metric as well, also for finished runs; can be repeated",
    )


def _add_results(parser: Parser) -> None:
    add = parser.add_argument_group("results").add_argument
    add(
        "--results",
        default="results",
        metavar="DIR|s3://...",
        help="folder or bucket that holds all studies (default: results)",
    )
    add(
        "--name",
        metavar="NAME",
        help="name of the study's folder (default: the space's name; with --methods: comparison)",
    )
    add("--no-report", dest="report", action="store_false", help="do not write the report")
    add(
        "--with-references",
        nargs="?",
        const=KINDS[0],
        choices=KINDS,
        help="also compare with the reference results, as hagmeta-report compare does: with the defaults of "
        "methods (default), or with tuned methods",
    )
    add("--open", action="store_true", help="open the report in a browser at the end")
    add(
        "--save-embeddings",
        metavar="SESSION|last",
        help="save embeddings after this session (for t-SNE figures)",
    )
    add(
        "--log",
        action="append",
        default=[],
        metavar="|".join(LOGGERS),
        help="also log to this tracker; can be repeated",
    )


def _add_resources(parser: Parser) -> None:
    add = parser.add_argument_group("resources").add_argument
    add("--address", metavar="auto|HOST:PORT", help="use a running Ray cluster (default: this machine)")
    add("--max-concurrent", metavar="N", help="run at most N trials at once")
    add("--cpus-per-trial", metavar="N", help="CPU cores per trial (default: 1)")
    add(
        "--gpus-per-trial",
        default="auto",
        metavar="auto|F",
        help="GPUs per trial: 0.25 lets four trials share one GPU; auto chooses a share that is large enough",
    )
    add(
        "--members-per-trial",
        default="auto",
        metavar="auto|N",
        help=f"train up to N runs together in one pack, also of several configurations; auto: up to "
        f"{MOST_ON_CPU}, or {MOST_ON_GPU} on a GPU, with no worker idle",
    )
    add(
        "--seeds-per-trial",
        default="auto",
        metavar="auto|N",
        help="train N seeds of one configuration together, and never several configurations",
    )
    add("--mps", action="store_true", help="let trials on a shared GPU compute at the same time (NVIDIA MPS)")


def _add_running(parser: Parser) -> None:
    add = parser.add_argument_group("time and failures").add_argument
    add("--time-budget", metavar="2h", help="stop after this time; repeat the command to continue")
    add("--retries", default="2", metavar="N", help="retries of a failed trial (default: 2)")
    add("--eager", action="store_true", help="disable CUDA graphs for debugging: slower, same results")


def _check_no_nul(option: str, text: str) -> None:
    if "\0" in text:
        raise UserError(f"{option} is {text!r}; paths and names cannot contain a NUL byte.")


def _check_address(address: str | None) -> None:
    """Refuse an address that is not ``auto`` or ``HOST:PORT``; Ray Client cannot run a study."""
    if address is None or address == "auto":
        return
    if address.startswith("ray://"):
        raise UserError(
            f"--address {address}: Ray Client is not supported, because the driver writes the records. "
            "Run this command on a cluster node with --address auto: by ray exec, ray job submit or ssh."
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(
            f"--address is {address!r}; expected auto, or the head's HOST:PORT (usual port: 6379)."
        )


def _texts(given: Iterable[str] | str, option: str) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    for text in texts:
        _check_no_nul(option, text)
    return texts


def _seeds(given: Any) -> tuple[int, ...] | None:
    """Return seeds from a count, a range or a list; None means the seeds of the space."""
    if given is None:
        return None
    if isinstance(given, str | int):
        return tuple(parse_seeds(str(given)))
    try:
        seeds = [operator.index(seed) for seed in given]
    except TypeError:
        raise UserError(f"seeds are {shown(given)}; expected a count or a list of whole numbers.") from None
    from study.space.file import check_seeds  # imports torch, which takes seconds: only where it is needed

    return check_seeds(seeds)


def _number(given: Any, name: str, kind: type, least: float, *, auto: bool = False) -> Any:
    """Return the value of option `name` as `kind`; None if it is not set, or ``auto`` where allowed."""
    if given is None or (auto and given == "auto"):
        return None
    try:
        value = kind(given)
        if not least <= value < 1e6 or isinstance(given, bool) or (kind is int and value != float(given)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        words = ("auto or " if auto else "") + ("a whole number" if kind is int else "a number")
        raise UserError(f"{name} is {shown(given)}; expected {words} of at least {least}.") from None
    return value


def _session(given: Any) -> int | None:
    if given in ("last", LAST):
        return LAST
    session: int | None = _number(given, "--save-embeddings", int, 0)
    return session


def _duration(given: Any) -> float | None:
    """Return seconds, from a number of seconds or from text such as ``2h``."""
    if given is None:
        return None
    if isinstance(given, int | float) and 0 < given < math.inf:
        return float(given)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(given))
    if not match or not float(match[1]):
        raise UserError(f"--time-budget is {shown(given)}; expected a duration such as 90s, 30m or 2h.")
    return float(match[1]) * SECONDS[match[2]]
