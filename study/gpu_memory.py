"""Bound the GPU memory of trials, and choose their shares of a GPU by it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import ray
import torch

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.sparse.inputs import width_of
from study import data
from study.plan import Trial
from study.resources import Kind, kind, share_of

# Upper bounds: values per node and seed, bytes per edge, and all other memory. Eight methods at Reddit's size
# with 32 hidden units used 19 values per unit and less. A pack that does not fit after all runs in halves.
LAYERS = 30  # per hidden unit
INNER_STEP = 3  # per hidden unit and inner step
CLASS_ROWS = 600
EDGE_BYTES = 50
OTHER_BYTES = 1e9


def gpu_shares(trials: Iterable[Trial]) -> dict[Kind, float]:
    """Return the share of a GPU for each kind of trial: its largest configuration with its largest pack."""
    memory = _gpu_bytes()
    kinds: dict[Kind, list[Trial]] = {}
    for trial in trials:
        kinds.setdefault(kind(trial.config), []).append(trial)
    return {key: share_of(_most(kinds[key]), memory) for key in sorted(kinds)}  # loads each dataset once


def _most(trials: Iterable[Trial]) -> float:
    """Return an upper bound for trials of one kind in bytes; infinite if their data cannot be loaded."""
    sizes = {(config, len(trial.members)) for trial in trials for config in trial.configs}
    try:
        return max(most_bytes(config, members) for config, members in sizes)
    except UserError:  # the trials report it
        return float("inf")


def most_bytes(config: RunConfig, members: int) -> float:
    """Return an upper bound of the GPU memory of a pack with this number of `members`, in bytes."""
    dataset = data.load(config.dataset)
    steps = getattr(config, "inner_steps", 0)
    columns = _input_columns(config, dataset)
    values = (LAYERS + INNER_STEP * steps) * config.hidden + CLASS_ROWS + columns
    nodes = 4.0 * dataset.num_nodes * (members * values + columns)
    return OTHER_BYTES + nodes + EDGE_BYTES * len(dataset.edges)


def _input_columns(config: RunConfig, dataset: Dataset) -> int:
    """Return the columns of dense inputs, which are kept for all seeds and, propagated, for each seed."""
    if config.inputs != "svd" and not isinstance(dataset.features, np.ndarray):
        return 0  # sparse features are small
    return width_of(config.inputs, dataset.num_features)


def _gpu_bytes() -> float:
    """Return the memory of a GPU of this machine or, if it has none, of a node."""
    try:
        if torch.cuda.is_available():
            return _own_gpu_bytes()
        return ray.get(ray.remote(num_gpus=1)(_own_gpu_bytes).remote())
    except (RuntimeError, AssertionError, ray.exceptions.RayError):
        raise UserError(
            "Ray finds GPUs that torch cannot use; set --gpus-per-trial 0 to run on CPUs."
        ) from None


def _own_gpu_bytes() -> float:
    return float(torch.cuda.get_device_properties(0).total_memory)
