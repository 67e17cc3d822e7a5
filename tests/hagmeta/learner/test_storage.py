"""A saved learner goes on as if it had never been saved; anything else is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta import Dataset, Learner, UserError
from hagmeta.engine.engine import EngineState
from hagmeta.learner.storage import CHECKSUM, HEADER, OtherRevisionWarning, _checksum
from hagmeta.methods import METHODS
from hagmeta.testing import SMALL
from tests.hagmeta.kinds import one_of_each_kind
from tests.hagmeta.learner.playing import clear_graph
from tests.hagmeta.learner.test_learner import (
    NEW,
    labels_of,
    nodes_of,
    probabilities,
    reordered,
    without,
)

ROOT = Path(__file__).parents[3]
OFFERED = [name for name, method in METHODS.items() if not method.traits.oracle]
CHEAP: dict[str, Any] = {"method": "sgc-ncm", "features": "propagated", "device": "cpu"}


@pytest.fixture(scope="module")
def graph() -> Dataset:
    return clear_graph()


@pytest.fixture
def saved(graph: Dataset, tmp_path: Path) -> Path:
    learner = Learner(**CHEAP).fit(graph, labels_of(graph))
    return learner.learn(graph, {"4": nodes_of(graph, "4")[:3]}).save(tmp_path / "week1.hagmeta")


@pytest.mark.parametrize("method", one_of_each_kind(OFFERED))
def test_every_method_learns_a_changing_graph(graph: Dataset, tmp_path: Path, method: str) -> None:
    learner = Learner(method, device="cpu", **{**SMALL, "k_shot": 2, "n_way": 2}, seed=5)
    nodes = {name: nodes_of(graph, name) for name in NEW}
    learner.fit(graph, labels_of(graph)).learn(graph, {"4": nodes["4"][:1], "5": nodes["5"][:7]})
    loaded = Learner.load(learner.save(tmp_path / "saved"), device="cpu")
    assert loaded.classes_ == learner.classes_
    smaller = without(reordered(graph), [nodes["5"][0], *nodes_of(graph, "0")[:3]])
    for each in (learner, loaded):
        each.learn(smaller, {"6": nodes["6"][:3]})
    one, other = (probabilities(each, smaller, nodes["4"] + nodes["6"]) for each in (learner, loaded))
    assert (one == other).all()


def test_saving_twice_gives_the_same_file(graph: Dataset, saved: Path) -> None:
    again = Learner.load(saved, device="cpu").save(saved.with_name("again"))
    one, other = (dict(np.load(path)) for path in (saved, again))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[key], other[key]) for key in one)


def test_a_damaged_file_is_refused_in_one_line(saved: Path) -> None:
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        assert_refused(saved, "not a saved learner, or damaged")
    for place in rng.integers(200, len(whole) // 2, size=10):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        assert_refused(saved, "damaged")


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    with pytest.raises(UserError, match="foreign"):
        Learner.load(foreign)
    foreign.write_text("node,class\n")
    assert_refused(foreign, "not a saved learner, or damaged")
    with foreign.open("wb") as file:
        np.savez(file, edges=np.zeros((1, 2)))
    assert_refused(foreign, "not a saved learner; expected a file that `Learner.save` wrote")
    torch.save({"a": torch.zeros(1)}, foreign)
    assert_refused(foreign, "not a saved learner")
    with pytest.raises(UserError):
        Learner.load(tmp_path)


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Learner.load(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def change(path: Path, edit: Callable[[dict[str, Any]], Any], *, sealed: bool = True) -> None:
    """Change the header of a saved learner; if `sealed`, with the checksum of the changed file."""
    arrays = dict(np.load(path))
    header = json.loads(arrays[HEADER].tobytes())
    edit(header)
    arrays[HEADER] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    if sealed:
        arrays[CHECKSUM] = np.frombuffer(_checksum(arrays), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda h: h.update(version=2, hagmeta="9.9"),
            "saved in format 2 by hagmeta 9.9; .* Install a newer",
        ),
        (lambda h: h.update(method="lost"), "the method 'lost' is not loaded"),
        (lambda h: h["settings"].update(encoder="lost"), "the encoder 'lost' is not loaded"),
        (lambda h: h["settings"].update(played=True), "the setting played is called simulated_sessions"),
        (lambda h: h.update(kind="cake"), "not a saved learner; expected a file"),
    ],
)
def test_a_file_of_another_version_is_refused(saved: Path, edit: Any, message: str) -> None:
    change(saved, edit)
    assert_refused(saved, message)


def test_parameters_of_another_version_are_refused(graph: Dataset, tmp_path: Path) -> None:
    learner = Learner("proto-gcn", device="cpu", **{**SMALL, "k_shot": 2, "pretrain_epochs": 1})
    path = learner.fit(graph, labels_of(graph)).save(tmp_path / "learner")
    change(path, lambda header: header["settings"].update(hidden=9))
    assert_refused(path, "proto-gcn has other parameters now than when the learner was saved")


def test_an_edited_file_is_refused(saved: Path) -> None:
    whole = dict(np.load(saved))
    change(saved, lambda header: header["class_names"].reverse(), sealed=False)
    assert_refused(saved, "the saved learner is damaged, or was edited")
    for name in whole.keys() - {HEADER}:
        others = {key: value for key, value in whole.items() if key != name}
        for changed in (others, others | {name: whole[name][:-1]}, others | {name: whole[name][::-1]}):
            with saved.open("wb") as file:
                np.savez(file, **changed)
            assert_refused(saved, "the saved learner is damaged, or was edited")


def test_another_method_than_the_saved_one_is_refused(saved: Path) -> None:
    assert Learner.load(saved, device="cpu", method="sgc-ncm", encoder="gcn").classes_[-1] == "4"
    with pytest.raises(UserError, match="saved with the method 'sgc-ncm', but method is 'sgc-lda'"):
        Learner.load(saved, method="sgc-lda")
    with pytest.raises(UserError, match="saved with the encoder 'gcn', but encoder is 'gat'"):
        Learner.load(saved, encoder="gat")


def test_learner_that_cannot_be_loaded_is_not_saved(graph: Dataset, tmp_path: Path) -> None:
    learner = Learner(**CHEAP).fit(graph, labels_of(graph))
    assert learner._state is not None
    for broken in (
        replace(learner._state, temperature=float("nan")),
        replace(learner._state, engine=EngineState([{"encoder.first.bias": torch.tensor([torch.inf])}])),
        replace(learner._state, slots={10**5000: 0}),
        replace(learner._state, slots={(1, 2): 0}),
    ):
        learner._state = broken
        with pytest.raises(UserError, match=r"^the learner cannot be saved: .*\.$") as caught:
            learner.save(tmp_path / "learner")
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_encoder_that_a_method_decides_is_known(graph: Dataset, tmp_path: Path) -> None:
    path = (
        Learner("proto-gat", device="cpu", **{**SMALL, "k_shot": 2, "pretrain_epochs": 1, "episodes": 1})
        .fit(graph, labels_of(graph))
        .save(tmp_path / "learner")
    )
    assert Learner.load(path, encoder="gat", device="cpu").classes_
    with pytest.raises(UserError, match="saved with the encoder 'gat', but encoder is 'gcn'"):
        Learner.load(path, encoder="gcn", device="cpu")


def test_odd_names_of_features_are_saved(graph: Dataset, tmp_path: Path) -> None:
    names = ("\ud800", "a\0", "\n", *(f"w{column}" for column in range(3, graph.num_features)))
    other = replace(graph, feature_names=names)
    learner = Learner(**CHEAP).fit(other, labels_of(graph))
    loaded = Learner.load(learner.save(tmp_path / "learner"), device="cpu")
    assert (loaded.predict(other) == learner.predict(other)).all()


def test_another_revision_of_the_method_is_reported(saved: Path) -> None:
    change(saved, lambda header: header.update(revision=METHODS["sgc-ncm"].traits.revision + 1))
    with pytest.warns(OtherRevisionWarning, match="sgc-ncm has changed since the learner was saved"):
        Learner.load(saved, device="cpu")


def test_saving_can_fail_in_one_line(graph: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not fitted"):
        Learner(**CHEAP).save(tmp_path / "none")
    learner = Learner(**CHEAP).fit(graph, labels_of(graph))
    with pytest.raises(UserError, match=r"learner .* cannot be written: there is no folder"):
        learner.save(tmp_path / "nowhere" / "week1")
    pairs = replace(graph, node_ids=tuple((node, 0) for node in range(graph.num_nodes)))
    odd = Learner(**CHEAP).fit(pairs, {(int(n[1:]), 0): name for n, name in labels_of(graph).items()})
    with pytest.raises(UserError, match="is of type tuple; expected a string or a whole number"):
        odd.save(tmp_path / "odd")
    assert not list(tmp_path.iterdir())
