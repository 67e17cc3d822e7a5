"""The options of ``launch.py``, checked before anything starts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from hagmeta.common.command import Parser
from hagmeta.common.errors import UserError, choose
from study import space as spaces
from study.loggers import LOGGERS, check_loggers
from study.plan import LAST

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
LEAST_SHARE = 0.0001  # of a core or a GPU: Ray counts in these


def read_options(arguments: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Parse and check; every complaint is a UserError."""
    options = _parser(description).options(arguments)
    if not options.list and not options.space:
        raise UserError(f"--space is missing; one of: {', '.join(spaces.names())}, or a YAML file.")
    if options.dry_run and options.address:
        raise UserError("--dry-run starts nothing, so --address has no meaning with it.")
    if options.open and options.no_report:
        raise UserError("--open opens the report, and --no-report makes none; give one of them.")
    if options.mps and options.address:
        raise UserError(
            "--mps starts NVIDIA's MPS on this machine, not on a cluster's nodes; "
            "leave it out, and start MPS there before Ray (see docs/cluster.md)."
        )
    _check_address(options.address)
    for name in options.log:
        choose("logger", name, LOGGERS)
    check_loggers(options.log)
    for name in ("space", "results"):
        _check_no_nul(f"--{name}", getattr(options, name) or "")
    for text in options.dataset or ():
        _check_no_nul("--dataset", text)
    if not options.results.strip():
        raise UserError("--results is empty; give a folder, such as results.")
    options.seeds_per_trial = _number(options.seeds_per_trial, "--seeds-per-trial", int, 1, auto=True)
    options.gpus_per_trial = _number(options.gpus_per_trial, "--gpus-per-trial", float, 0, auto=True)
    options.cpus_per_trial = _number(options.cpus_per_trial, "--cpus-per-trial", float, 0)
    for name in ("cpus", "gpus"):
        share = getattr(options, f"{name}_per_trial")
        if share and share < LEAST_SHARE:
            raise UserError(f"--{name}-per-trial is {share:g}; the least that Ray knows is {LEAST_SHARE:g}.")
    if options.gpus_per_trial and options.gpus_per_trial > 1 and options.gpus_per_trial % 1:
        raise UserError(f"--gpus-per-trial is {options.gpus_per_trial:g}; above 1 it must be a whole number.")
    if options.cpus_per_trial == 0 and options.gpus_per_trial == 0:
        raise UserError("--cpus-per-trial and --gpus-per-trial are both 0; one of them must be above.")
    options.max_concurrent = _number(options.max_concurrent, "--max-concurrent", int, 1)
    options.retries = _number(options.retries, "--retries", int, 0)
    options.time_budget = _duration(options.time_budget)
    if options.save_embeddings == "last":
        options.save_embeddings = LAST
    else:
        options.save_embeddings = _number(options.save_embeddings, "--save-embeddings", int, 0)
    return options


def _parser(description: str | None) -> Parser:
    parser = Parser(prog="python study/launch.py", description=description, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--space", metavar="NAME|FILE", help="a search space by name (see --list) or a YAML file")
    add("--list", action="store_true", help="list the search spaces, how many runs, and roughly how long")
    add("--dataset", action="append", metavar="NAME", help="instead of the space's; downloaded if need be")
    add("--seeds", metavar="SEEDS", help="10 (the first ten), 0-9 or 1,4,7")
    add("--seeds-per-trial", default="auto", metavar="auto|n", help="seeds that run as one pack")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="fix a setting of every run")
    add("--quick", action="store_true", help="the space's small version, for a first look")
    add("--dry-run", action="store_true", help="print what would run, and start nothing")
    add("--results", default="results", metavar="DIR|s3://...", help="where studies go (default: results)")
    add("--address", metavar="auto|HOST:PORT", help="a running Ray cluster; by default this machine")
    add("--cpus-per-trial", metavar="n", help="default: 1")
    add("--gpus-per-trial", default="auto", metavar="auto|f", help="share of a GPU, 1/n")
    add("--mps", action="store_true", help="trials that share a GPU compute at once (NVIDIA's MPS)")
    add("--eager", action="store_true", help="no CUDA graphs, for debugging: slower, the same results")
    add("--max-concurrent", metavar="n", help="at most so many trials at once")
    add("--retries", default="2", metavar="n", help="tries after a failure (default: 2)")
    add("--time-budget", metavar="2h", help="stop after so long; the same command goes on from there")
    add("--save-embeddings", metavar="SESSION|last", help="keep embeddings after a session, for t-SNE")
    add("--log", action="append", default=[], metavar="|".join(LOGGERS), help="also tell these loggers")
    add("--no-report", action="store_true", help="do not write the report")
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


def _number(text: str | None, name: str, kind: type, least: float, *, auto: bool = False) -> Any:
    if text is None or (auto and text == "auto"):
        return None
    try:
        value = kind(text)
        if not least <= value < 1e6:
            raise ValueError
    except ValueError:
        words = ("auto or " if auto else "") + ("a whole number" if kind is int else "a number")
        raise UserError(f"{name} is {text!r}; it must be {words} of at least {least}.") from None
    return value


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not match or not float(match[1]):
        raise UserError(f"--time-budget is {text!r}; give a duration such as 90s, 30m or 2h.")
    return float(match[1]) * SECONDS[match[2]]
