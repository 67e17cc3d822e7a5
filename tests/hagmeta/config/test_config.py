from __future__ import annotations

import json
import math
from dataclasses import Field, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hagmeta import datasets
from hagmeta.common.command import parse_seeds
from hagmeta.common.errors import UserError
from hagmeta.common.settings.domains import Choice, Number
from hagmeta.common.settings.left_out import KEPT_IF_IDLE, LEFT_OUT_AT, REMOVED, named_today
from hagmeta.common.settings.setting import BY_METHOD, Settings, domain_of, setting
from hagmeta.config import run_config as configs
from hagmeta.config.run_config import SETTINGS, RunConfig, resolve
from hagmeta.config.settings import PhaseSettings
from hagmeta.layers.encoders.base import LayerSettings
from hagmeta.methods import METHODS, Method
from hagmeta.methods.paper.hag_meta import HagMetaSettings
from hagmeta.scenarios import PROTOCOLS, TaskSettings


def other_value(item: Field[Any], method: type[Method] = Method) -> Any:
    """A valid value that is not the default."""
    default: Any = method.all_defaults().get(item.name) if item.default is BY_METHOD else item.default
    if item.name == "classes":
        return (4, 5, 5)
    if item.name in ("hidden", "heads"):
        return 2 * default  # the first is a multiple of the second
    domain = domain_of(item)
    if isinstance(domain, Number) and domain.words:
        return next((word for word in domain.words if word != default), "1")
    if isinstance(domain, Choice):
        return next(choice for choice in domain.names if choice != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, float):
        return default + (0.25 if default != domain_of(item).at_most else -0.25)
    return f"not-{default}" if isinstance(default, str) else (default or 0) + 1


def is_number(item: Field[Any]) -> bool:
    return isinstance(domain_of(item), Number)


def test_a_configuration_with_another_method_has_that_method_s_defaults() -> None:
    assert resolve(RunConfig.of().replace(method="posterior-means")).hidden == 128
    assert resolve(RunConfig.of(hidden=64).replace(method="posterior-means")).hidden == 64


def test_an_unknown_method_is_refused_at_once() -> None:
    with pytest.raises(UserError, match=r"unknown method 'nope'\..* Valid: .*cec.*file\.py:Name"):
        RunConfig.of(method="nope")
    with pytest.raises(UserError, match=r"unknown setting 'hiden'\. Did you mean 'hidden'"):
        RunConfig.of(hiden=3)


@pytest.mark.parametrize(
    ("settings", "name", "why"),
    [
        (
            {"method": "sgc-lda", "features": "encoder"},
            "hops",
            "`hops` has no effect with `features: encoder`",
        ),
        ({"nla": False}, "nla_weights", "`nla_weights` has no effect with `nla: false`"),
        ({"gpil": True}, "instead_of_gpil", "`instead_of_gpil` has no effect with `gpil: true`"),
        ({}, "heads", "`heads` has no effect with `encoder: gcn`"),
        ({"method": "cec"}, "gpil", "`gpil` does not apply to cec: it is a setting of other methods only"),
        (
            {"method": "frozen"},
            "episodes",
            "`episodes` does not apply to frozen: the method is not meta-trained",
        ),
        ({"method": "proto-gat"}, "encoder", "`encoder` is always gat with proto-gat"),
        ({"protocol": "released"}, "smoothing", "`smoothing` is always 0.0 with released"),
        ({"protocol": "released"}, "prior", "`prior` is always equal with released"),
        ({}, "episodes", ""),
    ],
)
def test_a_configuration_says_why_a_setting_has_no_effect(
    settings: dict[str, Any], name: str, why: str
) -> None:
    given = RunConfig.of(**settings)
    if not why or "does not apply" in why or "always" in why:
        assert given.why_not(name) == resolve(given).why_not(name)
    assert given.why_not(name).startswith(why) and bool(given.why_not(name)) == bool(why)


def test_text_becomes_the_field_s_type() -> None:
    config = RunConfig.of(
        {
            "classes": "4 5 5",
            "n_way": "2",
            "dropout": "0.25",
            "learning_rate": "1e-2",
            "nla": "no",
            "tla": "OFF",
            "drop_small": "yes",
            "k_shot": "none",
            "encoder": "gat",
        }
    )
    assert config == RunConfig.of(
        classes=(4, 5, 5), n_way=2, dropout=0.25, learning_rate=0.01, nla=False, tla=False, drop_small=True,
        encoder="gat",
    )  # fmt: skip
    assert type(config.n_way) is int and type(config.dropout) is float and type(config.nla) is bool


