"""Name configurations after the settings in which they differ, and order them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.data.traits import Traits
from hagmeta.common.records import differences
from hagmeta.common.records.differences import DECIDED_BY, sort_key
from hagmeta.common.settings.scopes import Scopes
from hagmeta.common.transductive import BY_ITSELF, REWEIGHTED, SELF_TRAINED, SET_BY, SMOOTHED, marks

TOGGLES = ("gpil", "nla", "tla")
SWITCHES = (*TOGGLES, "instead_of_gpil")  # the settings that an ablation varies
TRAINING = ("GPIL", "supervised", "nothing")  # between pre-training and the sessions
ALL_OFF = "none of the three"
TRANSDUCTIVE = {
    SMOOTHED: (
        "Smoothed methods (smoothing above 0) have transductive predictions, not only a transductive "
        "encoder. They mix the scores of a node with those of its visible neighbours, including unlabelled "
        "nodes and queries."
    ),
    REWEIGHTED: (
        "Re-weighted methods (prior: estimated) have transductive predictions. They weight classes by their "
        "shares among visible nodes without labels, including queries. The shares are estimated from "
        "predictions."
    ),
    SELF_TRAINED: (
        "Self-trained methods (self_training above 0) learn from visible nodes without labels, including "
        "queries. The most confident nodes join the support nodes of a class, and the method learns and "
        "predicts again."
    ),
}


def labelled(runs: pd.DataFrame, keys: list[str], scopes: Scopes) -> pd.DataFrame:
    """Return the runs with a label for each configuration, the reference first."""
    configs = runs.drop_duplicates("config_hash")
    if compares_methods(configs, [key for key in keys if key in scopes.both]):
        labels = named_by_method(configs, [key for key in keys if key in scopes.labels])
    else:
        labels = describe(configs, [key for key in keys if key not in scopes.task], scopes)
    # Two configurations of one task must never share a name.
    same = [*(key for key in keys if key in scopes.task), "label"]
    twins = configs.assign(label=labels).duplicated(same, keep=False)
    labels = labels.where(~twins, labels + " [" + configs["config_hash"].str[:6] + "]")
    by_hash = dict(zip(configs["config_hash"], labels, strict=True))
    position = _positions(configs, keys, scopes)
    named = runs.assign(label=runs["config_hash"].map(by_hash))
    return named.sort_values("config_hash", key=lambda column: column.map(position), kind="stable")


def comparable(runs: pd.DataFrame, labels: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield `runs` of one task in groups within which methods may be compared.

    Methods that may read different `labels` are in different groups. Runs of one method stay together: then
    the setting is what is compared. Runs without the setting are in every group, because it does not limit
    them.
    """
    groups = [runs]
    for key in labels:
        groups = [part for group in groups for part in _apart(group, key)]
    yield from groups


def _apart(runs: pd.DataFrame, key: str) -> list[pd.DataFrame]:
    known = runs[runs[key].notna()]
    values = sorted(known[key].unique(), key=sort_key)
    if len(values) < 2 or known["method"].nunique() < 2:
        return [runs]
    return [runs[(runs[key] == value) | runs[key].isna()] for value in values]


def compares_methods(configs: pd.DataFrame, setting: list[str]) -> bool:
    """Return whether each method occurs once per setting, as if it was tuned for each dataset."""
    return configs["method"].nunique() > 1 and not configs.duplicated([*setting, "method"]).any()


def named_by_method(configs: pd.DataFrame, always: Iterable[str] = ()) -> pd.Series:
    """Return the method's title, with the transductive marks that hold in all its configurations.

    Settings in `always` are added to the title if they differ between configurations.
    """
    differ = [key for key in always if configs[key].nunique() > 1]
    named = _titled(configs)
    words = [
        [f"{key} {readable(config[key])}" for key in differ if not is_absent(config[key])]
        for config in rows_of(configs[[*differ, "method"]])
    ]
    return pd.Series([_marked(name, own) for name, own in zip(named, words, strict=True)], configs.index)


def _titled(configs: pd.DataFrame) -> pd.Series:
    titles: dict[str, str] = {}
    always: dict[str, list[str]] = {}
    for config in rows_of(configs):
        method, held = config["method"], transductive(config)
        titles[method] = config["traits"].title
        always[method] = [mark for mark in always.get(method, held) if mark in held]
    names = {method: _marked(titles[method], told) for method, told in always.items()}
    return configs["method"].map(names)


