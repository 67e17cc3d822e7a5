from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hagmeta.common.errors import UserError
from hagmeta.common.records.records import read_record
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.scenarios.predictions import read_predictions
from study.store.store import Store


def record(seed: int, config: RunConfig | None = None, **settings: Any) -> dict[str, Any]:
    config = resolve(config or RunConfig.of(**settings))
    return {
        "config": config.canonical(),
        "config_hash": config.hash(),
        "data": "a" * 64,
        "given": config.given(),
        "scopes": config.scopes(),
        "traits": {"title": "HAG-Meta"},
        "leaks": False,
        "oracle": False,
        "unhashed": config.unhashed(),
        "revisions": config.revisions(),
        "seed": seed,
        **{key: [0.8, 0.5] for key in ("accuracy", "macro_accuracy", "macro_f1")},
        **{key: [0.8, 0.6] for key in ("base_accuracy", "macro_base_accuracy")},
        **{key: [None, 0.1] for key in ("novel_accuracy", "new_accuracy", "macro_novel_accuracy")},
        **{key: [None, 0.12 / 0.7] for key in ("harmonic", "macro_harmonic")},
        "classes_met": [0, 1],
        "matrix": [[0.8], [0.6, 0.1]],
        "pd": 0.3,
        "rpd": 0.375,
        "validation": {},
        "seconds": {},
        "environment": {},
    }


def test_written_records_are_found_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    records = [record(0), record(1), record(0, nla=False)]
    for each in records:
        store.write(each)
    assert store.scan().done == {(each["config_hash"], each["seed"]) for each in records}
    assert sorted(store.records(), key=str) == sorted(records, key=str)


def test_a_full_disk_leaves_the_old_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record(0))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            store.write(record(0) | {"pd": 0.4})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.records() == [record(0)]


def test_two_folders_copied_together_are_one_study(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    one.write(record(0))
    other.write(record(1))
    subprocess.run(["cp", "-r", f"{other.folder}/.", str(one.folder)], check=True)
    assert {seed for _, seed in one.scan().done} == {0, 1}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], "not valid JSON"),
        (lambda text: "garbage", "not valid JSON"),
        (lambda text: "[]", "not a record"),
        (lambda text: text.replace('"seed": 0', '"seed": 5'), "another seed"),
        (lambda text: text.replace('"nla": true', '"nla": false'), "another configuration"),
        (lambda text: text.replace('"accuracy"', '"accuraty"'), "keys are missing: accuracy"),
        (lambda text: text.replace('"accuracy": [0.8, 0.5]', '"accuracy": null'), "its accuracy is null"),
        (lambda text: text.replace('"accuracy": [0.8, 0.5]', '"accuracy": []'), "its accuracy is []"),
        (lambda text: text.replace("[0.8, 0.5]", '[0.8, "0.5"]'), 'its accuracy[1] is "0.5"'),
        (lambda text: text.replace("[0.8, 0.5]", "[0.8, NaN]"), "not valid JSON"),
        (lambda text: text.replace("[0.8, 0.5]", "[0.8, 1.5]"), "its accuracy[1] is 1.5"),
        (lambda text: text.replace('"pd": 0.3', '"pd": "much"'), 'its pd is "much"'),
        (lambda text: text.replace("[[0.8], [0.6, 0.1]]", "[[0.8], [0.6]]"), "not triangular"),
        (lambda text: text.replace("[[0.8], [0.6, 0.1]]", "[[0.8]]"), "its matrix has 1 sessions"),
        (lambda text: text.replace('"seconds": {}', '"seconds": {"gpil": -1}'), "its seconds gpil is -1"),
        (lambda text: "[" * 100_000, "not valid JSON"),
        (lambda text: text + " " * 20_000_000, "larger than 20,000,000 bytes"),
    ],
)
def test_what_cannot_be_trusted_is_set_aside_and_named(tmp_path: Path, damage: Any, reason: str) -> None:
    store = Store(tmp_path)
    store.write(record(0))
    store.write(record(1))
    (path,) = tmp_path.glob("runs/*/0.json")
    path.write_text(damage(path.read_text()))
    scan = store.scan()
    assert {seed for _, seed in scan.done} == {1}
    assert len(scan.aside) == 1 and reason in scan.aside[0] and path.parent.name in scan.aside[0]
    assert len(list(tmp_path.glob("aside/*"))) == 1
    assert store.scan().aside == []


