"""`python -m hagmeta`: run one configuration for several seeds, or inspect the datasets."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from hagmeta import datasets
from hagmeta.api.calls import Work
from hagmeta.api.display import sessions_table
from hagmeta.common.command import Parser, as_typed, check_no_value, parse_seeds, parse_settings, show_error
from hagmeta.common.errors import Diverged, UserError, choose
from hagmeta.common.files.files import writing, written_whole
from hagmeta.common.files.home import DEFAULT_HOME, home, make_home
from hagmeta.common.files.outputs import Kind, check_output
from hagmeta.common.plugins.identity import DIGITS, is_identity, without_hash
from hagmeta.common.records.records import Record
from hagmeta.common.settings.setting import BY_METHOD, written
from hagmeta.common.version import __version__
from hagmeta.config.run_config import REGISTRIES, SETTINGS, RunConfig, all_settings
from hagmeta.datasets.command import datasets_command
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.methods import METHODS
from hagmeta.packs.device import choose_device
from hagmeta.packs.environment import commit
from hagmeta.scenarios import PROTOCOLS

LEARNER = ("fit", "learn", "predict")
COMMANDS = ("run", "datasets", *LEARNER)


def _are_records(path: Path) -> bool:
    records = json.loads(path.read_bytes())
    return isinstance(records, list) and bool(records) and all("config_hash" in each for each in records)


RECORDS = Kind("a list of records", _are_records)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        if list(arguments[:1]) == ["datasets"]:
            datasets_command(arguments[1:])
        elif arguments and arguments[0] in LEARNER:
            from hagmeta.learner.command import learner_command

            learner_command(arguments[0], arguments[1:])
        else:
            _run(_options(arguments))
    except UserError as error:
        show_error(error)
        return 2
    except KeyboardInterrupt as stop:
        console.print(" ".join(["stopped.", *getattr(stop, "__notes__", ())]), style="bold red")
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    seeds = parse_seeds(options.seeds)
    given = _given(options)
    config = RunConfig.of(given)
    device = choose_device(options.device)
    if options.json:
        check_output("--json", options.json, RECORDS, inputs=[options.dataset], force=options.force)
    dataset = datasets.load(config.dataset, make_home() / "data")
    mode = mode_of(eager=options.eager, plain=options.plain)
    work = Work(RunOptions(device=device, mode=mode, cache=home() / "pretrained"))
    try:
        result = work.run(config, dataset, seeds, given)
    except (KeyboardInterrupt, Diverged) as stop:
        finished = stop.finished if isinstance(stop, Diverged) else getattr(stop, "result", None)
        if finished:
            _deliver(finished.records, options.json)
        raise
    _deliver(result.records, options.json)


def _deliver(records: list[Record], path: Path | None) -> None:
    """Write the records, if there is a `path`, and print their table."""
    if path:
        write_json(path, records)
    Console().print(sessions_table(records))


def write_json(path: Path, records: list[Record]) -> None:
    """Write `records` to `path`; the file appears only when it is complete."""
    with writing("--json", path), written_whole(path) as partial:
        partial.write_text(json.dumps(records, indent=1) + "\n")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given on the command line."""
    values: dict[str, Any] = {
        key: value for key, value in vars(options).items() if key in SETTINGS and value is not None
    }
    changes = parse_settings(options.set)
    for key in changes.keys() & values.keys():
        option = f"--{key.replace('_', '-')}"
        raise UserError(f"{key} is given twice: by {option} and by --set {key}={changes[key]}. Remove one.")
    return values | changes


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    options = _parser(_plugins_in(arguments)).options(arguments)
    check_no_value(options.command)
    if choose("command", options.command, COMMANDS) != "run":
        name = options.command
        raise UserError(f"{name} must be the first argument; see {as_typed('hagmeta')} {name} --help.")
    return options


