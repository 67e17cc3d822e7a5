from __future__ import annotations

import pytest

from hagmeta.common.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (20, "20 seconds"), (100, "2 minutes"), (5400, "2 hours"), (200_000, "2 days")],
)
def test_a_duration_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
