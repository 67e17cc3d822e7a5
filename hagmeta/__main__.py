"""`python -m hagmeta`: run one configuration for some seeds, or look at the datasets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from hagmeta import datasets
from hagmeta.common.command import Parser, as_typed, parse_seeds, parse_settings, show_error
from hagmeta.common.errors import UserError, choose
from hagmeta.common.files import check_writable, writing, written_whole
from hagmeta.common.home import DEFAULT_HOME, home, make_home
from hagmeta.common.identity import is_identity, without_hash
from hagmeta.common.records import Record
from hagmeta.common.settings import BY_METHOD, written
from hagmeta.common.version import __version__
from hagmeta.config import REGISTRIES, SETTINGS, RunConfig, all_settings, remarks, resolve
from hagmeta.datasets.command import datasets_command
from hagmeta.display import ProgressDisplay, sessions_table
from hagmeta.methods import METHODS
from hagmeta.nn.encoders import ENCODERS
from hagmeta.packs.device import choose_device
from hagmeta.pipeline import run
from hagmeta.protocol import PROTOCOLS

COMMANDS = ("run", "datasets")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        if list(arguments[:1]) == ["datasets"]:
            datasets_command(arguments[1:])
        else:
            _run(_options(arguments), console)
    except UserError as error:
        show_error(error)
        return 2
    except KeyboardInterrupt:
        console.print("stopped", style="bold red")
        return 130
    return 0


def _run(options: argparse.Namespace, console: Console) -> None:
    seeds = parse_seeds(options.seeds)
    given = _given(options)
    config = RunConfig.from_mapping(given)
    device = choose_device(options.device)
    if options.json:
        check_writable("--json", options.json)
    dataset = datasets.load(config.dataset, make_home() / "data")
    idle = [config.why_not(key) for key in given]
    config = resolve(config)
    for note in [*filter(None, idle), *remarks(config)]:
        console.print(f"note: {note}", style="yellow")
    with ProgressDisplay(console) as progress:
        records = run(
            config,
            seeds,
            dataset=dataset,
            device=device,
            cache=home() / "pretrained",
            progress=progress,
            eager=options.eager,
            plain=options.plain,
        )
    if options.json:
        write_json(options.json, records)
    Console().print(sessions_table(records))


def write_json(path: Path, records: list[Record]) -> None:
    """Whole or not at all."""
    with writing("--json", path), written_whole(path) as partial:
        partial.write_text(json.dumps(records, indent=1) + "\n")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Every setting that the command line names."""
    values: dict[str, Any] = {
        key: value for key, value in vars(options).items() if key in SETTINGS and value is not None
    }
    changes = parse_settings(options.set)
    for key in changes.keys() & values.keys():
        raise UserError(f"{key} is given twice: by its own option and by --set {key}={changes[key]}.")
    return values | changes


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    options = _parser(_plugins_in(arguments)).options(arguments)
    if choose("command", options.command, COMMANDS) == "datasets":
        raise UserError(f"the word datasets comes first: {as_typed('hagmeta')} datasets --help.")
    return options


def _plugins_in(arguments: Sequence[str]) -> dict[str, str]:
    """The plug-ins that a command line names, so that --help lists their settings."""
    first = Parser(add_help=False, allow_abbrev=False)
    for name in REGISTRIES:
        first.add_argument(f"--{name}")
    first.add_argument("--set", action="append", default=[])
    options = vars(first.parse_known_args(arguments)[0])
    given = {name: options[name] for name in REGISTRIES if options[name]}
    given |= {key: value for key, value in parse_settings(options["set"]).items() if key in REGISTRIES}
    return {name: REGISTRIES[name].name_of(value) for name, value in given.items()}


def _parser(plugins: Mapping[str, str]) -> Parser:
    listed = all_settings() if any(map(is_identity, plugins.values())) else SETTINGS
    settings = "\n".join(
        f"  {name:18} {_help(name)} [{_default(name)}]" for name in listed if _can_be_set(name)
    )
    protocols = ", ".join(name + " (it leaks)" * protocol.leaks for name, protocol in PROTOCOLS.items())
    prog = as_typed("hagmeta")
    parser = Parser(
        prog=prog,
        description="Run graph few-shot class-incremental learning: pre-train, meta-train, evaluate.",
        epilog=f"settings for --set KEY=VALUE:\n{settings}\n\n"
        f"`{prog} datasets` lists the datasets, describes them, and makes one from files "
        "of your own (see datasets --help). "
        f"Downloads and pre-trained encoders are kept in $HAGMETA_HOME ({DEFAULT_HOME}).",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"hagmeta {__version__}")
    parser.add_argument("command", nargs="?", default="run", help="run (the default) or datasets")
    parser.add_argument("--dataset", metavar="NAME", help="default: debian, which is embedded")
    parser.add_argument("--seeds", default="10", help="10 (the first ten), 0-9 or 1,4,7; default: 10")
    own = "or one of your own: package.module:Class or file.py:Class"
    parser.add_argument("--method", metavar="NAME", help=f"one of: {', '.join(METHODS.names())}; {own}")
    for part in ("gpil", "nla", "tla"):
        parser.add_argument(
            f"--{part}", action=argparse.BooleanOptionalAction, help=f"with or without {part.upper()}"
        )
    parser.add_argument("--n-way", metavar="N", help="new classes a session")
    parser.add_argument("--k-shot", metavar="K", help="labelled nodes a new class")
    parser.add_argument("--classes", nargs=3, metavar=("B", "T", "E"), help="base, novel-train, novel-test")
    parser.add_argument("--drop-small", action="store_true", default=None, help="leave out too small classes")
    parser.add_argument("--protocol", metavar="NAME", help=f"one of: {protocols}")
    parser.add_argument("--encoder", metavar="NAME", help=f"one of: {', '.join(ENCODERS.names())}; {own}")
    parser.add_argument("--episodes", metavar="E", help="at most so many episodes of meta-training")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    parser.add_argument("--eager", action="store_true", help="on a GPU, capture nothing: slow, to debug")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="no packs, no kernels of ours: slow, for print, pdb, profilers",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, below")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the records, one a seed, in a list")
    return parser


@cache
def _configs() -> list[RunConfig]:
    """Every method with every protocol."""
    return [RunConfig(method=method, protocol=protocol) for method in METHODS for protocol in PROTOCOLS]


def _using(name: str) -> list[str]:
    """The methods with which a setting can be given."""
    found = [config.method for config in _configs() if _is_open(config, name)]
    return list(dict.fromkeys(found))


def _is_open(config: RunConfig, name: str) -> bool:
    """Whether a setting has an effect, or would next to other values of the others."""
    return config.applies(name) or name in config.idle


def _can_be_set(name: str) -> bool:
    return bool(_using(name))


def _help(name: str) -> str:
    """What a setting is; where it is for a few methods, which."""
    using = _using(name)
    few = ", ".join(without_hash(method) for method in using) if 2 * len(using) < len(METHODS) else ""
    return ": ".join(filter(None, [few, all_settings()[name].metadata["help"]]))


def _default(name: str) -> str:
    value: Any = all_settings()[name].default
    if value is BY_METHOD:
        own = [METHODS[method].all_defaults().get(name) for method in _using(name)]
        usual = max(own, key=own.count)
        return written(usual) if len(set(own)) == 1 else f"{written(usual)} for most methods"
    return "by dataset" if value is None else written(value)


if __name__ == "__main__":
    sys.exit(main())
