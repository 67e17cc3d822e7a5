from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.downloads import sources
from hagmeta.methods import METHODS
from study.search.confirmation import fresh_seeds
from study.space import file as space_file
from study.space import spaces as space
from study.space.spaces import Dimension, Space

Write = Callable[..., str]
# Methods that came after the stored results, in the order of METHODS.
LATER = ("label-spreading", "graphany", "random-encoder")
EMBEDDED = ("debian", "metamath", "wordnet")
SHIPPED = {path.stem: path.read_text() for path in sorted(space.FOLDER.glob("*.yaml"))}
DOWNLOADING = ("followers", "followers_tuned", "llm4gcl", "preregistered", "preregistered_tuned")
# A search with fewer configurations is hyperparameters.
SMALLER = sorted(set(SHIPPED) - {"tune", "preregistered", "preregistered_tuned"})


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a space's text to a file and give its name."""

    def write(text: str, name: str = "mine.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def settings_of(found: Space, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(config, key) for key in keys) for config in found.configs]


# What ships.


@cache
def shipped(name: str, *, quick: bool = False) -> space.Space:
    """Read a space of ours once for all tests: the largest take seconds."""
    return space.read(name, quick=quick)


@pytest.mark.parametrize(
    ("name", "quick"),
    [
        *((name, True) for name in space.names()),
        *(
            pytest.param(name, False, marks=() if name in SMALLER else pytest.mark.slow)
            for name in space.names()
        ),
    ],
)
def test_shipped_spaces_are_valid(name: str, quick: bool) -> None:
    found = shipped(name, quick=quick)
    assert found.name == name + "-quick" * quick
    assert len(found.description) > 20
    assert found.configs
    assert len(set(found.configs)) == len(found.configs)
    assert len(shipped(name).seeds) == {"hyperparameters": 3, "tune": 3, "smoke": 4}.get(name, 10)


@pytest.mark.parametrize("name", [name for name in space.names() if name not in DOWNLOADING])
def test_no_space_downloads_anything_by_itself(name: str) -> None:
    found = space_file.read(space.FOLDER / f"{name}.yaml", quick=False)
    assert set(found.datasets).isdisjoint(sources.FILES)


def test_values_given_choose_among_searches(write: Write) -> None:
    text = SEARCH + SAMPLE + "\ngrid: {method: [cec, gpn]}\ncases: [{k_shot: 1}, {k_shot: 5, n_way: 2}]"
    chosen = space.read(write(text), settings={"method": "gpn", "k_shot": 5})
    assert settings_of(chosen, "method", "k_shot", "n_way") == [("gpn", 5, 2)]
    assert len(space.read(write(text), settings={"n_way": 2}).configs) == 4  # and of cases without it
    assert settings_of(space.read(write(text), settings={"method": "icarl", "k_shot": 1}), "method") == [
        ("icarl",)
    ]
    with pytest.raises(
        UserError, match=r"mine\.yaml:6: no case of this search has k_shot 3; expected one of 1, 5"
    ):
        space.read(write(text), settings={"k_shot": 3})
    with pytest.raises(UserError, match=r"mine\.yaml:4: dropout varies in this space"):
        space.read(write(text), settings={"dropout": 0.1})


# How a file is read.


def test_cases_cross_the_grid_and_may_belong_to_a_dataset(write: Write) -> None:
    found = space.read(
        write("""
datasets: [debian, cora-full]
grid: {k_shot: [1, 5]}
cases:
  - {dataset: debian, n_way: 2}
  - {loss: binary}
""")
    )
    assert settings_of(found, "dataset", "n_way", "loss", "k_shot") == [
        ("debian", 2, "categorical", 1),
        ("debian", 2, "categorical", 5),
        ("debian", None, "binary", 1),
        ("debian", None, "binary", 5),
        ("cora-full", None, "binary", 1),
        ("cora-full", None, "binary", 5),
    ]


def test_equal_runs_are_kept_once(write: Write) -> None:
    # Debian's own setting is 3-way.
    found = space.read(write("{datasets: [debian, debian], grid: {n_way: [null, 3, 3, 2]}}"))
    assert settings_of(found, "n_way") == [(None,), (2,)]


def test_numbers_with_an_exponent_are_numbers(write: Write) -> None:
    # To YAML 1.1 a number with an exponent but no point is text.
    found = space.read(
        write("""
datasets: [debian]
fixed: {val_classes: 6}
search: {algorithm: optuna, samples: 2, objective: val_accuracy}
sample: {learning_rate: {loguniform: [1e-4, 1e-2]}, hidden: {choice: [16, 32, 16]}}
""")
    )
    assert found.sample == (
        Dimension("learning_rate", "loguniform", (1e-4, 1e-2)),
        Dimension("hidden", "choice", (16, 32)),
    )


def test_quick_merges_fixed_and_replaces_the_rest(write: Write) -> None:
    file = write("""
datasets: [debian]
fixed: {hidden: 8, episodes: 900}
grid: {k_shot: [1, 5], n_way: [2, 3]}
quick: {fixed: {episodes: 5}, grid: {k_shot: [1]}, seeds: 1}
""")
    assert settings_of(space.read(file, quick=True), "hidden", "episodes", "k_shot") == [(8, 5, 1)]
    assert len(space.read(file).configs) == 4


# Datasets and settings from the command line.


def test_aliases_are_followed(write: Write) -> None:
    found = space.read(write("{datasets: [debian], grid: {nla: &both [false, true], tla: *both}}"))
    assert len(found.configs) == 4


def test_datasets_given_pick_their_cases() -> None:
    found = space.read("nway_kshot", datasets=["dblp"])
    assert settings_of(found, "dataset", "n_way", "k_shot", "method") == [
        ("dblp", n_way, k_shot, method)
        for n_way, k_shot in ((5, 3), (5, 5), (10, 5))
        for method in ("hag-meta", "cec")
    ]


def test_a_dataset_without_cases_gets_those_of_all_others() -> None:
    found = space.read("nway_kshot", datasets=["cora-full"])
    shapes = [(3, 3), (3, 5), (5, 5), (5, 3), (10, 5), (2, 3), (2, 5)]
    assert list(dict.fromkeys(settings_of(found, "n_way", "k_shot"))) == shapes


def test_paper_runs_on_a_given_dataset_alone() -> None:
    found = space.read("paper", datasets=["debian"])
    assert {config.dataset for config in found.configs} == {"debian"}
    assert len(found.configs) == len(METHODS) + 24 + 3 * 2 - 1 - 2


def test_settings_override_what_is_fixed() -> None:
    found = space.read("ablation", quick=True, settings={"episodes": "7", "n_way": 2})
    assert set(settings_of(found, "episodes", "n_way", "pretrain_epochs")) == {(7, 2, 100)}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("ablation", "gpil"),
        ("comparison", "method"),
        ("sensitivity", "hidden"),
        ("hyperparameters", "dropout"),
        ("paper", "n_way"),
    ],
)
def test_settings_contradict_what_varies(name: str, key: str) -> None:
    values: dict[str, Any] = {"gpil": True, "method": "gpn", "hidden": 8, "dropout": 0.1, "n_way": 2}
    with pytest.raises(UserError, match=rf"\.yaml:\d+: {key} varies in this space"):
        space.read(name, settings={key: values[key]})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"settings": {"hiden": 3}}, "Did you mean 'hidden'"),
        ({"settings": {"hidden": "wide"}}, "hidden is 'wide'; expected a whole number"),
        ({"settings": {"dataset": "debian"}}, "--dataset"),
        ({"settings": {"n_way": 20}}, "on debian: n_way is 20, but only 12 classes are left"),
        ({"datasets": ["debain"]}, "Did you mean 'debian'"),
        ({"datasets": ["npz:~no-such-user/x.npz"]}, "not a valid path"),
        ({"seeds": []}, "0 seeds"),
        ({"seeds": [1, 1]}, "twice"),
        ({"seeds": [-1]}, "outside the range 0"),
        ({"seeds": [2**63]}, "outside the range 0"),
        ({"seeds": range(10_001)}, "10,001 seeds"),
    ],
)
def test_bad_requests(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        space.read("ablation", **asked)


# Bad files: the line, what is wrong, what would be right.

DEBIAN = "datasets: [debian]\n"
NLA = DEBIAN + "grid: {nla: [false, true]}\n"
SEARCH = DEBIAN + "fixed: {val_classes: 6}\n"
SEARCH += "search: {algorithm: optuna, samples: 2, objective: val_accuracy}\n"
SAMPLE = "sample: {dropout: {choice: [0.5, 0.1]}}"
START = SEARCH.replace("samples: 2", "samples: 9, start: [\n    {dropout: 0.5},\n    {dropout: 0.1}]")


def test_labels_are_given_as_words_or_numbers(write: Write) -> None:
    # YAML reads 5 as a number and none as text; equal values are one configuration.
    text = "datasets: [debian]\nfixed: {pretrain_on: known}\ngrid: {rehearsal: [all, none, 5, '5', 10]}"
    found = space.read(write(text))
    assert settings_of(found, "pretrain_on", "rehearsal") == [
        ("known", value) for value in ("all", "none", "5", "10")
    ]
    both = text.replace("grid", "one_at_a_time") + "\ncases: [{method: joint}, {protocol: released}]"
    assert {config.rehearsal for config in space.read(write(both)).configs} == {"all"}
    chosen = SEARCH + "sample: {rehearsal: {choice: [none, 5]}}"
    assert space.read(write(chosen)).sample == (Dimension("rehearsal", "choice", ("none", "5")),)


BAD = {
    "empty": ("", 1, "the file is empty"),
    "a list": ("[1, 2]", 1, "expected a mapping"),
    "text": ("hello", 1, "expected a mapping"),
    "not YAML": (DEBIAN + "fixed: {", 2, "not YAML"),
    "two documents": (DEBIAN + "---\na: 1", 2, "not YAML"),
    "tab": ("datasets:\n\t- debian", 2, "not YAML"),
    "escape out of range": ('datasets: ["\\Uffffffff"]', 1, "not YAML"),
    "control character": ("datasets: [debian]\n# \a", 2, "not YAML"),
    "unknown alias": ("datasets: *names", 1, "not YAML"),
    "unknown key": (DEBIAN + "gird: {nla: [true]}", 2, "unknown key 'gird'. Did you mean 'grid'?"),
    "unknown key of quick": (DEBIAN + "quick:\n  seds: 3", 3, "Did you mean 'seeds'?"),
    "key twice": (DEBIAN + "seeds: 1\nseeds: 2", 3, "'seeds' is given twice, first in line 2"),
    "key that is a list": (DEBIAN + "? [a]\n: 1", 2, "expected a name"),
    "no datasets": ("seeds: 3", 1, "datasets is missing"),
    "grid but no datasets": ("include: [ablation]\ngrid: {nla: [true]}", 2, "datasets is missing"),
    "datasets is text": ("datasets: debian", 1, "datasets is 'debian'; expected a list"),
    "no dataset in the list": ("datasets: []", 1, "datasets is an empty list"),
    "unknown dataset": ("datasets:\n  - dbpl", 2, "Did you mean 'dblp'?"),
    "dataset is a number": ("datasets: [3]", 1, "a dataset is 3; expected text"),
    "something in a dataset's place": ("datasets: [dblp]\nfallback: debian", 2, "unknown key 'fallback'"),
    "bad synthetic": ("datasets: ['synthetic:nodes=3']", 1, "synthetic"),
    "renamed setting": (DEBIAN + "fixed: {coupling: 3}", 2, "coupling is called propagation_weight"),
    "replaced setting": (DEBIAN + "fixed: {tla_layers: two}", 2, "tla_layers is gone; under released"),
    "unknown setting": (DEBIAN + "fixed: {hiden: 3}", 2, "unknown setting 'hiden'. Did you mean 'h"),
    "unknown method": (DEBIAN + "fixed: {method: hagmeta}", 2, "Did you mean 'hag-meta'?"),
    "wrong type": (DEBIAN + "fixed:\n  hidden: wide", 3, "hidden is 'wide'; expected a whole n"),
    "mapping as a value": (DEBIAN + "fixed: {classes: {1: a, 2: b, 3: c}}", 2, "classes is a mapp"),
    "no value": (DEBIAN + "fixed: {hidden: }", 2, "hidden has no value"),
    "out of range": (DEBIAN + "grid:\n  dropout:\n    - 0.5\n    - 1.5", 5, "dropout is 1.5; expected"),
    "date": (DEBIAN + "fixed: {loss: 2020-01-01}", 2, "expected text or a number"),
    "no date": (DEBIAN + "fixed: {loss: 2020-31-31}", 2, "cannot be read as"),
    "object": (DEBIAN + "fixed: {loss: !!python/name:os.system }", 2, "cannot be read as"),
    "huge number": (DEBIAN + f"fixed: {{hidden: 0x{'f' * 9000}}}", 2, "is too large"),
    "unprintable": ('datasets: [debian]\ndescription: "a\\u0000b"', 2, "unprintable"),
    "description": (DEBIAN + "description: [a]", 2, "expected text"),
    "dataset is fixed": (DEBIAN + "fixed: {dataset: dblp}", 2, "datasets (or --dataset)"),
    "grid is a list": (DEBIAN + "grid: [nla]", 2, "grid is ['nla']; expected a mapping"),
    "empty grid": (DEBIAN + "grid: {}", 2, "grid is empty"),
    "empty axis": (DEBIAN + "grid:\n  nla: []", 3, "nla is an empty list"),
    "axis is no list": (DEBIAN + "grid:\n  nla: true", 3, "nla is True; expected a list"),
    "grid and fixed": (DEBIAN + "fixed: {nla: true}\ngrid: {nla: [true]}", 3, "but line 2 also sets it"),
    "case and grid": (DEBIAN + "grid: {nla: [true]}\ncases: [{nla: true}]", 3, "but line 2 also sets it"),
    "grid and alone": (DEBIAN + "grid: {nla: [true]}\none_at_a_time: {nla: [true]}", 3, "but line 2 also"),
    "empty case": (DEBIAN + "cases:\n  - {}", 3, "a case is empty"),
    "case without dataset": ("cases:\n  - {dataset: dblp}\n  - {nla: true}", 3, "names no dataset"),
    "hidden and heads": (DEBIAN + "fixed:\n  encoder: gat\n  hidden: 30", 4, "multiple of heads"),
    "no file to split": ("datasets: ['npz:x.npz']", 1, "x.npz: no such file"),
    "n beyond novel-test": (DEBIAN + "fixed: {n_way: 28}", 2, "only 27 classes are novel-test"),
    "n beyond novel-train": (DEBIAN + "grid:\n  n_way: [3,\n 13]", 4, "only 12 classes are left"),
    "n x sessions": (DEBIAN + "fixed: {n_way: 3, sessions: 10}", 2, "need 30 novel-test"),
    "too many classes": (DEBIAN + "fixed: {classes: [20, 20, 20]}", 2, "60 in total, but the dataset has 51"),
    "seeds: none": (DEBIAN + "seeds: 0", 2, "seeds is 0; expected a whole number from 1 to 10,000"),
    "seeds: too many": (DEBIAN + "seeds: 10001", 2, "seeds is 10001"),
    "seeds: true": (DEBIAN + "seeds: true", 2, "seeds is True"),
    "seed: text": (DEBIAN + "seeds: [a]", 2, "a seed is 'a'"),
    "seed: twice": (DEBIAN + "seeds: [1, 1]", 2, "given twice"),
    "search alone": (SEARCH, 3, "search is given without sample"),
    "sample alone": (DEBIAN + "sample: {dropout: {uniform: [0, 0.5]}}", 2, "without search"),
    "algorithm": (SEARCH.replace("optuna", "optune") + SAMPLE, 3, "mean 'optuna'?"),
    "objective": (SEARCH.replace("val_acc", "acc") + SAMPLE, 3, "objective 'accuracy'. Did"),
    "design kind": (NLA + "design: {kind: factorail}", 3, "mean 'factorial'?"),
    "no design kind": (NLA + "design: {factors: [nla]}", 3, "design has no kind; expected one of factorial,"),
    "design factor": (NLA + "design: {kind: factorial, factors: [tla]}", 3, "design names tla, which this"),
    "other design": (NLA + "design: {kind: protocols}", 3, "make no protocols design, but: factorial"),
    "samples": (SEARCH.replace("2", "0") + SAMPLE, 3, "samples is 0"),
    "group": (SEARCH.replace("samples: 2", "samples: 2, group: 0") + SAMPLE, 3, "group is 0; expected"),
    "large group": (SEARCH.replace("samples: 2", "samples: 2, group: 3") + SAMPLE, 3, "from 1 to 2"),
    "start": (SEARCH.replace("samples: 2", "samples: 2, start: hidden") + SAMPLE, 3, "expected a list"),
    "empty start": (START.replace("{dropout: 0.5}", "{}") + SAMPLE, 4, "a point of start is empty"),
    "start is text": (START.replace("{dropout: 0.5}", "dropout") + SAMPLE, 4, "start is 'dropout'; expected"),
    "long start": (START.replace("samples: 9", "samples: 2, group: 1") + SAMPLE, 3, "samples of at least 3"),
    "start: type": (START.replace("0.5", "high") + SAMPLE, 4, "dropout is 'high'; expected a number"),
    "start: setting": (START.replace("dropout:", "dropuot:") + SAMPLE, 4, "Did you mean 'dropout'?"),
    "start: not sampled": (START.replace("dropout: 0.5", "hidden: 8") + SAMPLE, 4,
        "start sets hidden, but sample does not"),
    "start: outside": (START.replace("0.5", "0.6") + SAMPLE, 4,
        "start sets dropout to 0.6, outside its range {'choice': [0.5, 0.1]} (line 6)"),
    "start: together": (
        START.replace("dropout: 0.5", "hidden: 20, heads: 8").replace("{val", "{encoder: gat, val")
        + "sample: {hidden: {choice: [32, 20]}, heads: {choice: [4, 8]}, dropout: {choice: [0.1]}}", 4,
        "hag-meta on debian: hidden is 20; expected a multiple of heads"),
    "search key": (SEARCH.replace("samples", "sample"), 3, "Did you mean 'samples'?"),
    "search lacks": (SEARCH.replace("samples: 2, ", ""), 3, "search has no samples"),
    "no val_classes": (SEARCH.replace("6", "0") + SAMPLE, 3, "val_classes above 0"),
    "empty sample": (SEARCH + "sample: {}", 4, "sample is empty"),
    "range": (SEARCH + "sample:\n  dropout: {unifrom: [0, 1]}", 5, "Did you mean 'uniform'?"),
    "two ranges": (SEARCH + "sample: {dropout: {uniform: [0, 0.5], choice: [0]}}", 4, "has 2 ranges"),
    "no range": (SEARCH + "sample: {dropout: 0.5}", 4, "dropout is 0.5; expected a mapping"),
    "low, high": (SEARCH + "sample: {dropout: {uniform: [0.5, 0.1]}}", 4, "dropout: uniform is [0.5, 0.1]"),
    "low alone": (SEARCH + "sample: {dropout: {uniform: [0.5]}}", 4, "expected [low, high]"),
    "log of 0": (SEARCH + "sample: {weight_decay: {loguniform: [0, 0.1]}}", 4, "expected low above 0"),
    "high out of range": (SEARCH + "sample: {dropout: {uniform: [0, 1]}}", 4, "dropout is 1; expected"),
    "fractional width": (SEARCH + "sample: {hidden: {uniform: [8, 16]}}", 4, "does not fit the type"),
    "range of text": (SEARCH + "sample: {loss: {randint: [binary, categorical]}}", 4, "does not fit"),
    "sampled and fixed": (SEARCH + "sample: {val_classes: {randint: [3, 6]}}", 4, "but line 2 also sets it"),
    "nothing sampled": (SEARCH + "sample: {nla: {choice: [true]}}\ngrid: {method: [cec]}", 4, "to cec"),
    "too few for half": (SEARCH.replace("6", "half, n_way: 7") + SAMPLE, 2, "half, but 12 novel-train"),
    "sampled n": (SEARCH + "sample: {n_way: {randint: [1, 7]}}", 4, "n_way is 7, but only 6 classes"),
    "sampled hidden": (
        SEARCH.replace("{val", "{encoder: gat, val") + "sample: {hidden: {randint: [8, 16]}}",
        4,
        "hidden is 9; expected a multiple",
    ),
    "rehearsal": (DEBIAN + "fixed:\n  rehearsal: some", 3, "all, none or a whole number of at least 1"),
    "no rehearsal": (DEBIAN + "fixed:\n  rehearsal: ~", 3, "rehearsal is None; expected all, none or a"),
    "range of rehearsal": (SEARCH + "sample: {rehearsal: {randint: [1, 5]}}", 4, "does not fit"),
    "unknown include": ("include:\n  - ablaton", 2, "Did you mean 'ablation'?"),
    "included search": ("include: [hyperparameters]", 1, "is a search and cannot be included"),
    "search includes": (SEARCH + SAMPLE + "\ninclude: [ablation]", 5, "cannot include"),
    "includes itself": ("include: [mine.yaml]", 1, "mine.yaml includes itself"),
    "too many": (DEBIAN + "grid:\n" + "".join(f"  {k}: {[*range(1, 11)]}\n" for k in (
        "hidden", "embedding", "episodes", "patience", "heads", "validate_every")), 1, "at most 10,000"),
    "too many runs": ("seeds: 10000\ndatasets: [debian]\ngrid: {k_shot: %s}" % [*range(1, 102)], 1, "runs"),
    "deep": ("datasets: " + "[" * 900, 1, ""),
    "deep too": ("datasets: " + "[" * 100 + "]" * 100, 1, "too deeply nested"),
    "large": ("# " + "x" * 100_000, 1, "too large; expected at most 100,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), BAD.values(), ids=BAD)
def test_bad_files_are_refused_with_their_line(write: Write, text: str, line: int, message: str) -> None:
    file = write(text)
    with pytest.raises(UserError, match=re.escape(f"{file}:{line}: ")) as caught:
        space.read(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bomb_of_aliases_is_refused_at_once(write: Write) -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 19))
    start = time.process_time()
    for text in (f"a0: &a0 [x]\n{levels}", "datasets: &loop [*loop]", "&top {fixed: *top}"):
        with pytest.raises(UserError, match="too deeply nested"):
            space.read(write(text))
    assert time.process_time() - start < 5  # of this process: the load of others does not count


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.yaml").mkdir()
    for name, message in (
        ("binary.yaml", "not UTF-8"),
        ("folder.yaml", "Valid: FILE.yaml, ablation, attention, comparison"),
        ("none.yaml", "no such file"),
        ("x" * 5000 + ".yaml", "no such file"),
        ("a\0b.yaml", "no such file"),
    ):
        with pytest.raises(UserError, match=message):
            space.read(str(tmp_path / name))
    with pytest.raises(UserError, match="Did you mean 'ablation'"):
        space.read("ablatoin")


def test_include_cycles_through_others_are_refused(write: Write) -> None:
    write("include: [b.yaml, smoke]", "a.yaml")
    write("include: [a.yaml]", "b.yaml")
    with pytest.raises(UserError, match=r"b\.yaml:1: a\.yaml includes itself"):
        space.read(write("include: [a.yaml]"))


def test_what_is_included_twice_is_read_once(write: Write) -> None:
    # Without that, 40 files that each include the next twice are a trillion.
    for number in range(40):
        write(f"include: [f{number + 1}.yaml, f{number + 1}.yaml]", f"f{number}.yaml")
    write("datasets: [debian]", "f40.yaml")
    assert len(space.read(write("include: [f0.yaml]")).configs) == 1


def test_no_quick_version(write: Write) -> None:
    with pytest.raises(UserError, match="no quick version"):
        space.read(write("datasets: [debian]"), quick=True)


TUNED_ON = {
    "comparison_tuned": (*EMBEDDED, "foldoc"),
    "followers_tuned": ("coauthor-cs", "amazon-computers"),
}


@pytest.mark.parametrize("name", [*TUNED_ON, "preregistered_tuned"])
def test_tuned_spaces_have_no_setting_without_effect(name: str) -> None:
    for case in yaml.safe_load(SHIPPED[name])["cases"]:
        chosen = resolve(RunConfig.of(case))
        task = {key: case[key] for key in ("dataset", "method", "classes") if key in case}
        defaults = resolve(RunConfig.of(task)).canonical()
        for key in case.keys() - task.keys():
            assert chosen.applies(key), (case["dataset"], case["method"], key)
            assert chosen.canonical()[key] != defaults[key], (case["dataset"], case["method"], key)


@pytest.mark.parametrize(("dataset", "n_way", "sessions"), [("wiki-cs", 3, 2), ("ogbn-arxiv", 4, 7)])
def test_llm4gcl_uses_every_class_of_its_graphs_in_full_sessions(
    dataset: str, n_way: int, sessions: int
) -> None:
    (info,) = (info for info in sources.INFOS if info.name == dataset)
    found = {
        (config.classes, config.n_way, config.k_shot)
        for config in shipped("llm4gcl").configs
        if config.dataset == dataset
    }
    ((classes, way, shot),) = found
    assert (sum(classes), classes[1], shot) == (info.classes, 0, 5)
    assert way == n_way and classes[2] == n_way * sessions


FRESH = ("bible", "boost", "kanji")


def test_the_preregistered_comparison_has_every_method_on_every_graph_and_seeds_of_its_own() -> None:
    found = shipped("preregistered")
    graphs = list(dict.fromkeys(config.dataset for config in found.configs))
    assert len(graphs) == 10 and set(FRESH) < set(graphs) and {*EMBEDDED, "foldoc"} < set(graphs)
    assert Counter((config.dataset, config.method) for config in found.configs) == Counter(
        itertools.product(graphs, [method for method in METHODS if method not in LATER])
    )
    for config in found.configs:  # on one graph, some methods could not run by default
        classes = (3, 0, 4) if config.dataset == "cora-ml" else None
        assert config == RunConfig.of(dataset=config.dataset, method=config.method, classes=classes)
    for name in set(SHIPPED) - {"preregistered", "preregistered_tuned"}:
        other = space_file.read(space.FOLDER / f"{name}.yaml", quick=False)
        assert not set(other.seeds) & set(found.seeds) and not set(other.datasets) & set(FRESH)
    assert fresh_seeds((97, 98, 99)) == found.seeds  # those of the search in archives/preregistration.md
