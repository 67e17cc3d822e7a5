"""The pages of the documentation that are made from the code, and the examples that they show."""

from __future__ import annotations

from pathlib import Path

import generated
import pytest
import reference

from hagmeta import datasets
from hagmeta.common.identity import is_identity
from hagmeta.common.metrics import BUILT_IN, DIAGNOSTICS
from hagmeta.common.record_schema import schema
from hagmeta.config import SETTINGS, RunConfig, owners_of
from hagmeta.methods import METHODS

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_a_mark_is_replaced_by_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(generated.GENERATORS, "greeting", lambda name="you": f"hello {name}")
    page = "a\n<!-- generate: greeting -->\n<!-- generate: greeting dear reader -->\nz <!-- no mark -->"
    assert generated.expanded(page) == "a\nhello you\nhello dear reader\nz <!-- no mark -->"


def test_every_setting_has_an_entry_with_its_values_and_default() -> None:
    page = reference.settings()
    for name in SETTINGS:
        assert f"### {name}\n" in page or f"| `{name}` |" in page
    assert "### dropout\n" in page
    entry = page.partition("### dropout\n")[2].partition("###")[0]
    assert "**Values:** number (at least 0 and below 1)\\\n**Default:** `0.5`" in entry
    assert "`128` for `posterior-means`" in page.partition("### hidden\n")[2].partition("###")[0]
    assert "**Encoders:** `gat`" in page.partition("### heads\n")[2].partition("###")[0]


def test_every_group_of_settings_exists() -> None:
    declared = {owner.__name__ for owner in owners_of(RunConfig).values()}
    assert {name for names in reference.GROUPS.values() for name in names} <= declared


def test_every_method_has_a_section_and_a_row() -> None:
    table = (DOCS / "reference/methods.md").read_text()
    sections = reference.methods()
    for name, method in METHODS.items():
        if is_identity(name):
            continue
        assert f"`{name}`" in table
        assert f"## {method.traits.title}\n" in sections
        assert f"**Name:** `{name}`" in sections


def test_every_dataset_metric_and_key_of_a_record_has_a_row() -> None:
    assert all(f"| `{name}` |" in reference.dataset_table() for name in datasets.names())
    assert all(f"| `{each.name}` |" in reference.metric_table() for each in BUILT_IN)
    assert all(f"| `{each.name}` |" in reference.diagnostic_table() for each in DIAGNOSTICS)
    assert all(f"| `{key}`" in reference.record_table() for key in schema()["properties"])


def test_help_is_that_of_an_installation_at_80_columns() -> None:
    text = reference.help_of("hagmeta datasets convert")
    assert text.startswith("```text\nusage: hagmeta datasets convert ")
    assert max(map(len, text.splitlines())) <= 80
