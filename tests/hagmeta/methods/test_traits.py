"""What methods say about themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

import pytest

from hagmeta.common.errors import UserError
from hagmeta.common.records.record_schema import FORMAT
from hagmeta.common.traits import COSTS, ROLES, MethodTraits
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.methods import METHODS, Method, SessionLearning
from hagmeta.methods.base import HOOKS
from hagmeta.methods.bounds import Joint
from hagmeta.methods.paper.hag_meta import HagMeta
from hagmeta.methods.posterior_means import PosteriorMeans
from hagmeta.testing import records_of

Tiny = Callable[..., RunConfig]


def traits_of(method: str, **settings: Any) -> MethodTraits:
    config = resolve(RunConfig.of(method=method, **settings))
    return METHODS[method].traits_of(config)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_declares_its_own_traits(name: str) -> None:
    method = METHODS[name]
    assert "traits" in vars(method)
    title, others = method.traits.title, [m.traits.title for n, m in METHODS.items() if n != name]
    assert title != method.__name__ or title in (
        "Frozen",
        "Geometer",
        "GraphAny",
        "Joint",
        "LaplacianShot",
    )  # not filled in for it
    assert title not in others and method.traits.citation.endswith(".")
    traits = traits_of(name)
    assert traits.role in ROLES and traits.cost in COSTS
    assert replace(traits, cost="", transductive="") == replace(method.traits, transductive="")


def test_a_configuration_can_be_an_oracle_where_its_method_is_none() -> None:
    assert not traits_of("hag-meta").oracle
    assert traits_of("hag-meta", nla_weights="oracle").oracle
    assert traits_of("joint").oracle


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ("shift its class means", "use their neighbours' predictions", "train its encoder")),
        ({"propagation_weight": 0.0, "finetune_steps": 0}, ("shift its class means",)),
        ({"unlabelled_weight": 0.0, "features": "propagated"}, ("use their neighbours' predictions",)),
        ({"unlabelled_weight": 0.0, "propagation_weight": 0.0}, ("train its encoder",)),
        # Steps that an idle setting would allow are not taken.
        ({"unlabelled_weight": 0.0, "propagation_weight": 0.0, "features": "propagated"}, ()),
    ],
)
def test_ours_is_transductive_where_its_settings_make_it_so(
    settings: dict[str, Any], told: tuple[str, ...]
) -> None:
    clause = traits_of("posterior-means", **settings).transductive
    *others, last = told or ("",)
    done = f"{', '.join(others)} and {last}" if others else last
    assert clause == (f"visible unlabelled nodes, including queries, {done}" if told else "")
    assert not traits_of("sgc-lda").transductive


def test_cost_follows_training_and_passes() -> None:
    assert traits_of("hag-meta").cost == "heavy"  # the encoder's pass, and NLA's
    assert traits_of("hag-meta", nla=False).cost == "medium"
    assert traits_of("hag-meta", gpil=False).cost == traits_of("sgc-lda").cost == "light"
    assert traits_of("meta-gnn").cost == "heavy" and traits_of("cec").cost == "medium"


def test_a_subclass_without_traits_has_its_own_title_and_its_parents_revision() -> None:
    class Mine(PosteriorMeans):
        pass

    assert (Mine.traits.title, Mine.traits.citation, Mine.traits.role) == ("Mine", "", "baseline")
    assert Mine.traits.revision == PosteriorMeans.traits.revision and Mine.traits.closed_form
    assert PosteriorMeans.traits.title == "Posterior means"

    class MyJoint(Joint):
        pass

    assert MyJoint.traits.oracle  # what it is allowed to know does not go with the title


def test_a_cost_that_is_declared_is_kept() -> None:
    class Mine(HagMeta):
        traits = MethodTraits(title="Mine", cost="light")

    assert Mine.traits_of(resolve(RunConfig.of())).cost == "light"


def test_wrong_traits_are_refused_with_the_valid_ones() -> None:
    with pytest.raises(UserError, match=r"unknown role of a method 'rival'.* Valid: baseline, bound, "):
        MethodTraits(title="Mine", role="rival")
    with pytest.raises(UserError, match="unknown cost of a method 'cheap'"):
        MethodTraits(title="Mine", cost="cheap")


def test_replay_without_a_choice_of_nodes_is_refused_at_once() -> None:
    with pytest.raises(UserError, match="Mine learns by replay, so it must define describe and exemplars"):
        type("Mine", (HagMeta,), {"session_learning": SessionLearning.REPLAY})


def test_a_hook_with_other_parameters_is_refused() -> None:
    expected = r"^Mine.consolidate has the parameters \(self, weights\); expected \(self, gradients\), "
    with pytest.raises(UserError, match=expected):
        type("Mine", (HagMeta,), {"consolidate": lambda self, weights: {}})
    with pytest.raises(UserError, match=r"\(self, settings\); expected \(cls, settings\)"):
        type("Mine", (HagMeta,), {"own_steps": lambda self, settings: {}})


def test_a_method_has_the_hooks_that_it_or_a_base_defines() -> None:
    assert METHODS["ewc"].has("consolidate") and METHODS["ewc"].has("add_classes")
    assert METHODS["icarl"].has("exemplars") and not HagMeta.has("exemplars")
    assert not any(Method.has(name) for name in HOOKS)


def test_a_record_has_the_traits_of_its_configuration(tiny_graph: Dataset, tiny: Tiny) -> None:
    config = tiny(method="hag-meta", nla_weights="oracle")
    (record,) = records_of(config, [0], tiny_graph)
    assert record["format"] == FORMAT and "traits" not in record["config"]
    assert record["traits"] == asdict(HagMeta.traits_of(resolve(config)))
    assert record["traits"].keys() == {field.name for field in fields(MethodTraits)}
    assert record["traits"]["oracle"] is record["oracle"] is True


def test_a_hook_that_is_never_called_is_refused() -> None:
    own = {"session_learning": SessionLearning.NONE, "after_session": lambda self, shared, view, task: {}}
    with pytest.raises(UserError, match=r"Mine\.after_session would never be called"):
        type("Mine", (HagMeta,), own)
