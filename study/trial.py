"""What a worker runs: one configuration for a pack of seeds, from pre-training to the last session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ray import tune

from hagmeta import datasets
from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.home import home
from hagmeta.pipeline import Record, run


def run_trial(spec: dict[str, Any]) -> None:
    """Ray Tune's trainable: reports once a session, and the records with the last.

    ``spec`` holds plain values only; the data is loaded here, by its name.
    """
    torch.set_num_threads(spec["threads"])
    device = torch.device("cuda" if spec["gpu_share"] else "cpu")
    if spec["gpu_share"]:
        torch.cuda.set_per_process_memory_fraction(min(1.0, spec["gpu_share"]))
    config = RunConfig.from_mapping(spec["config"])
    dataset = datasets.load(config.dataset, home() / "data")
    records, note = run_pack(config, spec["seeds"], dataset, device)
    sessions = len(records[0]["accuracy"])
    for session in range(sessions):
        accuracy = float(np.mean([record["accuracy"][session] for record in records]))
        last = session == sessions - 1
        tune.report(
            {
                "session": session,
                "accuracy": accuracy,
                "records": json.dumps(records) if last else "",
                "note": note,
            }
        )


def run_pack(
    config: RunConfig, seeds: Sequence[int], dataset: NodeDataset, device: torch.device
) -> tuple[list[Record], str]:
    """The records of a pack; one that does not fit the GPU is halved until it does, and that is said."""
    try:
        return run(config, seeds, dataset=dataset, device=device, cache=home() / "pretrained"), ""
    except torch.cuda.OutOfMemoryError:
        if len(seeds) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(seeds) // 2
    records: list[Record] = []
    for part in (seeds[:half], seeds[half:]):
        records += run_pack(config, part, dataset, device)[0]
    return records, f"{len(seeds)} seeds did not fit the GPU together; run in smaller packs"