class _Version(argparse.Action):
    """Prints the version. The commit is looked up only then, because that runs git."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        code = commit()
        dirty = "+" if code and code.endswith("+") else ""
        print(f"hagmeta {__version__}" + (f", commit {code[:DIGITS]}{dirty}" if code else ""))
        parser.exit()


def _plugins_in(arguments: Sequence[str]) -> dict[str, str]:
    """Return the plug-ins named on the command line, so that --help can list their settings."""
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
    protocols = ", ".join(name + " (leaks)" * protocol.leaks for name, protocol in PROTOCOLS.items())
    prog = as_typed("hagmeta")
    parser = Parser(
        prog=prog,
        description="Run graph few-shot class-incremental learning: pre-train, meta-train, evaluate.",
        epilog="\n\n".join([*_settings_help(listed), _about_files(prog)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action=_Version, nargs=0, help="print the version and the commit, and exit")
    add(
        "command",
        nargs="?",
        default="run",
        help="run (the default), datasets to list and convert graphs, or fit, learn or predict for a learner",
    )
    add("--dataset", metavar="NAME", help="graph to run on (default: debian, which needs no download)")
    add("--seeds", default="10", help="a count (10), a range (0-9) or a list (1,4,7); default: 10")
    own = "or your own: package.module:Class or file.py:Class"
    add("--method", metavar="NAME", help=f"one of: {', '.join(METHODS.names())}; {own}")
    for part in ("gpil", "nla", "tla"):
        add(
            f"--{part}",
            action=argparse.BooleanOptionalAction,
            help=f"switch {part.upper()} on or off (hag-meta)",
        )
    add("--n-way", metavar="N", help="new classes per session")
    add("--k-shot", metavar="K", help="labelled nodes per new class")
    add(
        "--classes",
        nargs=3,
        metavar=("B", "T", "E"),
        help="number of base, novel-train and novel-test classes; with T = 0, episodes use base classes",
    )
    add("--drop-small", action="store_true", default=None, help="leave out classes with too few nodes")
    add("--protocol", metavar="NAME", help=f"one of: {protocols}")
    add("--encoder", metavar="NAME", help=f"one of: {', '.join(ENCODERS.names())}; {own}")
    add("--episodes", metavar="E", help="maximum number of meta-training episodes")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where to compute (default: auto)")
    add("--eager", action="store_true", help="run without CUDA graphs, for debugging (slow)")
    add(
        "--plain",
        action="store_true",
        help="run one seed at a time with plain tensors, for print, pdb and profilers (slow)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change any setting listed below; repeat it for more",
    )
    add("--json", type=Path, metavar="FILE", help="write the records to FILE: a JSON list, one per seed")
    parser.add_force()
    return parser


def _settings_help(names: Iterable[str]) -> list[str]:
    """Return a block of text for each group of settings: those of most methods first."""
    groups: dict[tuple[str, ...], list[str]] = {(): []}
    for name in filter(_can_be_set, names):
        groups.setdefault(_few_using(name), []).append(name)
    return ["\n".join([_heading(few), *map(_setting_help, names)]) for few, names in groups.items()]


def _heading(few: Sequence[str]) -> str:
    if not few:
        return "settings for --set KEY=VALUE, with their defaults in brackets:"
    return _wrapped(f"settings of {', '.join(without_hash(method) for method in few)}:", "", "  ")


def _setting_help(name: str) -> str:
    text = all_settings()[name].metadata["help"]
    default = "" if "(default:" in text else f" [{_default(name)}]"
    return _wrapped(text + default, f"  {name:18} ", " " * 21)


def _about_files(prog: str) -> str:
    datasets = f"`{prog} datasets` lists and describes the datasets, and converts your own files."
    learner = f"`{prog} fit`, `learn` and `predict` keep a learner in a file. See `{prog} fit --help`."
    return "\n".join(
        [
            _wrapped(f"{datasets} See `{prog} datasets --help`."),
            _wrapped(learner),
            _wrapped(f"Downloads and pre-trained encoders are stored in $HAGMETA_HOME ({DEFAULT_HOME})."),
        ]
    )


def _wrapped(text: str, first: str = "", others: str = "") -> str:
    """Return `text` wrapped as argparse wraps its own lines, indented by `first` and `others`."""
    width = max(shutil.get_terminal_size().columns - 2, 40)
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


@cache
def _configs() -> list[RunConfig]:
    """Return a configuration for each method with each protocol."""
    return [RunConfig.of(method=method, protocol=protocol) for method in METHODS for protocol in PROTOCOLS]


def _using(name: str) -> list[str]:
    """Return the methods with which a setting can be given."""
    found = [config.method for config in _configs() if _is_open(config, name)]
    return list(dict.fromkeys(found))


def _is_open(config: RunConfig, name: str) -> bool:
    """Return whether a setting has an effect, or would have one if other settings changed."""
    return config.applies(name) or name in config.idle


def _can_be_set(name: str) -> bool:
    return bool(_using(name))


def _few_using(name: str) -> tuple[str, ...]:
    """Return the methods that use a setting if they are fewer than half of all, else nothing."""
    using = _using(name)
    return tuple(using) if 2 * len(using) < len(METHODS) else ()


def _default(name: str) -> str:
    value: Any = all_settings()[name].default
    if value is BY_METHOD:
        own = [METHODS[method].all_defaults().get(name) for method in _using(name)]
        usual = max(own, key=own.count)
        return written(usual) if len(set(own)) == 1 else f"{written(usual)} for most methods"
    return "depends on the dataset" if value is None else written(value)


if __name__ == "__main__":
    sys.exit(main())