@pytest.mark.parametrize("given", ["4,5,5", "4, 5, 5", [4, 5, 5], ["4", "5", "5"], (4.0, 5.0, 5.0)])
def test_classes_are_read_in_every_spelling(given: Any) -> None:
    assert RunConfig.of({"classes": given}).classes == (4, 5, 5)


BAD_VALUES: list[tuple[str, Any, str]] = [
    ("n_way", "three", "'three'"),
    ("n_way", 2.5, "2.5"),
    ("n_way", True, "True"),
    ("n_way", 0, "0"),
    ("n_way", [3], "[3]"),
    ("hidden", None, "no value"),
    ("hidden", "", "no value"),
    ("hidden", -1, "-1"),
    ("episodes", math.nan, "nan"),
    ("episodes", math.inf, "inf"),
    ("dropout", 1, "1"),
    ("dropout", -0.1, "-0.1"),
    ("dropout", True, "True"),
    ("learning_rate", 0, "0;"),
    ("learning_rate", math.nan, "nan"),
    ("gpil", "maybe", "'maybe'"),
    ("gpil", 2, "2"),
    ("gpil", None, "no value"),
    ("protocol", "strickt", "'strickt'"),
    ("protocol", 1, "1"),
    ("dataset", 3, "3"),
    ("classes", "4 5", "'4 5'"),
    ("classes", 7, "7"),
    ("classes", "a b c", "'a b c'"),
    ("classes", [4, 5, 0.5], "[4, 5, 0.5]"),
    ("classes", [4, 5, True], "[4, 5, True]"),
    ("classes", [4, 5, 0], "(4, 5, 0)"),
    ("val_classes", -1, "-1"),
    ("nla_weights", "softmin", "'softmin'"),
    ("nla_rate", 0, "0"),
    ("nla_decay", None, "None"),
    ("smoothing", -0.1, "-0.1"),
    ("smoothing", 1.1, "1.1"),
    ("logit_adjustment", -0.5, "-0.5"),
    ("prior", "uniform", "equal"),
    ("episodes", 1e300, "at most 1000000"),
    ("episodes", "9" * 5000, "expected a whole number"),
    ("learning_rate", 1e308, "1e+308; expected a number above 0 and at most 100"),
    ("nla_rate", 1e308, "above 0"),
    ("k_shot", 10**30, "at most 1000000000"),
    ("classes", [10**30, 1, 1], " 1000000000."),
]


@pytest.mark.parametrize(("key", "value", "shown"), BAD_VALUES)
def test_a_bad_value_is_named_in_one_line(key: str, value: Any, shown: str) -> None:
    with pytest.raises(UserError) as caught:
        RunConfig.of({key: value})
    message = str(caught.value)
    assert key in message
    assert shown in message
    assert "\n" not in message and len(message) < 300


@pytest.mark.parametrize("name", [name for name, item in SETTINGS.items() if is_number(item)])
def test_every_number_has_a_largest_value(name: str) -> None:
    # A typing error such as 1e300 is refused before a run, not by a library in the middle of it.
    with pytest.raises(UserError, match=f"^{name} is 1"):
        RunConfig.of({name: 10**12})


@pytest.mark.parametrize(
    ("novel_train", "n_way", "held_out"),
    [(12, 3, 6), (13, 3, 6), (20, 3, 9), (4, 2, 2), (5, 2, 2), (7, 1, 3)],
)
def test_half_of_the_novel_train_classes_are_held_out_in_whole_sessions(
    novel_train: int, n_way: int, held_out: int
) -> None:
    said, counted = (
        resolve(RunConfig.of(classes=(4, novel_train, 12), n_way=n_way, val_classes=value))
        for value in ("half", held_out)
    )
    assert said == counted and said.hash() == counted.hash() and said.held_out == held_out


def test_half_of_too_few_classes_is_refused() -> None:
    with pytest.raises(
        UserError, match="val_classes is half, but 5 novel-train classes are too few for n_way"
    ):
        resolve(RunConfig.of(classes=(4, 5, 12), n_way=3, val_classes="half"))
    with pytest.raises(UserError, match="val_classes is 'most'; expected half or a whole number"):
        RunConfig.of(val_classes="most")


