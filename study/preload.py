"""Import all that a trial needs: workers import this module when they start, before a trial asks for them."""

from __future__ import annotations

from study.early import collector_paused
from study.worker import import_packages

with collector_paused():
    import_packages()
    import study.trial  # noqa: F401
