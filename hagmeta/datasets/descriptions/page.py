"""Describe several datasets on one self-contained HTML page that needs no network.

The template draws bars as SVG. The page looks like the report of a study.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hagmeta.datasets.descriptions.probes import MODEL, Probe
from hagmeta.datasets.descriptions.show import facts
from hagmeta.datasets.descriptions.summary import Row, Summary

TEMPLATE = Path(__file__).with_name("page.html.jinja")


def render(summaries: Sequence[Summary], command: str) -> str:
    """Return the page as HTML. It shows ``command`` as the way to make it again."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"thousands": "{:,}".format, "percent": _percent}
    environment.globals |= {"facts": facts, "named": _named, "probed": _probed, "model": MODEL}
    return environment.get_template(TEMPLATE.name).render(summaries=summaries, command=command)


def _percent(part: float) -> str:
    return f"{100 * part:.1f}"


def _named(rows: Sequence[Row]) -> list[tuple[str, float, str]]:
    return [(name, number, f"{number:,}") for name, number in rows]


def _probed(probes: Sequence[Probe]) -> list[tuple[str, float, str]]:
    return [(probe.given, probe.accuracy, f"{_percent(probe.accuracy)} %") for probe in probes]