def test_the_heads_of_a_gat_divide_its_width() -> None:
    with pytest.raises(UserError, match=r"hidden is 10; expected a multiple of heads \(4\)\."):
        RunConfig.of(encoder="gat", hidden=10)
    assert RunConfig.of(encoder="gcn", hidden=10).heads == 4  # a GCN has none


def test_equal_settings_have_equal_hashes_however_they_were_written() -> None:
    written = RunConfig.of({"classes": "4 5 5", "learning_rate": "5e-3", "n_way": 3.0, "gpil": "true"})
    assert written.hash() == RunConfig.of(classes=(4, 5, 5), n_way=3).hash()


@pytest.mark.parametrize("method", ["hag-meta", "proto-gat", "er-gnn", "icarl", "frozen"])
def test_the_hash_changes_with_every_field_that_applies_and_with_no_other(method: str) -> None:
    plain = RunConfig.of(method=method)
    for item in SETTINGS.values():
        if item.name in ("method", "dataset"):  # they decide what others are
            continue
        changed = plain.replace(**{item.name: other_value(item, METHODS[method])})
        counts = plain.applies(item.name) and (not plain.why_not(item.name) or item.name in KEPT_IF_IDLE)
        assert (changed.hash() != plain.hash()) == bool(counts), item.name


def test_the_hash_is_stable() -> None:
    # Stored results are found by this hash: a change of it (a new field, another default, another spelling
    # of the canonical form) orphans every result on disk. Change this literal only if that is meant.
    assert RunConfig.of().hash() == "58d1dfacd67a32c1"


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [0, 1, 2]), ("3-5", [3, 4, 5]), ("7-7", [7]), ("1,4,7", [1, 4, 7]), ("0-2,9", [0, 1, 2, 9])],
)
def test_seeds_are_a_count_a_range_or_a_list(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


BAD_SEEDS = ["", "0", "ten", "-1", "5-3", "1,1", "0-3,2", "1,", "1.5", "1-2-3", "²", "10001", "0-10000"]
BAD_SEEDS += ["1,5-3", "1" + "0" * 17, "0-1" + "0" * 17]


@pytest.mark.parametrize("text", BAD_SEEDS)
def test_bad_seeds_are_named(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_seeds(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("key", [True, 1, None])
def test_a_key_that_is_no_text_is_an_unknown_setting(key: object) -> None:
    with pytest.raises(UserError):
        RunConfig.of({key: 1})


@pytest.mark.parametrize("key", ["episodes", "classes", "rehearsal"])
def test_a_number_that_python_will_not_write(key: str) -> None:
    huge = 10**5000
    with pytest.raises(UserError, match=f"{key} is a .* of thousands of digits"):
        RunConfig.of({key: (huge, 1, 1) if key == "classes" else huge})


def test_minus_zero_hashes_as_zero() -> None:
    assert RunConfig.of(weight_decay=-0.0) == RunConfig.of(weight_decay=0.0)
    assert RunConfig.of(weight_decay=-0.0).hash() == RunConfig.of(weight_decay=0.0).hash()


FROZEN = json.loads((Path(__file__).parents[1] / "hashes.json").read_text())


def test_hashes_of_a_frozen_list_of_configurations_are_what_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Results on disk are found by these. A later setting gets an entry in LEFT_OUT_AT, and a change of
    # behaviour raises a revision: neither is a reason to change a line of the file.
    then = {"queries_per_class": 50} | {
        new: LEFT_OUT_AT[old] for old, new in named_today(LEFT_OUT_AT).items() if new not in REMOVED
    }
    for frozen in FROZEN:
        assert resolve(RunConfig.of(then | frozen["settings"])).hash() != frozen["hash"]
    for protocol in PROTOCOLS.values():
        monkeypatch.setattr(protocol, "revision", 1)  # as it was then
    for method in METHODS.values():
        monkeypatch.setattr(method, "traits", replace(method.traits, revision=1))
    for frozen in FROZEN:
        config = RunConfig.of(then | frozen["settings"])
        assert resolve(config).hash() == frozen["hash"], frozen["settings"]
        assert config.hash() == frozen["hash"], frozen["settings"]


@dataclass(frozen=True, kw_only=True)
class LaterSettings(HagMetaSettings):
    """As if there were a newer version with one more setting."""

    pooling: str = setting(
        "sum",
        "a setting that came later",
        Choice(("sum", "mean")),
        scope="method",
    )


def test_a_later_setting_is_hashed_unless_it_has_the_value_of_earlier_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = RunConfig.of(hidden=64).hash()
    monkeypatch.setitem(LEFT_OUT_AT, "pooling", "mean")  # type: ignore[misc]
    monkeypatch.setattr(METHODS["hag-meta"], "own_settings", LaterSettings)
    for cached in (configs.config_class, configs._fixed_or_unused):
        monkeypatch.setattr(configs, cached.__name__, cache(cached.__wrapped__))
    as_before, other = RunConfig.of(hidden=64, pooling="mean"), RunConfig.of(hidden=64)
    assert as_before.hash() == before != other.hash()
    assert set(as_before.unhashed()) - set(other.unhashed()) == {"pooling"}
    assert as_before.canonical()["pooling"] == "mean"  # the record has it all the same


def test_revision_of_a_setting_counts_where_the_setting_is_in_effect() -> None:
    assert RunConfig.of(smoothing=0.5).revisions() == {"protocol": 2, "smoothing": 2}
    for config in (RunConfig.of(), RunConfig.of(smoothing=0)):
        assert config.revisions() == {"protocol": 2}


def test_a_revision_above_the_first_changes_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    config, cec = RunConfig.of(), RunConfig.of(method="cec")
    plain = [config.hash(), cec.hash()]
    assert config.revisions() == {"protocol": 2}
    method = METHODS["cec"]
    monkeypatch.setattr(method, "traits", replace(method.traits, revision=2))
    assert RunConfig.of(method="cec").revisions() == {"method": 2, "protocol": 2}
    assert [RunConfig.of().hash(), RunConfig.of(method="cec").hash() == plain[1]] == [plain[0], False]
    monkeypatch.setattr(PROTOCOLS["strict"], "revision", 3)
    assert RunConfig.of().revisions() == {"protocol": 3}
    assert RunConfig.of().hash() != plain[0]
    assert RunConfig.of(protocol="released").revisions() == {"protocol": PROTOCOLS["released"].revision}
    debian = replace(datasets._REGISTRY["debian"], revision=2)
    monkeypatch.setitem(datasets._REGISTRY, "debian", debian)
    assert RunConfig.of().revisions() == {"dataset": 2, "protocol": 3}


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({}, []),
        ({"hidden": 32, "n_way": 3, "classes": (12, 12, 27)}, []),  # what they are anyway
        ({"k_shot": 1}, ["k_shot"]),  # training queries follow
        ({"k_shot": 1, "query_shot": 5}, ["k_shot", "query_shot"]),
        ({"protocol": "released", "query_shot": 20}, []),
        ({"n_way": 2, "nla": False}, ["n_way", "nla"]),  # sessions follow
        ({"method": "gpn", "nla": False}, []),  # the method decides
        ({"method": "cec", "cosine_scale": 8.0}, ["cosine_scale"]),
    ],
)
def test_what_was_given_is_what_would_be_otherwise_without(
    settings: dict[str, Any], given: list[str]
) -> None:
    assert sorted(resolve(RunConfig.of(**settings)).given()) == given


@pytest.mark.parametrize("group", [LayerSettings, TaskSettings, PhaseSettings, HagMetaSettings])
def test_a_group_of_settings_checks_its_own(group: type[Settings]) -> None:
    for item in fields(group):
        with pytest.raises(UserError, match=item.name):
            group(**{item.name: object()})


def test_equal_values_of_other_types_are_told_apart_however_often_they_were_checked() -> None:
    # Values that were checked before are known: True is equal to 1, and is no number.
    for _ in range(2):
        assert RunConfig.of(k_shot=1).k_shot == 1
        assert type(RunConfig.of(dropout=0).dropout) is float and type(RunConfig.of(k_shot=2.0).k_shot) is int
        with pytest.raises(UserError, match="k_shot is True; expected a whole number"):
            RunConfig.of(k_shot=True)
        with pytest.raises(UserError, match="expected three whole numbers"):
            RunConfig.of(classes=(True, 2, 3))


def test_nothing_is_left_open_in_a_resolved_configuration() -> None:
    for method in METHODS:
        for protocol in PROTOCOLS:
            resolved = resolve(RunConfig.of(method=method, protocol=protocol))
            left = [item.name for item in fields(resolved) if getattr(resolved, item.name) is BY_METHOD]
            assert not left, (method, protocol)
