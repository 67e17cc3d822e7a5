"""Inputs of the first layer, propagated once per view instead of in every step.

A first layer computes A (X W) with the propagation A of a view and the inputs X. Both are fixed during a
phase, so A X can be computed once. A step then needs one dense product and no sparse one. Only rows of
visible nodes are kept. This needs dense inputs: for word counts, A X has many more entries than X.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hagmeta.packs.device import gpu_usable
from hagmeta.sparse.backend import Finish

if TYPE_CHECKING or gpu_usable():
    from hagmeta.sparse.triton import fixed as fixed_kernels

# A dense multiplication costs this share of a gathered value. With `inputs: svd`, Debian has 6.3 of them for
# each gathered value. An episode on a CPU then takes 0.94 (32 hidden units) to 1.23 times (128) as long.
DENSE_COST = 0.2
SCANNED = 512  # rows are padded to a multiple of this


def pays(steps: int, columns: int, inputs: int, gathered: int, dense: int) -> bool:
    """Return whether propagating once is cheaper than propagating in every step.

    Args:
        steps: Gradient steps on the view.
        columns: Columns that a step propagates forward, and again backward.
        inputs: Columns to propagate once.
        gathered: Values that a product gathers per column: the entries of its sparse matrices.
        dense: Multiplications per column that only the dense product needs.
    """
    saved = 2 * steps * columns * (gathered - DENSE_COST * dense)
    return saved > inputs * gathered


class FixedInputs:
    """The propagated inputs of a pack. Members of a pack with the same seed share one matrix.

    Args:
        rows: The nodes of the rows of each seed, each node at most once.
        matrices: The propagated inputs (rows, inputs) of each seed.
        owner: The seed of each member of the pack, as an index of `matrices`.
        nodes: The number of nodes of the whole graph.
    """

    def __init__(
        self, rows: Sequence[Tensor], matrices: Sequence[Tensor], owner: Sequence[int], nodes: int
    ) -> None:
        self._rows, self._matrices, self._owner, self.nodes = rows, matrices, owner, nodes

    # Members are multiplied one by one, so that no bit of a result depends on the pack.

    def spread(self, weights: Tensor) -> Tensor:
        """Multiply: (pack, inputs, width) to (nodes, pack, width); 0 for nodes without a row."""
        out = weights.new_zeros(len(weights), self.nodes, weights.shape[-1])
        for member, seed in enumerate(self._owner):
            out[member].index_copy_(0, self._rows[seed], self._matrices[seed] @ weights[member].contiguous())
        return out.transpose(0, 1)  # seeds come first in the memory of a CPU

    def collect(self, dense: Tensor) -> Tensor:
        """Multiply by the transposed matrix: (nodes, pack, width) to (pack, inputs, width)."""
        parts = [
            self._matrices[seed].mT @ dense[:, member].index_select(0, self._rows[seed])
            for member, seed in enumerate(self._owner)
        ]
        return torch.stack(parts)


class FixedInputsOnGpu(FixedInputs):
    """The same on a GPU, where all members are multiplied at once."""

    def __init__(
        self, rows: Sequence[Tensor], matrices: Sequence[Tensor], owner: Sequence[int], nodes: int
    ) -> None:
        padded = pad_sequence(list(rows), batch_first=True, padding_value=-1)
        every = F.pad(padded, (0, -padded.shape[1] % SCANNED), value=-1)  # (seeds, rows)
        inputs = matrices[0].shape[1]
        # Filled one by one: stacking them would need the memory twice.
        whole = matrices[0].new_zeros(*every.shape, inputs + -inputs % fixed_kernels.INNER)
        for place, matrix in zip(whole, matrices, strict=True):
            place[: len(matrix), :inputs] = matrix
        places = torch.tensor(list(owner), device=whole.device)
        self._inputs = fixed_kernels.Inputs(whole, every, places, inputs, nodes)

    def chosen(self, needed: Tensor) -> fixed_kernels.Chosen:
        """Return the rows of each member for nodes where `needed` (pack, nodes) is not 0."""
        rows = self._inputs.rows[self._inputs.places]  # (pack, rows)
        wanted = (needed.gather(1, rows.clamp(min=0)) != 0) & (rows >= 0)
        order = _cumulative(wanted)
        listed = torch.zeros_like(rows)
        places = torch.where(wanted, order - 1, rows.shape[1] - 1)  # unwanted rows go where none is read
        listed.scatter_(1, places, torch.arange(rows.shape[1], device=rows.device).expand_as(rows))
        return fixed_kernels.Chosen(listed, order[:, -1].contiguous())

    def spread(
        self,
        weights: Tensor,
        finish: Finish | None = None,
        chosen: fixed_kernels.Chosen | None = None,
    ) -> Tensor:
        """Multiply, and apply the operations of a hidden layer after it. Other than `chosen` rows stay 0."""
        return fixed_kernels.spread(self._inputs, weights, finish, chosen)

    def collect(self, dense: Tensor) -> Tensor:
        return fixed_kernels.collect(self._inputs, dense)[0]

    def collect_hidden(
        self, grad: Tensor, output: Tensor, chosen: fixed_kernels.Chosen | None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of weights (pack, inputs, width) and biases (pack, width)."""
        return fixed_kernels.collect(self._inputs, grad, output, chosen)


def _cumulative(wanted: Tensor) -> Tensor:
    """Return the cumulative sums of (pack, rows). In two levels they are much faster than in one."""
    inner = wanted.unflatten(1, (-1, SCANNED)).cumsum(-1)
    before = inner[..., -1].cumsum(1) - inner[..., -1]
    return (inner + before.unsqueeze(-1)).flatten(1)
