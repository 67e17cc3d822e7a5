"""Which labels are learnt from, and which again: those that the settings forbid change nothing, to the bit.

Each check is also run on a planted leak, which it must find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.known.memory import Memory
from hagmeta.engine.known.tasks import TaskMaker, repeated_to_equal_shots
from hagmeta.engine.run import prepare
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.pretrain import pretrained_encoders
from hagmeta.methods import METHODS, SessionLearning
from hagmeta.packs.pack import Pack, Parameters
from hagmeta.scenarios.scenario import TEST, TRAIN, Scenario, Stream
from hagmeta.scenarios.strict import Strict
from hagmeta.testing import Answers, check_packs, same_answers, same_parameters, trained
from tests.hagmeta.kinds import KINDS, one_of_each_kind
from tests.hagmeta.scenarios.leaks.replayed import (
    SEEDS,
    Life,
    memories_made,
    readable_again,
    with_own_labels,
)

CPU = torch.device("cpu")
Small = Tiny = Callable[..., RunConfig]


# Pre-training.


def with_garbage_at(context: Context, forbidden: Callable[[Scenario], np.ndarray]) -> Context:
    """The same scenarios, with other labels at forbidden nodes: those of any class, or of forbidden ones."""
    rng = np.random.default_rng(0)
    scenarios = []
    for scenario in context.scenarios:
        mask, labels = forbidden(scenario), scenario.labels.copy()
        others = np.unique(labels[mask])
        labels[mask] = rng.choice(others, mask.sum())
        assert (labels != scenario.labels).sum() > 20
        scenarios.append(replace(scenario, labels=labels))
    return replace(context, scenarios=scenarios)


def same_encoders(one: Context, other: Context) -> bool:
    states: list[list[Parameters]] = [pretrained_encoders(each) for each in (one, other)]
    pairs = zip(*states, strict=True)
    return all(torch.equal(value, right[name]) for left, right in pairs for name, value in left.items())


def of_novel_train(scenario: Scenario) -> np.ndarray:
    return np.isin(scenario.labels, scenario.split.novel_train)


def held_out_or_unseen(scenario: Scenario) -> np.ndarray:
    return ~np.isin(scenario.labels, scenario.trained)


def asked(scenario: Scenario) -> np.ndarray:
    return scenario.split.role == TEST


def test_pretraining_on_base_ignores_the_labels_of_all_other_classes(dataset: Dataset, small: Small) -> None:
    context = prepare(small(pretrain_epochs=3), SEEDS, dataset, CPU)
    assert same_encoders(context, with_garbage_at(context, of_novel_train))
    # The same check must fail where those labels may be read, or it proves nothing.
    known = prepare(small(pretrain_epochs=3, pretrain_on="known"), SEEDS, dataset, CPU)
    assert not same_encoders(known, with_garbage_at(known, of_novel_train))
    assert not same_encoders(context, known)


@pytest.mark.parametrize("forbidden", [held_out_or_unseen, asked])
def test_pretraining_on_known_classes_ignores_held_out_and_novel_test_classes_and_test_nodes(
    dataset: Dataset, small: Small, forbidden: Callable[[Scenario], np.ndarray]
) -> None:
    settings = small(pretrain_epochs=3, pretrain_on="known", val_classes=2)
    context = prepare(settings, SEEDS, dataset, CPU)
    for scenario in context.scenarios:
        classes = context.protocol.pretrain_classes(scenario)
        assert set(classes) == set(scenario.split.base) | set(scenario.meta_classes)
    assert same_encoders(context, with_garbage_at(context, forbidden))


# Supervised training instead of GPIL.


def same_training(one: Context, other: Context) -> bool:
    """Whether pre-training and training leave the same parameters; they are validated once, at the end."""
    return same_parameters(trained(one), trained(other))


def test_supervised_training_reads_novel_train_labels_and_no_held_out_novel_test_or_test_ones(
    dataset: Dataset, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"gpil": False, "instead_of_gpil": "supervised", "val_classes": 2}
    # Held-out nodes are visible, so that their labels would make a difference.
    config = small(**settings, visibility="whole", pretrain_epochs=1, episodes=3, validate_every=3)
    context = prepare(config, SEEDS, dataset, CPU)
    held_out, tested = (with_garbage_at(context, forbidden) for forbidden in (held_out_or_unseen, asked))
    assert same_training(context, held_out) and same_training(context, tested)
    # Those that it is there to learn from do matter, which without any training none of them does.
    assert not same_training(context, with_garbage_at(context, of_novel_train))
    nothing = prepare(replace(config, instead_of_gpil="nothing"), SEEDS, dataset, CPU)
    assert same_training(nothing, with_garbage_at(nothing, of_novel_train))
    # The check must find batches of held-out classes, and of test nodes.
    with monkeypatch.context() as leak:
        leak.setattr(Scenario, "trained", property(lambda self: self.test.known))
        assert not same_training(context, held_out)
    monkeypatch.setattr(Strict, "labelled", lambda self, w, classes: w.nodes_of(classes, TEST))
    assert not same_training(context, tested)


# Rehearsal.

LIMITED = [n for n, method in METHODS.items() if not method.traits.oracle]
QUICK: dict[str, Any] = {"pretrain_epochs": 1, "episodes": 1, "finetune_steps": 2, "inner_steps": 1}
Outcome = tuple[Parameters, Answers]


def lived(life: Life, monkeypatch: pytest.MonkeyPatch, *, spoil: bool = False) -> Outcome:
    """Parameters and answers; ``spoil`` replaces after each session what may not be read again."""
    context, memories = with_own_labels(life.context), memories_made(monkeypatch)

    def after(session: int) -> None:
        if spoil:
            replace_what_is_gone(context, session, memories[-1] if memories else None)

    answers = life.sessions(context, after)
    return life.pack.snapshot(), answers


def replace_what_is_gone(context: Context, session: int, memory: Memory | None) -> None:
    """Garbage for every label and support of classes met by now, but at the nodes that may be read again."""
    rng = np.random.default_rng(session)
    for seed, scenario in enumerate(context.scenarios):
        stream = scenario.test
        again = readable_again(stream, memory, seed, session)
        most = context.protocol.most_rehearsed
        assert most is not None and len(again) <= most * len(stream.met(session))
        gone = np.setdiff1d(np.flatnonzero(stream.arrival <= session), again)
        assert len(gone) > 0.4 * len(scenario.labels)
        scenario.labels[gone] = rng.integers(scenario.num_classes, size=len(gone))
        for support in stream.support[: session + 1]:
            support[:] = rng.choice(gone, support.shape)


def same(one: Outcome, other: Outcome) -> bool:
    parameters = all(torch.equal(value, other[0][name]) for name, value in one[0].items())
    return parameters and same_answers(one[1], other[1])


def leaking_memory(self: Memory) -> list[np.ndarray]:
    """A memory that looks its nodes up anew, by labels that it may no longer read."""
    found = []
    for scenario, stream, kept in zip(self.context.scenarios, self.streams, self.kept, strict=True):
        nodes = scenario.train_nodes_met(stream, len(kept) - 1)
        found += [np.concatenate([nodes[scenario.labels[nodes] == c][:2] for c in stream.met(len(kept) - 1)])]
    return found


def all_supports(self: Stream, session: int) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(self.support[: max(session, 1)]), self.support[session]


def first_supports(self: Stream, session: int) -> tuple[np.ndarray, np.ndarray]:
    """As if the classes of every session had the supports of session 1."""
    earlier, own = all_supports(self, session)
    return earlier, self.support[1] if session else own


def plant_a_leak(monkeypatch: pytest.MonkeyPatch, method: str, rehearsal: str) -> None:
    """The protocol answers with all train nodes of known classes, whatever may be read again."""
    if rehearsal == "none":
        monkeypatch.setattr(Stream, "supports", all_supports)
    monkeypatch.setattr(Strict, "known_in_session", lambda self, w, s, session: w.nodes_of(s.known, TRAIN))
    monkeypatch.setattr(TaskMaker, "keeps_prototypes", False)
    if METHODS[method].session_learning is SessionLearning.REPLAY:
        monkeypatch.setattr(Strict, "most_rehearsed", 2)
        monkeypatch.setattr(Memory, "nodes", leaking_memory)
    if METHODS[method].session_learning is SessionLearning.SUPPORTS:
        monkeypatch.setattr(Stream, "supports", first_supports)


@pytest.mark.parametrize(
    ("method", "rehearsal"),
    [
        pytest.param(*each.values, rehearsal, marks=each.marks)
        for rehearsal, quick in (("none", KINDS), ("2", ("hag-meta",)))
        for each in one_of_each_kind(LIMITED, kinds=quick)
    ],
)
def test_labels_that_may_not_be_read_again_change_nothing_after_their_session(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str, rehearsal: str
) -> None:
    # With 0.99, the same class gets nearly all nodes of a random graph.
    own: dict[str, Any] = {"spreading": 0.5} if method == "label-spreading" else {}
    life = Life(tiny(method=method, rehearsal=rehearsal, **QUICK, **own), tiny_graph)
    assert same(lived(life, monkeypatch), lived(life, monkeypatch, spoil=True))
    # The check must find a leak that is there.
    plant_a_leak(monkeypatch, method, "none" if METHODS[method].rereads_from else rehearsal)
    assert not same(lived(life, monkeypatch), lived(life, monkeypatch, spoil=True))


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_what_is_rehearsed_is_drawn_once_for_a_class_and_changes_no_other_draw(
    dataset: Dataset, small: Small, most: int
) -> None:
    limited, free = (prepare(small(rehearsal=r), SEEDS, dataset, CPU).scenarios for r in (most, "all"))
    wide = prepare(small(rehearsal=1000), SEEDS, dataset, CPU).scenarios
    for scenario, other, wider in zip(limited, free, wide, strict=True):
        for stream, as_ever in ((scenario.test, other.test), (scenario.validation, other.validation)):
            assert np.array_equal(stream.support[1:], as_ever.support[1:]) and as_ever.rehearsed is None
            pairs = zip(stream.queries, as_ever.queries, strict=True)
            assert all(np.array_equal(*pair) for pair in pairs)
            assert stream.rehearsed is not None
            for c, nodes in zip(stream.known, stream.rehearsed.known, strict=True):
                everything = scenario.nodes_of(np.array([c]), TRAIN)
                assert len(set(nodes)) == len(nodes) == min(most, len(everything))
                assert set(nodes) <= set(everything)
            assert np.shape(stream.rehearsed.support[1:]) == (2, 2, min(most, 3))
            rows = zip(*map(np.concatenate, (stream.support, stream.rehearsed.support)), strict=True)
            assert all(set(again) <= set(support) for support, again in rows)
        # A base class has the same ones in both streams, and more of them where more are allowed.
        again, validated = scenario.test.rehearsed, scenario.validation.rehearsed
        assert again and validated and wider.test.rehearsed
        for one, same, more in zip(again.known, validated.known, wider.test.rehearsed.known, strict=False):
            assert np.array_equal(one, same) and np.array_equal(one, more[: len(one)])


def test_a_session_s_own_supports_are_all_there_whatever_is_rehearsed(dataset: Dataset, small: Small) -> None:
    for rehearsal, shots in ((1, 1), (2, 2), ("none", 0), ("all", 3)):
        (scenario,) = prepare(small(rehearsal=rehearsal), [0], dataset, CPU).scenarios
        stream = scenario.test
        earlier, own = stream.supports(2)
        assert np.array_equal(own, stream.support[2]) and earlier.shape[0] == (2 if shots else 0)
        assert not shots or earlier.shape[1] == shots
        assert all(len(part) == 0 for part in stream.supports(0))


def test_supports_of_unequal_numbers_are_repeated_without_a_change_of_means() -> None:
    earlier, own = np.array([[10, 20]]), np.array([[1, 2, 6], [4, 4, 4]])
    rows = repeated_to_equal_shots(earlier, own)
    assert rows.shape == (3, 6) and rows.mean(1).tolist() == [15, 3, 4]
    assert repeated_to_equal_shots(earlier[:0], own) is not own and np.array_equal(
        repeated_to_equal_shots(earlier[:0], own), own
    )


@pytest.mark.parametrize("method", ["hag-meta", "icarl"])
def test_prototypes_are_kept_as_they_were_when_their_session_ended(
    dataset: Dataset, small: Small, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    life = Life(small(method=method, rehearsal="none", **QUICK), dataset)
    kept: list[torch.Tensor] = []
    ordinary = Pack.run

    def watched(self: Pack, step: str, *arguments: Any) -> Any:
        result = ordinary(self, step, *arguments)
        if step == "class_statistics":
            (prototypes,) = result
            kept.append(prototypes)
        return result

    monkeypatch.setattr(Pack, "run", watched)
    lived(life, monkeypatch)
    assert [prototypes.shape for prototypes in kept] == [(2, 9 + 2 * session, 8) for session in range(3)]
    for before, after in pairwise(kept):
        assert torch.equal(after[:, : before.shape[1]], before)
        assert not (after[:, before.shape[1] :] == 0).all()


@pytest.mark.parametrize(
    ("method", "rehearsal"),
    [
        ("icarl", "none"),
        *(pytest.param(method, "2", marks=pytest.mark.slow) for method in ("hag-meta", "icarl", "fecam")),
        *(pytest.param(method, "none", marks=pytest.mark.slow) for method in ("hag-meta", "fecam")),
    ],
)
def test_fewer_labels_in_packs(method: str, rehearsal: str) -> None:
    task = {"n_way": 1, "classes": (2, 3, 4), "val_classes": 2, "pretrain_on": "known"}
    check_packs(method, rehearsal=rehearsal, **task)


@pytest.mark.parametrize("rehearsal", ["1", "none"])
def test_one_shot_runs_with_few_labels(dataset: Dataset, small: Small, rehearsal: str) -> None:
    # With no label to read again and none to hold out there is nothing to learn from: no step is taken.
    life_config = small(method="proto-gcn", k_shot=1, rehearsal=rehearsal, **QUICK)
    life = Life(life_config, dataset)
    streams = [scenario.test for scenario in life.context.scenarios]
    evaluate_streams(life.context, life.pack, streams, "test")
    unchanged = all(torch.equal(value, life.start[name]) for name, value in life.pack.parameters.items())
    assert unchanged == (rehearsal == "none")


def test_rehearsal_is_words_or_a_number_in_any_spelling() -> None:
    assert RunConfig.of().rehearsal == "all" and RunConfig.of().rehearsed is None
    for given in (5, "5", 5.0, " 5 "):
        assert RunConfig.of({"rehearsal": given}).rehearsal == "5"
    assert RunConfig.of(rehearsal="5").rehearsed == 5 and RunConfig.of(rehearsal="None").rehearsed == 0
    assert RunConfig.of(rehearsal=5).hash() == RunConfig.of(rehearsal="5").hash() != RunConfig.of().hash()  # type: ignore[arg-type]
    for wrong in (0, -1, 2.5, True, None, "", "some", [5]):
        with pytest.raises(UserError) as caught:
            RunConfig.of({"rehearsal": wrong})
        valid = "all, none or a whole number of at least 1 and at most 1000000000"
        expected = f"rehearsal is {wrong!r}; expected {valid}."
        assert str(caught.value) == expected


@pytest.mark.parametrize("settings", [{"protocol": "released"}, {"method": "joint"}])
def test_rehearsal_does_not_apply_to_released_nor_to_an_oracle(settings: dict[str, Any]) -> None:
    plain, limited = RunConfig.of(**settings), RunConfig.of(**settings, rehearsal="none")
    assert not limited.applies("rehearsal")
    assert resolve(limited) == resolve(plain) and resolve(limited).hash() == resolve(plain).hash()
