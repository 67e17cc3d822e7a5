"""Student's interval: how far the mean of a few seeds may be from the truth."""

from __future__ import annotations

from functools import cache

import scipy.special


@cache
def student(count: int) -> float:
    """Half the width of the 95 % interval of a mean, in standard errors; NaN for a single value."""
    return float(scipy.special.stdtrit(count - 1, 0.975)) if count > 1 else float("nan")
