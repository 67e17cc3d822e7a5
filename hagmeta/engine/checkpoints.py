"""Checkpoints: store the state of a training pack regularly, so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hagmeta.common.files.files import written_whole
from hagmeta.packs.environment import code_version

LEAST_SECONDS = 10.0  # minimum time between two checkpoints
COST_SHARE = 0.01  # maximum share of the run time that checkpoints may take

State = dict[str, Any]  # tensors, arrays and plain values, in dicts and lists


class Checkpoints:
    """The last state of one pack, in one file.

    The file name has a hash of everything that the state depends on, including the code. So a checkpoint of
    other code or settings is never loaded; `note` names it.
    """

    def __init__(
        self, folder: Path, name: str, made_from: Mapping[str, Any], *, least_seconds: float = LEAST_SECONDS
    ) -> None:
        self._of, self._parts = (folder, name, made_from, least_seconds), list[Checkpoints]()
        whole = json.dumps({**made_from, "torch": torch.__version__, "code": code_version()}, sort_keys=True)
        digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
        self.path = folder / f"{name}-{digest}.pt"
        self._least, self._cost = least_seconds, 0.0
        self._last = time.monotonic()
        self._kept = self._read()
        others = [] if self._kept else sorted(folder.glob(f"{name}-*.pt"))
        self._refused = others[0].name if others else ""
        self.spent: Callable[[], dict[str, float]] = dict  # returns seconds by phase, stored with the state

    @property
    def note(self) -> str:
        """Say in one line from where the run continues, or which checkpoint it cannot use; or nothing."""
        if self._kept:
            return f"continued from a checkpoint at {self._kept['where']}"
        if self._refused:
            return f"started again: {self._refused} is damaged, or was written by other code or settings"
        return ""

    @property
    def spent_before(self) -> dict[str, float]:
        """Seconds by phase that the interrupted run spent."""
        return dict(self._kept["spent"]) if self._kept else {}

    def reached(self, phase: str) -> State | None:
        """Return the stored state if the run was interrupted in `phase`, else None."""
        return self._kept["state"] if self._kept and self._kept["phase"] == phase else None

    def keep(self, phase: str, where: str, make: Callable[[], State]) -> None:
        """Store the state that `make` returns, unless the last checkpoint is recent.

        `where` describes the progress, for messages.
        """
        now = time.monotonic()
        if now - self._last < max(self._least, self._cost / COST_SHARE):
            return
        content = {"phase": phase, "where": where, "spent": self.spent(), "state": _as_tensors(make())}
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with suppress(OSError):  # a full disk must not stop the run
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(self.path) as partial:
                partial.write_bytes(buffer.getbuffer())
        self._last = time.monotonic()
        self._cost = self._last - now

    def part(self, kept: Sequence[int]) -> Checkpoints:
        """Return the checkpoints of some members of the pack, given by their positions."""
        folder, name, made_from, least_seconds = self._of
        part = type(self)(folder, name, {**made_from, "part": list(kept)}, least_seconds=least_seconds)
        self._parts.append(part)
        return part

    def clear(self) -> None:
        """Delete the checkpoints of a finished run."""
        for part in self._parts:
            part.clear()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _read(self) -> State | None:
        try:
            return dict(torch.load(self.path, map_location="cpu", weights_only=True))
        except Exception:  # missing or damaged: the run starts from the beginning
            return None


def _as_tensors(value: Any) -> Any:
    """Return `value` with arrays replaced by tensors, because `weights_only` loads no arrays."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Mapping):
        return {key: _as_tensors(each) for key, each in value.items()}
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Sequence):
        return [_as_tensors(each) for each in value]
    return value
