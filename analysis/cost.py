"""What a run costs by itself: shared pre-training is charged to all that used it, and not to the first."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.frame import Panel, Results
from analysis.labels import SETTING, readable
from analysis.table import Cell, Table

# What pre-training is shared by: runs that are alike in all of these have the same encoder.
PRETRAINING = (
    *(
        "dataset",
        "protocol",
        "classes",
        "drop_small",
        "val_classes",
        "visibility",
        "inputs",
        "seed",
        "device",
    ),
    *("encoder", "hidden", "embedding", "heads", "dropout", "pretrain_on", "classifier", "normalisation"),
    *("learning_rate", "weight_decay", "pretrain_epochs", "pretrain_patience"),
)
WHERE = ("dataset", "protocol", "n_way", "k_shot", "device")
IN_COLUMNS = (*WHERE, "sessions")  # told by columns, or by N; what else differs is named next to N and K
ABOUT = (
    "Seconds are a seed's share of the pack that it ran in, means over the seeds. Pre-training that was read "
    "from a cache is charged as it cost the run that computed it. Compilation and warm-up are in the phase "
    "in which they fell, since records do not tell them apart; runs beside each other share a machine, as "
    "many as the launch says: read large differences only."
)


def charged(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with `seconds_pretrain` and `seconds` as if nothing had been shared."""
    if "seconds_pretrain" not in runs:
        return runs
    keys = [key for key in PRETRAINING if key in runs]
    full = runs.groupby(keys, dropna=False)["seconds_pretrain"].transform("max")
    return runs.assign(seconds_pretrain=full, seconds=runs["seconds"] - runs["seconds_pretrain"] + full)


def front(seconds: pd.Series, accuracy: pd.Series) -> list[str]:
    """Configurations than which none is both cheaper and more accurate, the cheapest first."""
    best, found = -np.inf, []
    for label in sorted(seconds.index, key=lambda label: (seconds[label], -accuracy[label])):
        if accuracy[label] > best:
            best = accuracy[label]
            found.append(str(label))
    return found


def machine(panel: Panel) -> str:
    """What its runs were made on."""
    devices = ", ".join(str(each) for each in panel.runs["device"].dropna().unique())
    packs = sorted(panel.runs["seeds_in_pack"].dropna().astype(int).unique())
    return f"{devices}, {'/'.join(map(str, packs))} seeds in a pack"


def cost_table(results: Results) -> Table:
    """Seconds and memory a run."""
    charged_runs = charged(results.runs)
    phases = [name for name in charged_runs if name.startswith("seconds_")]
    others = [key for key in results.varied() if key in SETTING and key not in IN_COLUMNS]
    others += ["sessions"] * results.sessions_apart
    rows, numbers = [], []
    for (label, *where), runs in charged_runs.groupby(["label", *WHERE, *others], sort=False, dropna=False):
        seconds = [runs[name].mean() for name in (*phases, "seconds")]
        memory = runs["peak_gpu_bytes"].where(runs["peak_gpu_bytes"] > 0, runs["peak_memory_bytes"]).max()
        dataset, protocol, n_way, k_shot, device, *rest = where
        told = [f"{key} {readable(value)}" for key, value in zip(others, rest, strict=True)]
        shape = ", ".join([f"{n_way}-way {k_shot}-shot", *told])
        words = [str(label), str(dataset), str(protocol), shape, str(device)]
        packs = "/".join(str(size) for size in sorted(runs["seeds_in_pack"].dropna().astype(int).unique()))
        rows.append(
            [
                *(Cell(word, word, leaks=word == protocol and bool(runs["leaks"].any())) for word in words),
                Cell(packs, packs),
                *(Cell("" if np.isnan(value) else f"{value:.2f}", value) for value in seconds),
                Cell("" if pd.isna(memory) else f"{memory / 2**20:,.0f}", float(memory)),
            ]
        )
        keys = (
            "configuration",
            "dataset",
            "protocol",
            "shape",
            "device",
            "seeds_in_pack",
            *phases,
            "seconds",
        )
        numbers.append(
            dict(zip(keys, [*words, packs, *seconds], strict=True)) | {"peak_memory_bytes": memory}
        )
    names = [name.removeprefix("seconds_") for name in phases]
    head = ["configuration", "dataset", "protocol", "setting", "device", "pack"]
    return Table(
        name="cost",
        section="cost",
        title="What a run costs",
        caption=(
            f"{ABOUT} Memory is the largest peak of a process in MiB, on the GPU where one was used, and of "
            "the whole pack."
        ),
        columns=[*head, *names, "seconds", "memory"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        leaks=bool(results.runs["leaks"].any()),
    )
