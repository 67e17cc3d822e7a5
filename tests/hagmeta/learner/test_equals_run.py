"""A learner that plays a stream of the study gives the answers of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagmeta import UserError
from hagmeta.engine.run import pretrain, train_and_evaluate
from hagmeta.learner import Learner
from hagmeta.methods import METHODS
from hagmeta.scenarios.evaluator import calibration_error
from tests.hagmeta.kinds import one_of_each_kind
from tests.hagmeta.learner.playing import Look, played, shuffled, small_graph, study, whole

OFFERED = [name for name, method in METHODS.items() if not method.traits.oracle]
FAMILIAR = ("posterior-means", "sgc-lda", "proto-gcn", "hag-meta")
# Their default depends on the number of nodes: of the whole graph for a run, of that of `fit` for a learner.
FEW_COLUMNS = {"random_features": 10}


@pytest.mark.parametrize("method", one_of_each_kind(OFFERED, kinds=("posterior-means",)))
def test_arriving_and_reordered_nodes(method: str) -> None:
    assert_equal_to_run(method, shuffled, visibility="arriving")


@pytest.mark.parametrize("method", one_of_each_kind(FAMILIAR, kinds=("hag-meta",)))
def test_one_node_table(method: str) -> None:
    assert_equal_to_run(method, whole, visibility="whole")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("proto-gcn", {"inputs": "tf-idf", "encoder": "gat"}),
        pytest.param("sgc-lda", {"smoothing": 0.5, "logit_adjustment": 1.0}, marks=pytest.mark.slow),
        pytest.param("posterior-means", {"refitted": False, "prior": "estimated"}, marks=pytest.mark.slow),
        pytest.param("icarl", {"memory": 5, "k_shot": 1, "query_shot": 2}, marks=pytest.mark.slow),
        ("frozen", {"encoder": "pyg:torch_geometric.nn.models:GraphSAGE"}),  # without packs
    ],
)
def test_other_settings(method: str, settings: dict[str, Any]) -> None:
    assert_equal_to_run(method, shuffled, visibility="arriving", **settings)


def assert_equal_to_run(method: str, look: Look, **settings: Any) -> None:
    dataset = small_graph()
    context, learner = study(method, dataset, **FEW_COLUMNS, **settings)
    (run,), _ = train_and_evaluate(context, pretrain(context))
    found = played(context, dataset, learner, look)
    names = np.array(dataset.class_names)
    for expected, answers in zip(run.answers, found, strict=True):
        assert (names[expected] == answers).all()
    (scenario,) = context.scenarios
    asked = scenario.test.queries[-1]
    graph = look(dataset, context.protocol.visible(scenario, scenario.test, scenario.test.sessions))
    learner._fitted.temperature = 1.0  # a run does not calibrate
    confidence = learner.predict_proba(graph, asked).groupby("node")["probability"].max()
    right = found[-1] == names[scenario.labels[asked]]
    expected_error = run.diagnostics()["calibration_error"][-1]
    error = calibration_error(confidence[asked].to_numpy(), right)
    assert error == pytest.approx(expected_error, abs=6e-5)  # rounded to four digits


def test_oracles_are_refused() -> None:
    with pytest.raises(UserError, match="joint is an oracle: it reads labels that a learner is not given"):
        Learner("joint")