def test_records_of_a_newer_format_stop_a_launch_and_stay_in_place(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record(0))
    (path,) = tmp_path.glob("runs/*/0.json")
    path.write_text(path.read_text().replace('"pd"', '"format": 2, "pd"'))
    with pytest.raises(UserError, match=r"0\.json: its format 2 is newer than 1, .* update hagmeta\."):
        store.scan()
    assert path.exists() and not list(tmp_path.glob("aside/*"))


def test_records_of_this_format_with_unknown_keys_are_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record(0))
    (path,) = tmp_path.glob("runs/*/0.json")
    path.write_text(path.read_text().replace('"pd"', '"format": 1, "later": [1, 2], "pd"'))
    assert {seed for _, seed in store.scan().done} == {0}


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_no_file_is_set_aside_too(tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path)
    store.write(record(0))
    (path,) = tmp_path.glob("runs/*/0.json")
    for again in range(2):  # what was set aside before stays
        path.unlink(missing_ok=True)
        if kind == "folder":
            path.mkdir()
        else:
            path.symlink_to("nowhere")
        scan = store.scan()
        assert not scan.done and len(scan.aside) == 1 and "not readable" in scan.aside[0]
        assert len(list((tmp_path / "aside").iterdir())) == again + 1


def test_a_run_of_another_graph_is_set_aside(tmp_path: Path) -> None:
    now, before = "a" * 64, "b" * 64
    store = Store(tmp_path, graphs={"debian": now})
    store.write(record(0) | {"data": now})
    store.write(record(1) | {"data": before})
    store.write(record(3, dataset="wordnet") | {"data": before})  # not asked for: left alone
    assert store.find((record(1)["config_hash"], 1)) is None
    scan = store.scan()
    assert {seed for _, seed in scan.done} == {0, 3}
    assert len(scan.aside) == 1 and "the graph debian has changed since this run" in scan.aside[0]


def test_a_run_that_succeeds_after_all_is_no_failure_any_more(tmp_path: Path) -> None:
    store = Store(tmp_path)
    done = record(0)
    key = done["config_hash"], 0
    told = store.write_failure(key, done["config"], "ValueError: 3", traceback="File my.py\nValueError: 3")
    assert told == store.failure_file(key) and store.why_failed(key) == "ValueError: 3"
    title = f"hag-meta on debian, seed 0, configuration {key[0]}"
    assert told.read_text() == f"{title}\n\nFile my.py\nValueError: 3\n"
    store.write(done)
    assert not list(tmp_path.glob("failed/*/*")) and not store.why_failed(key)
    assert read_record(next(tmp_path.glob("runs/*/0.json"))) == done


def test_merged_folders_keep_what_both_asked(tmp_path: Path) -> None:
    asked = {"configs": {"a": {}}, "seeds": [0], "time": "2026"}
    for words in ("Does width matter?", "Does dropout matter?", "Does width matter?"):
        Store(tmp_path).write_launch({**asked, "description": words})
    assert {each["description"] for each in Store(tmp_path).asked()} == {
        "Does width matter?",
        "Does dropout matter?",
    }


# It would diverge again, but not if the graph is another one, or if the user has deleted the file.
def test_diverged_run_does_not_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path, graphs={"debian": "a" * 64})
    key, other = [(record(seed)["config_hash"], seed) for seed in (0, 1)]
    store.write_failure(key, record(0)["config"], "its loss is not finite", diverged=True)
    store.write_failure(other, record(1)["config"], "Traceback ...")
    assert store.scan().diverged == {key}
    assert store.why_diverged(key) == "its loss is not finite" and not store.why_diverged(other)
    assert not Store(tmp_path, graphs={"debian": "b" * 64}).scan().diverged
    path = tmp_path / "failed" / key[0] / "0.json"
    path.write_text(path.read_text()[:50])
    assert not store.scan().diverged
    path.unlink()
    assert not store.scan().diverged


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_a_record_is_whole_whatever_became_of_its_predictions(tmp_path: Path, content: bytes | None) -> None:
    store = Store(tmp_path)
    done = record(0)
    key = done["config_hash"], 0
    if content is not None:
        store.write_predictions(key, content)
    store.write(done)
    scan = store.scan()
    assert scan.done == {key} and not scan.aside and store.records() == [done]
    with pytest.raises(UserError, match=f"predictions/{key[0]}/0.npz: (damaged file|.* were not saved)"):
        read_predictions(store.predictions_of(key))


def test_a_second_launch_is_refused_until_the_first_is_gone_even_if_killed(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom study.store.store import Store\n"
        f"with Store(Path({str(tmp_path)!r})).locked():\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="another launch"), Store(tmp_path).locked():
        pass
    process.kill()
    process.wait()
    with Store(tmp_path).locked():
        pass
