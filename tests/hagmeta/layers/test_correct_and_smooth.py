from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.func import vmap
from torch_geometric.nn.models import CorrectAndSmooth

from hagmeta.layers.scores.correct_and_smooth import ROUNDS, corrected_scores
from tests.hagmeta.layers.test_smoothing import graph_of, random_pack


def corrected(pack: tuple[np.ndarray, ...], share: float) -> torch.Tensor:
    edges, visible, *rest = pack
    graph = graph_of(edges, visible.shape[1])

    def one(*seed: torch.Tensor) -> torch.Tensor:
        return corrected_scores(graph, *seed, share)  # type: ignore[arg-type]

    return vmap(one)(graph.view(visible), *map(torch.from_numpy, rest))


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_scores_are_those_of_pyg_on_the_visible_graph_with_self_loops(share: float) -> None:
    edges, visible, scores, labelled, position = pack = random_pack()
    found = corrected(pack, share)
    loops = graph_of(edges, 30).loops.tocoo()
    for seed in range(3):
        seen = visible[seed]
        kept = seen[loops.row] & seen[loops.col]
        edge_index = torch.from_numpy(np.stack([loops.row[kept], loops.col[kept]])).long()
        first = torch.from_numpy(scores[seed] * seen[:, None])
        true, given = torch.from_numpy(position[seed]), torch.from_numpy(labelled[seed])
        post = CorrectAndSmooth(ROUNDS, share, ROUNDS, share)
        args = true, given, edge_index
        expected = post.smooth(post.correct(first, *args), *args)
        torch.testing.assert_close(found[seed][seen], expected[seen], rtol=0, atol=1e-5)


def test_a_label_that_comes_twice_counts_once() -> None:
    edges, visible, scores, labelled, position = random_pack()
    twice = [np.concatenate([part, part[:, :1]], axis=1) for part in (labelled, position)]
    one, other = (corrected((edges, visible, scores, *rest), 0.6) for rest in ((labelled, position), twice))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
