"""No sentence that its table contradicts: studies of known truth, every sentence held against its table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.analysis.held import check
from tests.analysis.random_studies import write_study

COUNT = 500 if os.environ.get("HAGMETA_FUZZ") else 20
KINDS = (0, 6, 9)  # together they have sentences of most forms
NUMBERS = [pytest.param(number, marks=() if number in KINDS else pytest.mark.slow) for number in range(COUNT)]


@pytest.mark.parametrize("number", NUMBERS)
def test_every_sentence_is_as_its_table_says(tmp_path: Path, number: int) -> None:
    write_study(tmp_path, number)
    assert check(tmp_path).total() > 0
