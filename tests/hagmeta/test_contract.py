"""Every method keeps the contract that `hagmeta.testing` checks: no leaks, seeds apart, plain mode."""

from __future__ import annotations

from typing import Any

from hagmeta.common.identity import is_identity
from hagmeta.methods import METHODS
from hagmeta.testing import parametrize_with_checks


@parametrize_with_checks([name for name in METHODS if not is_identity(name)])
def test_method(method: str, check: Any) -> None:
    check(method)
