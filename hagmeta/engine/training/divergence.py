"""Stop the members of a pack whose loss, parameters or scores are not finite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hagmeta.common.errors import Diverged
from hagmeta.common.plugins.identity import without_hash
from hagmeta.engine.context import Context
from hagmeta.packs.capture import Steps
from hagmeta.packs.pack import Pack


def check_losses(
    context: Context,
    steps: Steps,
    phase: str,
    *,
    watched: np.ndarray | bool = True,
    members: Sequence[int] | None = None,
) -> None:
    """Raise `Diverged` if the loss of a member was not finite in any step so far.

    Args:
        context: The members of the run.
        steps: The steps of a phase.
        phase: The name of the phase.
        watched: Whether the steps of a member count. Those after its early stopping do not: alone, the member
            would not take them.
        members: The positions in the run of the members that take steps. By default, these are all.
    """
    first = np.where(watched, steps.first_not_finite(), 0)
    _stop(
        context, first > 0, lambda place: f"its loss is not finite in {phase}, step {first[place]}", members
    )


def check_parameters(
    context: Context, pack: Pack, phase: str, *, members: Sequence[int] | None = None
) -> None:
    """Raise `Diverged` if the last step of `phase` has left a member with parameters that are not finite."""
    _stop(context, ~pack.finite(), lambda _: f"its parameters are not finite after {phase}", members)


def check_scores(context: Context, confidence: np.ndarray, phase: str) -> None:
    """Raise `Diverged` if a member has a query without a finite `confidence` (pack, queries) in `phase`."""
    _stop(context, np.isnan(confidence).any(-1), lambda _: f"its scores are not finite in {phase}")


def _stop(
    context: Context,
    bad: np.ndarray,
    words: Callable[[int], str],
    members: Sequence[int] | None = None,
) -> None:
    method, positions = without_hash(context.settings.method), members or range(len(context.seeds))
    failures = {
        positions[place]: f"{method} diverged with seed {context.seeds[positions[place]]}: {words(place)}"
        for place in np.flatnonzero(bad).tolist()
    }
    if failures:
        raise Diverged(failures)
