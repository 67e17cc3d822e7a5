"""What configurations are called, from the settings in which they differ, and the order they stand in."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from hagmeta.common import differences
from hagmeta.common.differences import DECIDED_BY, sort_key

# Accuracies are comparable only where all of these are equal.
SETTING = (
    *("dataset", "protocol", "n_way", "k_shot", "classes", "sessions"),
    *("queries_per_class", "drop_small", "val_classes", "visibility", "mislabelled", "revision"),
)
TOGGLES = ("gpil", "nla", "tla")
SWITCHES = (*TOGGLES, "instead_of_gpil")  # the settings of which an ablation is made
TRAINING = ("GPIL", "supervised", "nothing")  # what HAG-Meta may do between pre-training and the sessions
ALL_OFF = "none of the three"
# Whose answers are transductive, too, is told by its name; see `TRANSDUCTIVE`.
SMOOTHED, SELF_TRAINED, BY_ITSELF = "smoothed", "self-trained", "transductive"
SET_BY = {SMOOTHED: "smoothing", SELF_TRAINED: "self_training"}
SET_BY_ITSELF = ("unlabelled", "coupling", "finetune_steps")
DECIDE_ANSWERS = (*SET_BY.values(), *SET_BY_ITSELF)
TRANSDUCTIVE = {
    SMOOTHED: (
        "What is smoothed (smoothing above 0) is transductive in its answers, too, not only in its encoder: "
        "a node's scores are mixed with those of its visible neighbours, unlabelled ones and queries among "
        "them."
    ),
    SELF_TRAINED: (
        "What is self-trained (self_training above 0) learns from visible nodes without labels, queries "
        "among them: those that it is surest of join a class's supports, and it learns and answers again."
    ),
    BY_ITSELF: (
        "Posterior means is transductive in its answers, too, where unlabelled, coupling or finetune_steps "
        "is above 0: visible nodes without labels, queries among them, move its class means, hear their "
        "neighbours' answers, and teach its encoder."
    ),
}
NAMES = {
    "hag-meta": "HAG-Meta",
    "proto-gcn": "Proto-GCN",
    "proto-gat": "Proto-GAT",
    "meta-gnn": "Meta-GNN",
    "gpn": "GPN",
    "er-gnn": "ER-GNN",
    "icarl": "iCaRL",
    "cec": "CEC",
    "sgc-ncm": "SGC-NCM",
    "sgc-ridge": "SGC-Ridge",
    "sgc-lda": "SGC-LDA",
    "ranpac": "RanPAC",
    "fecam": "FeCAM",
    "posterior-means": "Posterior means",
    "joint": "Joint (oracle)",
    "frozen": "Frozen",
}


def labelled(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The runs with a label for each configuration, the reference's first."""
    configs = runs.drop_duplicates("config_hash")
    setting = [key for key in SETTING if key in keys]
    if compares_methods(configs, setting):
        labels = _by_method(configs)
    else:
        labels = describe(configs, [key for key in keys if key not in SETTING])
    # Two configurations of one setting never share a name, whatever told them apart.
    same = [*setting, "label"]
    twins = configs.assign(label=labels).duplicated(same, keep=False)
    labels = labels.where(~twins, labels + " [" + configs["config_hash"].str[:6] + "]")
    by_hash = dict(zip(configs["config_hash"], labels, strict=True))
    position = _positions(configs, keys)
    named = runs.assign(label=runs["config_hash"].map(by_hash))
    return named.sort_values("config_hash", key=lambda column: column.map(position), kind="stable")


def compares_methods(configs: pd.DataFrame, setting: list[str]) -> bool:
    """Whether each method is there once in every setting, as where each was tuned for every dataset."""
    return configs["method"].nunique() > 1 and not configs.duplicated([*setting, "method"]).any()


