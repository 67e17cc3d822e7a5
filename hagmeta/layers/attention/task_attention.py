"""Task-level attention (TLA): the weight of each task's classes in the loss."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.packs.randomness import Rate, dropout, part


@lru_cache(maxsize=256)
def _counted(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the sizes, and the task of each class. Cached, because each copy to a GPU would block it."""
    counts = torch.tensor(sizes)
    return counts.to(device), torch.arange(len(sizes)).repeat_interleave(counts).to(device)


def class_weights(shares: Tensor, sizes: tuple[int, ...], *, divided: bool = True) -> Tensor:
    """Return the weights of all classes (classes,), given the shares of their tasks (tasks,).

    The share of a task is divided among its classes, or given to each of them if `divided` is False.
    """
    counts, task_of_class = _counted(sizes, shares.device)
    return (shares / counts if divided else shares).index_select(0, task_of_class)  # Eq. 6


def reversed_gradient(values: Tensor) -> Tensor:
    """Return the same values, bit by bit, but with gradients of reversed sign."""
    return 2 * values.detach() - values


class UniformTaskAttention(nn.Module):
    """Equal weights for all tasks, without parameters."""

    def forward(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        return class_weights(self.shares(prototypes, sizes, key), sizes)

    def shares(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        return prototypes.new_full((len(sizes),), 1 / len(sizes))


class TaskAttention(nn.Module):
    """Attention between the newest task and all tasks so far, over their prototypes (Eqs. 4 and 5)."""

    def __init__(
        self,
        base_classes: int,
        n_way: int,
        rate: float,
        *,
        layers: str = "three",
        earlier: str = "transposed",
        vectors: str = "linear",
        weights: str = "learnt",
    ) -> None:
        super().__init__()
        self.weights = weights
        middle = max(base_classes // 2, n_way if layers == "three" else 1)
        self.n_way = n_way
        self.dropout = Rate(rate)
        self.reshapes, self.rectifies = earlier == "reshaped", vectors == "relu"
        self.first = nn.Linear(base_classes, middle)
        self.second = nn.Linear(middle, middle) if layers == "three" else nn.Identity()
        self.third = nn.Linear(middle, n_way)
        self.shared = nn.Linear(n_way, 1)

    def forward(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        """Return class weights (classes,) for prototypes (classes, width) of tasks with these `sizes`."""
        if self.weights == "flipped":
            # Reversed twice for the prototypes, so that only the gradients of TLA's parameters are reversed.
            shares = reversed_gradient(self.shares(reversed_gradient(prototypes), sizes, key))
        else:
            shares = self.shares(prototypes, sizes, key)
        if self.weights == "stopped":
            shares = shares.detach()
        return class_weights(shares, sizes, divided=self.weights != "sizes")

    def shares(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        """Return the share of each task (tasks,); shares sum to 1."""
        base, *later = prototypes.split(sizes)
        hidden = dropout(F.relu(self.first(base.mT)), self.dropout, key)  # (width, middle)
        hidden = F.relu(self.third(F.relu(self.second(hidden))))  # (width, n_way)
        tasks = torch.stack([hidden, *self._columns(later)])  # (tasks, width, n_way)
        vectors, newest = self._vectors(tasks, key)
        return (vectors @ newest).softmax(0)  # Eq. 5

    def _columns(self, later: list[Tensor]) -> list[Tensor]:
        """Return tasks (classes, width) as (width, n_way). Reshaping scrambles the earlier ones."""
        filled = [self._padded(task) for task in later]
        if not self.reshapes:
            return [task.mT for task in filled]
        return [*(task.reshape(task.mT.shape) for task in filled[:-1]), *(task.mT for task in filled[-1:])]

    def _vectors(self, tasks: Tensor, key: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return task vectors (tasks, width), and the vector of the newest task (width,) to compare with."""
        vectors = self.shared(tasks).squeeze(-1)
        if not self.rectifies:
            return vectors, vectors[-1]
        vectors = F.relu(vectors)
        newest = dropout(vectors[-1:], self.dropout, part(key, 1)).squeeze(0)
        return dropout(vectors, self.dropout, part(key, 0)), newest

    def _padded(self, task: Tensor) -> Tensor:
        """Return a task with fewer than N classes, padded with its mean prototype."""
        missing = self.n_way - len(task)
        return torch.cat([task, task.mean(0, keepdim=True).expand(missing, -1)]) if missing else task
