"""The pages of the documentation that are made from the code, and the examples that they show."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import generated  # noqa: E402


def test_a_mark_is_replaced_by_what_it_names(monkeypatch) -> None:
    monkeypatch.setitem(generated.GENERATORS, "greeting", lambda name="you": f"hello {name}")
    page = "a\n<!-- generate: greeting -->\n<!-- generate: greeting dear reader -->\nz <!-- no mark -->"
    assert generated.expanded(page) == "a\nhello you\nhello dear reader\nz <!-- no mark -->"
