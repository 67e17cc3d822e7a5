"""The pages of the documentation that are made from the code, and the examples that they show."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import cards
import generated
import pytest
import reference
import yaml

import hagmeta
from hagmeta import datasets
from hagmeta.common.plugins.identity import is_identity
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS
from hagmeta.common.records.record_schema import schema
from hagmeta.common.settings.left_out import HASHED_AS, OLD_NAMES, REMOVED, REPLACED
from hagmeta.common.traits import MethodTraits
from hagmeta.config.run_config import OWNERS, SETTINGS
from hagmeta.methods import METHODS
from study.space import file as space_file
from study.space import spaces as space

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
    declared = {owner.__name__ for owner in OWNERS.values()}
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


def test_the_release_has_one_version_and_one_date() -> None:
    cited = yaml.safe_load((DOCS.parent / "CITATION.cff").read_text())
    assert str(cited["version"]) == hagmeta.__version__
    released = f"\n## {hagmeta.__version__} - {cited['date-released']}\n"
    assert released in (DOCS.parent / "CHANGELOG.md").read_text()


def test_every_embedded_graph_has_a_card() -> None:
    page = cards.data_cards()
    for name, module in datasets.EMBEDDED.items():
        card = page.partition(f"### `{name}`\n")[2].partition("###")[0]
        assert all(text in card for text in (module.CARD.licence, *module.CARD.biases, *module.CARD.limits))
        assert f"{module.INFO.nodes:,} nodes, {module.INFO.edges:,} edges" in card


def test_every_graph_with_references_has_a_row() -> None:
    page = reference.reference_table()
    assert "| `debian` | 3-way 5-shot |" in page and "Methods without references: " in page


def test_help_is_that_of_an_installation_at_80_columns() -> None:
    text = reference.help_of("hagmeta datasets convert")
    assert text.startswith("```text\nusage: hagmeta datasets convert ")
    assert max(map(len, text.splitlines())) <= 80


EXAMPLES = re.findall(
    r"^```yaml\n(# (\d+) configurations x (\d+) seeds"
    r"(?:; quick: (\d+) configurations x (\d+) seeds)?\n.*?)^```$",
    (DOCS / "reference/search_space.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("example", EXAMPLES, ids=[text.splitlines()[1] for text, *_ in EXAMPLES])
def test_a_search_space_of_the_page_is_read_as_the_page_says(
    example: tuple[str, ...], tmp_path: Path
) -> None:
    text, *counts = example
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    found = space.read(file)
    assert [str(len(found.configs)), str(len(found.seeds))] == counts[:2]
    assert bool(counts[2]) == ("\nquick:" in text)
    if counts[2]:
        quick = space.read(file, quick=True)
        assert [str(len(quick.configs)), str(len(quick.seeds))] == counts[2:]


def test_every_example_of_a_search_space_is_tested() -> None:
    page = (DOCS / "reference/search_space.md").read_text()
    assert page.count("```yaml") == len(EXAMPLES) > 5
    named = re.findall(r"^\| `(\w+)` \|", page.partition("## Keys")[2].partition("##")[0], re.MULTILINE)
    assert sorted(named) == sorted([*space_file.KEYS, "quick"])


@pytest.mark.parametrize("text", reference.WRONG_SPACES)
def test_wrong_spaces_get_one_line_with_their_place(text: str) -> None:
    message = reference.space_error(text)
    assert re.match(r"error: my_space\.yaml:\d+: ", message)
    assert "\n" not in message


def test_a_file_of_the_root_keeps_its_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    links = "[a](docs/guides/cluster.md#mps) [b](CHANGELOG.md) [c](.ci/run) [d](https://x.org) [e](#top)"
    (tmp_path / "CONTRIBUTING.md").write_text(links)
    expected = (
        "[a](../guides/cluster.md#mps) [b](changelog.md) [c](../../.ci/run) [d](https://x.org) [e](#top)"
    )
    assert reference.root_file("CONTRIBUTING.md") == expected


@pytest.mark.slow
def test_the_python_of_the_first_study_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "start/first_study.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    exec(code, {})
    printed, expected = (re.sub(r"\d", "0", text) for text in (capsys.readouterr().out, shown))
    assert printed.startswith(expected)  # digits may differ between machines


def test_the_counts_of_methods_and_datasets_are_those_of_the_code() -> None:
    methods = sum(not is_identity(name) for name in METHODS)
    real = sum(not name.startswith("synthetic") for name in datasets.names())
    assert f"covers {methods} methods and {real} real datasets" in (DOCS / "index.md").read_text()
    assert f"There are {methods} methods:" in (DOCS / "reference/methods.md").read_text()


def test_the_changelog_lists_every_renamed_setting() -> None:
    text = (DOCS.parent / "CHANGELOG.md").read_text()
    section = text.partition("### Renamed settings")[2].partition("###")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    assert rows.keys() == OLD_NAMES
    for new, old in HASHED_AS.items():
        assert rows[old].startswith("none: " if new in REMOVED else f"`{new}`")
    assert {rows[old] for old in REPLACED} == {"`faithful`, under `released`"}


def test_fields_are_listed_with_their_comments() -> None:
    table = reference.fields_of("hagmeta.common.traits.MethodTraits")
    assert len(table.splitlines()) == 2 + len(fields(MethodTraits))
    assert "| `revision` | `int` | " in table
