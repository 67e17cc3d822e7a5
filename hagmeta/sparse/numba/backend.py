"""Sparse products on a CPU, compiled by Numba. Seeds come first."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hagmeta.sparse.backend import Finish
from hagmeta.sparse.numba import attention, kernels

LEAST_SHARE = 100_000  # multiplications; below, starting a thread takes longer than it saves


class NumbaBackend:
    """The rows of a sparse matrix on a CPU."""

    seed_axis, leaves_out_rows = 0, True

    def __init__(self, matrix: scipy.sparse.csr_matrix) -> None:
        matrix.sort_indices()
        weighted = bool((matrix.data != 1).any())
        self.offsets = matrix.indptr.astype(np.int32)  # (rows + 1,)
        self.columns = matrix.indices.astype(np.int32)  # (entries,)
        self.values = matrix.data.astype(np.float32) if weighted else np.empty(0, np.float32)
        # One more, because the last column found may have the weight 0.
        self.longest = int(np.diff(self.offsets).max(initial=0)) + 1  # entries of a row

    def product(
        self,
        dense: Tensor,
        left: Tensor | None = None,
        right: Tensor | None = None,
        finish: Finish | None = None,
    ) -> Tensor:
        """Return diag(left) @ matrix @ diag(right) @ dense. Rows of weight 0 are 0."""
        count, (pack, columns, width) = len(self.offsets) - 1, dense.shape
        out = dense.new_zeros(pack, count, width)
        arguments = (
            *(self.offsets, self.columns, self.values, self.longest),
            *_strided(dense),
            *_strided(out),
            _weights(left, count, dense),
            _weights(right, columns, dense),
            *_finishing(finish, dense),
            pack,
            width,
        )
        parts = pairwise(_bounds(self.offsets, pack * width))
        _in_threads([partial(kernels.multiply, *part, *arguments) for part in parts])
        return out

    def product_skipping_zeros(self, dense: Tensor, needed: Tensor | None = None) -> Tensor:
        live = dense.new_ones(dense.shape[:2]) if needed is None else needed.to(dense.dtype, copy=True)
        live = live.contiguous()
        kernels.keep_live(*_strided(dense), dense.shape[-1], live.numpy())
        return self.product(dense, right=live)

    def row_maximum(self, values: Tensor) -> Tensor:
        columns, offsets = (torch.from_numpy(each) for each in (self.columns, self.offsets))
        gathered = values.movedim(0, 1)[columns]  # (entries, pack, width)
        largest = torch.segment_reduce(gathered, "max", offsets=offsets.long(), axis=0)
        return largest.movedim(1, 0)

    def at_rows(self, scale: Tensor, dense: Tensor, chosen: Tensor) -> Tensor:
        out = dense.new_zeros(*chosen.shape, dense.shape[-1])
        weights = _array(scale.to(dense.dtype))
        kernels.gather(self.offsets, self.columns, *_strided(dense), out.numpy(), weights, _array(chosen))
        return out

    def from_rows(self, scale: Tensor, part: Tensor, chosen: Tensor) -> Tensor:
        out = part.new_zeros(*scale.shape, part.shape[-1])
        weights = _array(scale.to(part.dtype))
        kernels.scatter(self.offsets, self.columns, *_strided(part), out.numpy(), weights, _array(chosen))
        return out

    def neighbourhood(self, scale: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Mark the visible neighbours of the ``chosen`` rows (pack, rows), and in turn their neighbours."""
        near, far = scale.new_zeros(scale.shape), scale.new_zeros(scale.shape)
        kernels.mark(self.offsets, self.columns, _array(scale), _array(chosen), near.numpy(), far.numpy())
        return near, far

    @staticmethod
    def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``grad`` (pack, rows, width) where ``output`` is positive, its live rows, and their sum.

        Live rows have a number other than 0. The other rows are not even set: products skip them.
        """
        output = output.contiguous()
        back, live = torch.empty_like(output), output.new_empty(output.shape[:2])
        summed = output.new_empty(output.shape[0], output.shape[2])
        kernels.mask(*_strided(grad), _array(output), back.numpy(), live.numpy(), summed.numpy())
        return back, live, summed

    def attends(self, width: int, heads: int) -> bool:
        return True

    def attention(
        self, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        out, normaliser = mapped.new_zeros(mapped.shape), target.new_zeros(target.shape)
        self._for_each_seed(attention.attend, visible, mapped, source, target, out, normaliser)
        return out, normaliser

    def attention_gradient(
        self, visible: Tensor, known: Sequence[Tensor], grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        mapped, source, target, out, normaliser = known
        inner = (grad * out).unflatten(-1, (target.shape[-1], -1)).sum(-1)
        back = [tensor.new_zeros(tensor.shape) for tensor in (mapped, source, target)]
        given = (visible, mapped, source, target, normaliser, grad, inner)
        self._for_each_seed(attention.attend_backward, *given, *back)
        return back[0], back[1], back[2]

    def _for_each_seed(self, kernel: Callable[..., None], *tensors: Tensor) -> None:
        arrays = [_array(tensor) for tensor in tensors]
        rows = self.offsets, self.columns, self.longest
        _in_threads([partial(kernel, seed, *rows, *arrays) for seed in range(len(arrays[0]))])


def _array(values: Tensor) -> np.ndarray:
    """Return a contiguous array."""
    array: np.ndarray = values.detach().contiguous().numpy()
    return array


def _strided(values: Tensor) -> tuple[np.ndarray, int, int]:
    """Return all numbers of (pack, rows, width) on one axis, and the strides of seeds and rows."""
    values = values.detach()
    if values.stride(-1) != 1:
        values = values.contiguous()
    seed, row, _ = values.stride()
    pack, rows, width = values.shape
    span = (pack - 1) * seed + (rows - 1) * row + width if values.numel() else 0
    return values.as_strided((span,), (1,)).numpy(), seed, row


def _weights(weights: Tensor | None, count: int, like: Tensor) -> np.ndarray:
    """Return weights (pack, count), or one row of ones for all seeds."""
    if weights is None:
        return np.ones((1, count), _array(like[:0]).dtype)
    return _array(weights.to(like.dtype))


def _finishing(finish: Finish | None, like: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Return the parts of ``finish``; empty arrays if nothing follows the product."""
    if finish is None:
        nothing = np.empty(0, np.uint64)
        return np.empty((0, 0), _array(like[:0]).dtype), nothing, nothing, False
    if finish.key is None:
        drawn = [np.zeros(len(finish.bias), np.uint64)] * 2
    else:
        drawn = [_array(each.long()).view(np.uint64) for each in (finish.key, finish.threshold)]
    return _array(finish.bias), drawn[0], drawn[1], finish.everywhere


def _bounds(offsets: np.ndarray, columns: int) -> np.ndarray:
    """Return where to cut the rows into parts with equally many entries, one for each of torch's threads."""
    parts = max(1, min(torch.get_num_threads(), int(offsets[-1]) * columns // LEAST_SHARE))
    if parts == 1:
        return np.array([0, len(offsets) - 1])
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], parts + 1)[1:-1])
    return np.array([0, *cuts, len(offsets) - 1])


def _in_threads(calls: Sequence[Callable[[], None]]) -> None:
    threads = min(torch.get_num_threads(), len(calls))
    if threads == 1:
        for call in calls:
            call()
        return
    for done in _pool(os.getpid(), threads).map(lambda call: call(), calls):
        assert done is None


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of a process. A forked process has none of its parent's."""
    return ThreadPoolExecutor(threads)
