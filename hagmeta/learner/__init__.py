"""A learner that is kept between calls: fit it, teach it new classes, ask it, save it."""

from __future__ import annotations

from hagmeta.learner.learner import Learner

__all__ = ["Learner"]
