"""TEEN, against a hand-made case and a nearest-mean classifier of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from sklearn.metrics.pairwise import cosine_similarity

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.layers.prototypes import calibrated
from tests.hagmeta.methods.closed_form.test_closed_form import CPU, SESSION, lived

Small = Callable[..., RunConfig]


def test_calibration_by_hand() -> None:
    few = torch.tensor([[3.0, 4.0]])  # unit: (0.6, 0.8)
    base = torch.tensor([[2.0, 0.0], [0.0, 5.0]])
    # Cosines 0.6 and 0.8; with scale 5 ln 3 their softmax is that of 3 ln 3 and 4 ln 3: 1/4 and 3/4.
    near = np.array([1.0, 3.0]) / np.sqrt(10)
    expected = 0.8 * np.array([0.6, 0.8]) + 0.2 * near
    given = calibrated(few, base, 0.2, 5 * float(np.log(3)))
    np.testing.assert_allclose(given[0].numpy(), expected, rtol=1e-6)


def logits_and_reference(config: RunConfig, dataset: Dataset) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the logits of a session, the cosines to plain class means, and the number of known classes."""
    found = lived(config, dataset)
    means = np.stack([rows.mean(0) for rows in found.classes])
    return found.logits, cosine_similarity(found.query, means), found.many


def test_calibration_changes_later_classes_only(dataset: Dataset, small: Small) -> None:
    logits, cosines, known = logits_and_reference(small(method="teen", calibration=0.3), dataset)
    np.testing.assert_allclose(logits[:, :known], 16 * cosines[:, :known], atol=1e-4)
    apart = np.abs(logits[:, known:] - 16 * cosines[:, known:])
    assert (apart.max(0) > 1e-2).all()


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_without_rehearsal_prototypes_are_kept_after_calibration(dataset: Dataset, small: Small) -> None:
    config = small(method="teen", calibration=0.3, calibration_scale=2.0, rehearsal="none")
    context = prepare(config, [0], dataset, CPU)
    pack = pretrain(context)
    streams, scores = [context.scenarios[0].test], torch.empty(0)
    kept: tuple[torch.Tensor, ...] = ()
    everyone = torch.arange(context.graph.num_nodes).unsqueeze(0)
    supports = []
    for session in range(SESSION + 1):
        known = context.known.session(streams, session)
        shared = context.tasks.shared(known, streams[0].sizes(session))
        task = context.tasks.session(streams, session)._replace(class_statistics=kept)
        (scores,) = pack.run("logits", (shared,), known.view, (task,))
        kept = pack.run("class_statistics", (shared,), known.view, task)
        features = pack.run("embeddings", (shared,), known.view, everyone)[0].double().numpy()
        if session:
            supports.append(features[streams[0].support[session]].mean(1))
    base = unit(kept[0][0].double().numpy())
    expected = []
    for mean in unit(np.concatenate(supports)):  # each on the graph of its session
        weights = np.exp(2 * base @ mean)
        expected.append(0.7 * mean + 0.3 * unit(weights @ base))
    np.testing.assert_allclose(kept[1][0].numpy(), expected, atol=1e-5)
    queries = features[streams[0].queries[SESSION]]
    np.testing.assert_allclose(
        scores[0].numpy(), 16 * cosine_similarity(queries, np.concatenate([base, expected])), atol=1e-4
    )
