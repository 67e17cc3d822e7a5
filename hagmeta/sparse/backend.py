"""What a backend computes: products with one sparse matrix, for all seeds of a pack at once.

Numba compiles them for a CPU (`numba.backend`), Triton for a GPU (`triton.backend`). Plain mode has one seed
and uses the operations of torch instead (`plain`), so that it can check both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor


class Finish(NamedTuple):
    """The operations of a hidden layer after the sum: bias, ReLU and dropout."""

    bias: Tensor  # (pack, width)
    key: Tensor | None  # (pack,); without it, nothing is dropped
    threshold: Tensor  # (pack,) from 0 to 255; values with smaller random bytes are dropped
    everywhere: bool = True  # also for rows of weight 0, whose sum is 0


class Backend(Protocol):
    """The rows of a constant sparse matrix on a device.

    Values (rows, width) of a pack have the axis of seeds at ``seed_axis``. Weights (pack, rows) and the
    numbers (pack, chosen) of rows have it first.
    """

    seed_axis: int
    leaves_out_rows: bool  # products compute only the rows that are needed

    def product(
        self,
        dense: Tensor,
        left: Tensor | None = None,
        right: Tensor | None = None,
        finish: Finish | None = None,
    ) -> Tensor:
        """Return diag(left) @ matrix @ diag(right) @ dense. Columns of weight 0 are not read.

        A backend that leaves out no rows gets the same weights on both sides, or none.
        """

    def product_skipping_zeros(self, dense: Tensor, needed: Tensor | None = None) -> Tensor:
        """Return matrix @ dense where many rows of ``dense`` are 0, or are not ``needed`` (pack, rows)."""

    def row_maximum(self, values: Tensor) -> Tensor:
        """Return the maximum of ``values`` over each row instead of the sum."""

    def at_rows(self, scale: Tensor, dense: Tensor, chosen: Tensor) -> Tensor:
        """Return ``chosen`` rows of diag(scale) @ matrix @ diag(scale) @ dense."""

    def from_rows(self, scale: Tensor, part: Tensor, chosen: Tensor) -> Tensor:
        """Return the transposed product of ``at_rows``."""

    def attends(self, width: int, heads: int) -> bool:
        """Return whether ``attention`` supports this shape."""

    def attention(
        self, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return graph attention over visible neighbours, and its normalisers (nodes, heads).

        The score of an edge is the sum of ``source`` and ``target`` (nodes, heads) at its two ends.
        """

    def attention_gradient(
        self, visible: Tensor, known: Sequence[Tensor], grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of ``mapped``, ``source`` and ``target``.

        ``known`` are these three and the two results of ``attention``.
        """