def _by_method(configs: pd.DataFrame) -> pd.Series:
    """The method's name, and what is transductive of it wherever it ran."""
    marks: dict[str, list[str]] = {}
    for config in configs.to_dict("records"):
        held = transductive(config)
        marks[config["method"]] = [mark for mark in marks.get(config["method"], held) if mark in held]
    names = {method: _marked(NAMES.get(method, method), told) for method, told in marks.items()}
    return configs["method"].map(names)


def describe(configs: pd.DataFrame, keys: Iterable[str]) -> pd.Series:
    """A name a configuration. Where several settings differ, those that are not as usual are named."""
    different = [key for key in varied(configs, keys) if key != "method"]
    others = [key for key in different if key not in SWITCHES]
    switched = any(key in SWITCHES for key in different)
    several = configs["method"].nunique() > 1
    usual = {key: _usual(configs, key) for key in others}

    def name(config: dict[str, Any]) -> str:
        told_of = [
            key
            for key in others
            if not is_absent(config[key]) and (len(others) == 1 or config[key] != usual[key])
        ]
        marks = [mark for mark in transductive(config) if SET_BY.get(mark) not in told_of]
        return _marked(named(config, told_of), marks)

    def named(config: dict[str, Any], told_of: list[str]) -> str:
        parts = [f"{key} {readable(config[key])}" for key in told_of]
        whole = all(is_on(config.get(key)) for key in TOGGLES)
        told = several or (parts and len(others) > 1)  # by what is not as usual; all on goes without saying
        if switched and config["method"] == "hag-meta" and not (told and whole):
            on = [training(config), *(key.upper() for key in TOGGLES[1:] if is_on(config.get(key)))]
            parts.insert(0, " + ".join(part for part in on if part != "nothing") or ALL_OFF)
        method = NAMES.get(config["method"], config["method"])
        if several or not parts:
            return f"{method} ({', '.join(parts)})" if parts else method
        return ", ".join(parts)

    always = [key for key in (*SWITCHES, *DECIDE_ANSWERS) if key in configs and key not in others]
    columns = ["method", *always, *others]
    return pd.Series([name(each) for each in configs[columns].to_dict("records")], index=configs.index)


def across(runs: pd.DataFrame, keys: Collection[str], apart: Collection[str] = ()) -> pd.Series:
    """A name a run, the same for runs that differ only in settings ``apart`` and what follows from them."""
    configs = _without_decided(runs.drop_duplicates("config_hash"))
    names = describe(configs, [key for key in keys if key not in apart])
    return runs["config_hash"].map(dict(zip(configs["config_hash"], names, strict=True)))


def _without_decided(configs: pd.DataFrame) -> pd.DataFrame:
    """With ``query_shot`` empty where K or the protocol has decided it."""
    if "query_shot" not in configs:
        return configs
    return configs.assign(query_shot=configs["query_shot"].where(_given(configs, "query_shot")))


def varied(configs: pd.DataFrame, keys: Iterable[str]) -> list[str]:
    """Those of the settings that tell configurations apart."""
    keys = list(keys)
    columns = list(dict.fromkeys([*keys, "dataset", "method"]))
    settings = [
        {key: value for key, value in config.items() if not is_absent(value)}
        for config in configs[columns].to_dict("records")
    ]
    found = differences.differing(settings, list(configs["given"]))
    return [key for key in keys if key in found]


def training(config: Mapping[str, Any]) -> str:
    """Which of TRAINING a configuration of HAG-Meta has."""
    instead = config.get("instead_of_gpil")
    return "GPIL" if is_on(config.get("gpil")) else "nothing" if is_absent(instead) else str(instead)


def is_on(value: Any) -> bool:
    """A switch, whichever library's truth it holds."""
    return not is_absent(value) and bool(value)


def is_absent(value: Any) -> bool:
    """A setting that a configuration has not."""
    return value is None or (isinstance(value, float) and value != value)


