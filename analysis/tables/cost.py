"""Compute the cost of each run; the cost of shared pre-training is charged to every run that used it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.data.labels import readable
from analysis.data.results import Panel, Results
from analysis.tables.table import Cell, Table

# Runs with equal values of all these share their pre-trained encoder.
PRETRAINING = (
    *(
        "dataset",
        "protocol",
        "classes",
        "split",
        "drop_small",
        "val_classes",
        "visibility",
        "unlabelled_nodes",
        "inputs",
        "seed",
        "device",
    ),
    *("encoder", "hidden", "embedding", "heads", "dropout", "pretrain_on", "classifier", "faithful"),
    *("learning_rate", "weight_decay", "pretrain_epochs", "pretrain_patience"),
)
WHERE = ("dataset", "protocol", "n_way", "k_shot", "device")
PHASES = {"seconds_gpil": "GPIL"}  # columns that are not named after their phase
IN_COLUMNS = (*WHERE, "sessions")  # shown in columns or implied by N; other settings are named after N and K
ABOUT = (
    "Seconds are the share of one seed in the time of the seeds that ran at once, averaged over the seeds. "
    "Pre-training from a cache counts with the time of the run that computed it. Compilation and warm-up "
    "count in the phase in which they ran. Runs at the same time share a machine, so only large differences "
    "are meaningful."
)


def charged(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with `seconds_pretrain` and `seconds` as if no run shared its pre-training."""
    if "seconds_pretrain" not in runs:
        return runs
    keys = [key for key in PRETRAINING if key in runs]
    full = runs.groupby(keys, dropna=False)["seconds_pretrain"].transform("max")
    return runs.assign(seconds_pretrain=full, seconds=runs["seconds"] - runs["seconds_pretrain"] + full)


def front(seconds: pd.Series, accuracy: pd.Series) -> list[str]:
    """Return the Pareto front of cost and accuracy, the cheapest configuration first."""
    best, found = -np.inf, []
    for label in sorted(seconds.index, key=lambda label: (seconds[label], -accuracy[label])):
        if accuracy[label] > best:
            best = accuracy[label]
            found.append(str(label))
    return found


def machine(panel: Panel) -> str:
    """Return the devices and numbers of seeds at once of the runs in `panel`."""
    devices = ", ".join(str(each) for each in panel.runs["device"].dropna().unique())
    packs = sorted(panel.runs["seeds_in_pack"].dropna().astype(int).unique())
    return f"{devices}, {'/'.join(map(str, packs))} seeds at once"


def _parameters(runs: pd.DataFrame) -> Cell:
    number = runs["trained_parameters"].max()
    return Cell("" if np.isnan(number) else f"{number:,.0f}", number)


def _energy(runs: pd.DataFrame) -> Cell:
    """Return the mean energy of trials that had a GPU of their own, or the share of those that had not."""
    alone = runs["gpu_share"] >= 1
    joules = runs["gpu_joules"].where(alone).mean()
    if not alone.any() and runs["gpu_joules"].notna().any():
        return Cell(f"shared ({runs['gpu_share'].max():.3g} GPU)", joules)
    return Cell("" if np.isnan(joules) else f"{joules:,.0f}", joules)


EXTRAS = {"trained_parameters": _parameters, "gpu_joules": _energy}  # columns that only some records have
ENERGY = (
    "Joules are those of the whole GPU during a trial, for all seeds that ran at once, without pre-training "
    "from a cache. Trials that share a GPU have none of their own; their share is shown instead."
)


def cost_table(results: Results) -> Table:
    """Return seconds and memory per run, and trained parameters and energy if records have them."""
    charged_runs = charged(results.runs)
    extras = {name: cell for name, cell in EXTRAS.items() if charged_runs[name].notna().any()}
    phases = [name for name in charged_runs if name.startswith("seconds_")]
    others = [key for key in results.varied() if key in results.task and key not in IN_COLUMNS]
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
        more = {name: cell(runs) for name, cell in extras.items()}
        rows.append(
            [
                *(Cell(word, word, leaks=word == protocol and bool(runs["leaks"].any())) for word in words),
                Cell(packs, packs),
                *(Cell("" if np.isnan(value) else f"{value:.2f}", value) for value in seconds),
                Cell("" if pd.isna(memory) else f"{memory / 2**20:,.0f}", float(memory)),
                *more.values(),
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
            dict(zip(keys, [*words, packs, *seconds], strict=True))
            | {"peak_memory_bytes": memory}
            | {name: cell.value for name, cell in more.items()}
        )
    names = [PHASES.get(name, name.removeprefix("seconds_")) for name in phases]
    head = ["configuration", "dataset", "protocol", "setting", "device", "seeds at once"]
    return Table(
        name="cost",
        section="cost",
        title="Cost per run",
        caption=(
            f"{ABOUT} Memory is the peak of the process in MiB, for all seeds that ran at once. It is GPU "
            "memory if a GPU was used." + f" {ENERGY}" * ("gpu_joules" in extras)
        ),
        columns=[
            *head,
            *names,
            "seconds",
            "memory",
            *(name.removeprefix("gpu_").replace("_", " ") for name in extras),
        ],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        leaks=bool(results.runs["leaks"].any()),
        extra=(
            *names,
            *(
                name
                for place, name in enumerate(head)
                if place and len({row[place].text for row in rows}) == 1
            ),
        ),
    )
