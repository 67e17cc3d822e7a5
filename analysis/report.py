"""Define a report: results, their comparisons, and the tables and findings that state these."""

from __future__ import annotations

from functools import cached_property

from analysis.comparisons import Analysis
from analysis.findings import Finding, findings
from analysis.tables.across import across_tables
from analysis.tables.designs import rank_tables
from analysis.tables.margins import margin_tables
from analysis.tables.over_datasets import control_table, rating_table
from analysis.tables.panels import make_tables
from analysis.tables.papers import follower_tables, published_tables
from analysis.tables.table import Table


class Report(Analysis):
    """An analysis with its tables and findings."""

    @cached_property
    def published(self) -> list[Table]:
        """Return the numbers of the paper next to ours."""
        return list(published_tables(self.results))

    @cached_property
    def tables(self) -> list[Table]:
        """Return all tables, in the order of the page within each section."""
        over = (rating_table(self), control_table(self))
        return [
            *across_tables(self),
            *(table for table in over if table),
            *make_tables(self),
            *margin_tables(self),
            *rank_tables(self),
            *self.published,
            *follower_tables(self.results),
        ]

    @cached_property
    def findings(self) -> list[Finding]:
        """Return the findings, the most important first."""
        return findings(self)
