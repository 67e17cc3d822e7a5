"""How runs are carried out: the options that do not belong to a configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from hagmeta.engine.checkpoints import Checkpoints
from hagmeta.packs.pack import Progress, no_progress

Mode = Literal["captured", "eager", "plain"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How runs are carried out. Options change results by rounding at most.

    Attributes:
        device: The device to compute on.
        mode: ``captured`` replays the steps on a GPU as CUDA graphs. ``eager`` does not, for debugging.
            ``plain`` runs one seed after the other, without packs, CUDA graphs and custom kernels. Then
            `print`, `pdb` and profilers work inside a method.
        cache: A folder in which runs share pre-trained encoders and inputs; None to share nothing.
        progress: A function that is called with the progress of each phase.
        checkpoints: The checkpoints of the pack. An interrupted run continues from the last one.
        waits: Called when another process trains the encoder, before this one waits for it.
        embeddings_after: The session whose embeddings are returned; None for no embeddings.
        gpu_share: The share of the GPU that a trial has, which its records state next to the GPU's energy.
    """

    device: torch.device
    mode: Mode = "captured"
    cache: Path | None = None
    progress: Progress = no_progress
    waits: Callable[[], object] = lambda: None
    checkpoints: Checkpoints | None = None
    embeddings_after: int | None = None
    gpu_share: float = 1.0


def mode_of(*, eager: bool = False, plain: bool = False) -> Mode:
    """Return the mode that these switches choose."""
    return "plain" if plain else "eager" if eager else "captured"
