"""Task-level attention (TLA): how much each task's classes count in the loss."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.packs.randomness import dropout, part


@lru_cache(maxsize=256)
def _counted(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The sizes, and every class's task: kept, since a GPU would wait for them each time."""
    counts = torch.tensor(sizes)
    return counts.to(device), torch.arange(len(sizes)).repeat_interleave(counts).to(device)


def class_weights(shares: Tensor, sizes: tuple[int, ...], *, divided: bool = True) -> Tensor:
    """Shares (tasks,) as weights of the tasks' classes (classes,): divided among them, or whole for each."""
    counts, task_of_class = _counted(sizes, shares.device)
    return (shares / counts if divided else shares).index_select(0, task_of_class)  # Eq. 6


def reversed_gradient(values: Tensor) -> Tensor:
    """The same values, to the bit, through which gradients pass with their sign reversed."""
    return 2 * values.detach() - values


class UniformTaskAttention(nn.Module):
    """Every task counts alike, and nothing is learnt."""

    def forward(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        return class_weights(self.shares(prototypes, sizes, key), sizes)

    def shares(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        return prototypes.new_full((len(sizes),), 1 / len(sizes))


class TaskAttention(nn.Module):
    """Self-attention between the newest task and every task met, over their prototypes (Eqs. 4 and 5)."""

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
        self.dropout = rate
        self.reshapes, self.rectifies = earlier == "reshaped", vectors == "relu"
        self.first = nn.Linear(base_classes, middle)
        self.second = nn.Linear(middle, middle) if layers == "three" else nn.Identity()
        self.third = nn.Linear(middle, n_way)
        self.shared = nn.Linear(n_way, 1)

    def forward(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        """Class weights (classes,) for prototypes (classes, width) that came in tasks of ``sizes``."""
        if self.weights == "flipped":
            # Turned back on the way in, so that only gradients of the parameters here are reversed.
            shares = reversed_gradient(self.shares(reversed_gradient(prototypes), sizes, key))
        else:
            shares = self.shares(prototypes, sizes, key)
        if self.weights == "stopped":
            shares = shares.detach()
        return class_weights(shares, sizes, divided=self.weights != "sizes")

    def shares(self, prototypes: Tensor, sizes: tuple[int, ...], key: Tensor | None) -> Tensor:
        """How much each task counts: (tasks,), one in all."""
        base, *later = prototypes.split(sizes)
        hidden = dropout(F.relu(self.first(base.mT)), self.dropout, key)  # (width, middle)
        hidden = F.relu(self.third(F.relu(self.second(hidden))))  # (width, n_way)
        tasks = torch.stack([hidden, *self._columns(later)])  # (tasks, width, n_way)
        vectors, newest = self._vectors(tasks, key)
        return (vectors @ newest).softmax(0)  # Eq. 5

    def _columns(self, later: list[Tensor]) -> list[Tensor]:
        """Tasks (classes, width) as (width, n_way); the earlier ones perhaps with their numbers mixed up."""
        filled = [self._padded(task) for task in later]
        if not self.reshapes:
            return [task.mT for task in filled]
        return [*(task.reshape(task.mT.shape) for task in filled[:-1]), *(task.mT for task in filled[-1:])]

    def _vectors(self, tasks: Tensor, key: Tensor | None) -> tuple[Tensor, Tensor]:
        """Vectors (tasks, width), and the newest task's (width,) to multiply them with."""
        vectors = self.shared(tasks).squeeze(-1)
        if not self.rectifies:
            return vectors, vectors[-1]
        vectors = F.relu(vectors)
        newest = dropout(vectors[-1:], self.dropout, part(key, 1)).squeeze(0)
        return dropout(vectors, self.dropout, part(key, 0)), newest

    def _padded(self, task: Tensor) -> Tensor:
        """A task with fewer than N classes is filled up with its mean prototype."""
        missing = self.n_way - len(task)
        return torch.cat([task, task.mean(0, keepdim=True).expand(missing, -1)]) if missing else task
