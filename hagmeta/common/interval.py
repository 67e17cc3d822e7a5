"""Student's t interval for the mean over seeds."""

from __future__ import annotations

from functools import cache

import scipy.special


@cache
def student(count: int) -> float:
    """Return half the width of the 95 % interval of a mean, in standard errors; NaN for one value."""
    return float(scipy.special.stdtrit(count - 1, 0.975)) if count > 1 else float("nan")
