"""Every method keeps the contract that `hagmeta.testing` checks: no leaks, seeds apart, plain mode."""

from __future__ import annotations

from typing import Any

import pytest

from hagmeta.common.plugins.identity import is_identity
from hagmeta.methods import METHODS
from hagmeta.testing import parametrize_with_checks
from tests.hagmeta.kinds import KINDS

NAMES, PAIRS = parametrize_with_checks([name for name in METHODS if not is_identity(name)]).args


def is_implied(pair: Any) -> bool:
    """Return whether check_packs finds the same: what differs when a seed runs again differs in a pack."""
    return pair.id.endswith("check_deterministic") and pair.values[0] not in KINDS


@pytest.mark.parametrize(
    NAMES,
    [
        pytest.param(*pair.values, id=pair.id, marks=pytest.mark.slow if is_implied(pair) else ())
        for pair in PAIRS
    ],
)
def test_method(method: str, check: Any) -> None:
    check(method)