def describe(configs: pd.DataFrame, keys: Iterable[str], scopes: Scopes) -> pd.Series:
    """Return a name per configuration. If several settings differ, it lists those with unusual values.

    Settings of the labels are always listed, and so are the settings of which a method ran all combinations.
    """
    different = [key for key in varied_settings(configs, keys, scopes) if key != "method"]
    others = [key for key in different if key not in SWITCHES]
    switched = any(key in SWITCHES for key in different)
    several = configs["method"].nunique() > 1
    usual = {key: _usual(configs, key) for key in others}
    crossed = {method: _crossed(own, others) for method, own in configs.groupby("method", sort=False)}

    def name(config: dict[str, Any]) -> str:
        told_of = [
            key
            for key in others
            if not is_absent(config[key])
            and (
                len(others) == 1
                or key in scopes.labels
                or key in crossed[config["method"]]
                or config[key] != usual[key]
            )
        ]
        untold = [mark for mark in transductive(config) if SET_BY.get(mark) not in told_of]
        return _marked(named(config, told_of), untold)

    def named(config: dict[str, Any], told_of: list[str]) -> str:
        parts = [setting_words(key, config[key]) for key in told_of]
        whole = all(is_on(config.get(key)) for key in TOGGLES)
        told = several or (parts and len(others) > 1)  # do not mention that all switches are on
        if switched and has_switches(config) and not (told and whole):
            parts = [*switch_words(config), *parts]
        method = config["traits"].title
        if several or not parts:
            return f"{method} ({', '.join(parts)})" if parts else method
        return ", ".join(parts)

    def switch_words(config: dict[str, Any]) -> list[str]:
        """Return "GPIL + NLA" in an ablation; if other settings vary as well, only what is off."""
        toggles = [key for key in TOGGLES if key in different]
        trained = training(config) == "supervised"
        if others:
            off = [setting_words(key, False) for key in toggles if not is_on(config.get(key))]
            return ["supervised", *off[1:]] if trained else off
        if len(toggles) == 1 and "instead_of_gpil" not in different:
            return [setting_words(toggles[0], config[toggles[0]])]
        on = [training(config), *(key.upper() for key in TOGGLES[1:] if is_on(config.get(key)))]
        return [" + ".join(part for part in on if part != "nothing") or ALL_OFF]

    always = [key for key in (*SWITCHES, *SET_BY.values()) if key in configs and key not in others]
    columns = ["method", "traits", *always, *others]
    return pd.Series([name(each) for each in rows_of(configs[columns])], index=configs.index)


def _crossed(configs: pd.DataFrame, keys: list[str]) -> list[str]:
    """Return two or more of `keys` that differ between `configs` of one method, if all combinations ran."""
    counts = {key: configs[key].nunique() for key in keys}
    differ = [key for key, count in counts.items() if count > 1]
    combinations = len(configs[differ].drop_duplicates()) if len(differ) > 1 else 0
    return differ if combinations == math.prod(counts[key] for key in differ) else []


def across(
    runs: pd.DataFrame, keys: Collection[str], scopes: Scopes, apart: Collection[str] = ()
) -> pd.Series:
    """Return a name per run; runs that differ only in settings `apart`, or as a result, share a name."""
    configs = _without_decided(runs.drop_duplicates("config_hash"))
    names = describe(configs, [key for key in keys if key not in apart], scopes)
    return runs["config_hash"].map(dict(zip(configs["config_hash"], names, strict=True)))