def readable(value: Any) -> str:
    """A setting's value as a person would write it."""
    if pd.api.types.is_bool(value):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def transductive(config: Mapping[str, Any]) -> list[str]:
    """Which of `TRANSDUCTIVE` hold of a configuration's answers."""
    ours = not is_absent(config.get("unlabelled"))
    by_itself = ours and any(is_on(config.get(key)) for key in SET_BY_ITSELF)
    held = {mark: is_on(config.get(key)) for mark, key in SET_BY.items()} | {BY_ITSELF: by_itself}
    return [mark for mark, holds in held.items() if holds]


def _marked(name: str, marks: list[str]) -> str:
    """With marks in brackets, beside what stands there."""
    if not marks:
        return name
    return f"{name[:-1]}, {', '.join(marks)})" if name.endswith(")") else f"{name} ({', '.join(marks)})"


def transductive_words(runs: pd.DataFrame) -> list[str]:
    """What to say beside runs some of which answer by what other nodes are taken for."""
    keys = ["label", "dataset", *(key for key in DECIDE_ANSWERS if key in runs)]
    where: dict[str, dict[str, list[str]]] = {}  # by mark and name the datasets
    for config in runs[keys].drop_duplicates(["label", "dataset"]).to_dict("records"):
        for mark in transductive(config):
            where.setdefault(mark, {}).setdefault(config["label"], []).append(config["dataset"])
    several = runs["dataset"].nunique() > 1
    return [_transductive_words(mark, where[mark], several) for mark in TRANSDUCTIVE if mark in where]


def _transductive_words(mark: str, where: Mapping[str, list[str]], several: bool) -> str:
    """With those that are so on some datasets alone, whose names do not say it."""
    untold = {label: datasets for label, datasets in where.items() if mark not in label.rpartition("(")[2]}
    untold = {label: datasets for label, datasets in untold.items() if SET_BY.get(mark, mark) not in label}
    told = [label + f" on {', '.join(datasets)}" * several for label, datasets in untold.items()]
    some = ("; " if several else ", ").join(told)
    return f"{TRANSDUCTIVE[mark]} Here {mark}: {some}." if some else TRANSDUCTIVE[mark]


def slug(*parts: object) -> str:
    """For file names."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, parts)).lower()).strip("-")


def _usual(configs: pd.DataFrame, key: str) -> Any:
    """What more than half of the configurations have, or else those that were not given it, or most."""
    known = configs[key].dropna()
    most = known.mode().iloc[0]
    default = configs.loc[~_given(configs, key), key].dropna()
    # What the task decides has no default of its own.
    if 2 * (known == most).sum() > len(known) or default.empty or key in DECIDED_BY:
        return most
    return default.mode().iloc[0]


def _given(configs: pd.DataFrame, key: str) -> pd.Series:
    """Whether each configuration was given a setting, or has its default."""
    return configs["given"].map(lambda given: key in given).astype(bool)


def _positions(configs: pd.DataFrame, keys: list[str]) -> dict[str, int]:
    """Where each configuration stands: HAG-Meta as it usually is first, then what departs from it.

    Around a centre, one setting at a time, the centre is usual, even where an arm has the default.
    """
    methods = list(NAMES)
    apart = (*SETTING, *SWITCHES, "method", "query_shot")
    usual = {key: _usual(configs, key) for key in varied(configs, keys) if key not in apart}

    def order(config: dict[str, Any]) -> tuple[Any, ...]:
        method = methods.index(config["method"]) if config["method"] in methods else len(methods)
        off = sum(not is_on(config.get(key)) for key in TOGGLES)
        own = [key for key in usual if not is_absent(config[key])]
        unusual = sum(config[key] != usual[key] for key in own)
        given = sum(key in config["given"] for key in own)
        return (method, unusual, given, off, [sort_key(config[key]) for key in keys])

    ranked = sorted(configs.to_dict("records"), key=order)
    return {config["config_hash"]: number for number, config in enumerate(ranked)}