def _without_decided(configs: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations with an empty `query_shot` where K or the protocol decides it."""
    if "query_shot" not in configs:
        return configs
    return configs.assign(query_shot=configs["query_shot"].where(_given(configs, "query_shot")))


def rows_of(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows as dictionaries. `DataFrame.to_dict` takes much longer for many columns."""
    names = list(frame)
    return [dict(zip(names, row, strict=True)) for row in frame.to_numpy(dtype=object).tolist()]


def varied_settings(configs: pd.DataFrame, keys: Iterable[str], scopes: Scopes) -> list[str]:
    """Return the settings in `keys` that differ between the rows of `configs`."""
    keys = list(keys)
    columns = list(dict.fromkeys([*keys, "dataset", "method"]))
    settings = [
        {key: value for key, value in config.items() if not is_absent(value)}
        for config in rows_of(configs[columns])
    ]
    found = differences.differing(settings, scopes, list(configs["given"]))
    return [key for key in keys if key in found]


def has_switches(config: Mapping[str, Any] | pd.Series) -> bool:
    """Return whether a configuration has all the switches of an ablation."""
    return not any(is_absent(config.get(key)) for key in TOGGLES)


def training(config: Mapping[str, Any] | pd.Series) -> str:
    """Return which of TRAINING a configuration with switches has."""
    instead = config.get("instead_of_gpil")
    return "GPIL" if is_on(config.get("gpil")) else "nothing" if is_absent(instead) else str(instead)


def is_on(value: Any) -> bool:
    """Return whether a switch is on; accepts the booleans of Python, NumPy and pandas."""
    return not is_absent(value) and bool(value)


def is_absent(value: Any) -> bool:
    """Return whether a configuration does not have a setting (None or NaN)."""
    return value is None or (isinstance(value, float) and value != value)


def readable(value: Any) -> str:
    """Return a setting's value as text for people; "unknown" if a record has none."""
    if is_absent(value):
        return "unknown"
    if pd.api.types.is_bool(value):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_words(key: str, value: Any, traits: Traits | None = None) -> str:
    """Return a setting and its value as in labels: "TLA off" or "hidden 64"; a method has its title."""
    if key == "method" and traits is not None:
        return traits.title
    if key in TOGGLES:
        return f"{key.upper()} {'on' if is_on(value) else 'off'}"
    return f"{key} {readable(value)}"


def transductive(config: Mapping[str, Any]) -> list[str]:
    """Return the words that mark a configuration with transductive predictions."""
    return marks(config, config["traits"].transductive)


def _marked(name: str, marks: list[str]) -> str:
    """Return `name` with `marks` in brackets, added to brackets that it already has."""
    if not marks:
        return name
    return f"{name[:-1]}, {', '.join(marks)})" if name.endswith(")") else f"{name} ({', '.join(marks)})"


def transductive_words(runs: pd.DataFrame) -> list[str]:
    """Return notes for `runs` with transductive predictions."""
    keys = ["label", "dataset", "traits", *(key for key in SET_BY.values() if key in runs)]
    where: dict[tuple[str, str], dict[str, list[str]]] = {}  # by mark and sentence, by name: the datasets
    for config in rows_of(runs[keys].drop_duplicates(["label", "dataset"])):
        for mark in transductive(config):
            sentence = TRANSDUCTIVE.get(mark) or _by_itself(config["traits"])
            where.setdefault((mark, sentence), {}).setdefault(config["label"], []).append(config["dataset"])
    several = runs["dataset"].nunique() > 1
    order = [*SET_BY, BY_ITSELF]
    return [
        sentence + _where_words(mark, where[mark, sentence], several)
        for mark, sentence in sorted(where, key=lambda key: order.index(key[0]))
    ]


def _by_itself(traits: Traits) -> str:
    return f"{traits.title} has transductive predictions: {traits.transductive}."


def _where_words(mark: str, where: Mapping[str, list[str]], several: bool) -> str:
    """Return the configurations with `mark` on some datasets only, because their names do not show it."""
    untold = {label: datasets for label, datasets in where.items() if mark not in label.rpartition("(")[2]}
    untold = {label: datasets for label, datasets in untold.items() if SET_BY.get(mark, mark) not in label}
    told = [label + f" on {', '.join(datasets)}" * several for label, datasets in untold.items()]
    some = ("; " if several else ", ").join(told)
    return f" Here {mark}: {some}." if some else ""


def slug(*parts: object) -> str:
    """Return `parts` as a file name."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, parts)).lower()).strip("-")


def _usual(configs: pd.DataFrame, key: str) -> Any:
    """Return the usual value: that of more than half, otherwise the default, otherwise the most common."""
    known = configs[key].dropna()
    most = known.mode().iloc[0]
    default = configs.loc[~_given(configs, key), key].dropna()
    # Settings that the task decides have no default.
    if 2 * (known == most).sum() > len(known) or default.empty or key in DECIDED_BY:
        return most
    return default.mode().iloc[0]


def _given(configs: pd.DataFrame, key: str) -> pd.Series:
    """Return whether the setting was set explicitly, for each configuration."""
    return configs["given"].map(lambda given: key in given).astype(bool)


def _positions(configs: pd.DataFrame, keys: list[str], scopes: Scopes) -> dict[str, int]:
    """Return the position of each configuration: by role and title of the method, usual values first.

    If settings vary one at a time around a centre, the centre is usual, even if another one has the default.
    """
    apart = (*scopes.task, *SWITCHES, "method", "query_shot")
    varied = [key for key in varied_settings(configs, keys, scopes) if key not in apart]
    usual = {key: _usual(configs, key) for key in varied}

    def order(config: dict[str, Any]) -> tuple[Any, ...]:
        off = sum(not is_on(config.get(key)) for key in TOGGLES)
        own = [key for key in usual if not is_absent(config[key])]
        unusual = sum(config[key] != usual[key] for key in own)
        given = sum(key in config["given"] for key in (*own, "query_shot"))
        return (
            config["traits"].place,
            config["method"],
            unusual,
            given,
            off,
            [sort_key(config[key]) for key in keys],
        )

    ranked = sorted(rows_of(configs), key=order)
    return {config["config_hash"]: number for number, config in enumerate(ranked)}
