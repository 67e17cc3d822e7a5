"""Save and load learners: an archive of arrays (``.npz``) with a header in JSON, and without pickle.

=========================  ====================================================================
entry                      content
=========================  ====================================================================
``header``                 bytes of a JSON object: format, settings, labels, node ids, names
``parameters/NAME``        a parameter of the method
``before/NAME``            the parameter before the last session, if the method needs it
``fits/KIND/words``        word weights of tf-idf or svd inputs (features,)
``fits/KIND/basis``        basis of svd inputs (features, width)
=========================  ====================================================================
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hagmeta.common.errors import UserError, shown
from hagmeta.common.files import check_writable, writing, written_whole
from hagmeta.common.outputs import Kind
from hagmeta.common.version import __version__
from hagmeta.config import RunConfig, resolve
from hagmeta.datasets.clean import one_line
from hagmeta.datasets.npz import read_arrays
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.novelty import Novelty
from hagmeta.learner.state import State
from hagmeta.learner.table import Columns, NodeId
from hagmeta.methods import METHODS, make_method
from hagmeta.methods.base import Sizes
from hagmeta.nn.encoders import ENCODERS
from hagmeta.packs.pack import Parameters
from hagmeta.sparse.inputs import Fit, narrow_kind, width_of

KIND = "hagmeta-learner"
START = b'{"kind": "hagmeta-learner"'  # of the header
DEFAULT_ENCODER = "gcn"  # of methods that have none
VERSION = 1  # increase it when older code cannot read newer files


class OtherRevisionWarning(UserWarning):
    """The method has changed since the learner was saved. Its predictions may differ."""


def _is_learner(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive, archive.open("header.npy") as file:
        return START in file.read(1000)


LEARNER = Kind("a saved learner", _is_learner)


def save(state: State, path: Path) -> None:
    """Write `state` to `path`. The file appears only when it is complete."""
    header = json.dumps(_header(state), ensure_ascii=False).encode()
    arrays = {"header": np.frombuffer(header, dtype=np.uint8)}
    for group, parameters in (("parameters", state.parameters), ("before", state.before)):
        arrays |= {f"{group}/{name}": value.numpy() for name, value in parameters.items()}
    for kind, fit in state.fits.items():
        arrays |= {f"fits/{kind}/{name}": each for name, each in fit._asdict().items() if each is not None}
    check_writable("learner", path)
    with writing("learner", path), written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path) -> State:
    """Read a state from `path`, and check it."""
    arrays = read_arrays(path, "not a saved learner, or damaged")
    header = _read_header(path, arrays)
    _check_plugins(path, header)
    try:
        state = _state(header, arrays)
        _check(state)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: the saved learner is damaged ({one_line(error)}).") from None
    if header["revision"] != METHODS[state.config.method].traits.revision:
        warnings.warn(
            f"{path}: {state.config.method} has changed since the learner was saved; predictions may differ.",
            OtherRevisionWarning,
            stacklevel=4,
        )
    return state


def _header(state: State) -> dict[str, Any]:
    evidence, columns = state.evidence, state.columns
    return {
        "kind": KIND,
        "version": VERSION,
        "hagmeta": __version__,
        "method": state.config.method,
        "revision": METHODS[state.config.method].traits.revision,
        "settings": state.config.canonical(),
        "seed": state.seed,
        "class_names": evidence.class_names,
        "labels": [[_plain(n), c, int(n in evidence.held_out)] for n, c in evidence.class_of.items()],
        "base": evidence.base,
        "played": evidence.played,
        "sessions": evidence.sessions,
        "columns": [columns.count, columns.names, columns.sparse, columns.counts],
        "slots": [[_plain(node), slot, int(node in state.left)] for node, slot in state.slots.items()],
        "nodes": state.nodes,
        "memory": [[[_plain(n) for n in nodes] for nodes in session] for session in state.memory],
        "draws": state.draws,
        "step": state.step,
        "temperature": state.temperature,
        "novelty": state.novelty,
    }


def _plain(node: NodeId) -> str | int:
    if isinstance(node, bool) or not isinstance(node, str | int):
        raise UserError(
            f"node id {shown(node)} is of type {type(node).__name__}; a learner can only be saved if ids are "
            "strings or whole numbers."
        )
    return node


def _read_header(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    try:
        header = json.loads(arrays["header"].tobytes())
        kind, version = header["kind"], int(header["version"])
    except (KeyError, TypeError, ValueError):
        kind, version = "", 0
    if kind != KIND:
        raise UserError(f"{path}: not a saved learner; expected a file that `Learner.save` wrote.")
    if version > VERSION:
        raise UserError(
            f"{path}: saved in format {version} by hagmeta {header.get('hagmeta')}; this is hagmeta "
            f"{__version__}, which reads formats up to {VERSION}. Install a newer hagmeta."
        )
    return dict(header)


def _check_plugins(path: Path, header: Mapping[str, Any]) -> None:
    """Raise an error if the method or the encoder is not there."""
    settings = header.get("settings")
    encoder = settings.get("encoder", DEFAULT_ENCODER) if isinstance(settings, dict) else DEFAULT_ENCODER
    for kind, name, registry in (("method", header.get("method"), METHODS), ("encoder", encoder, ENCODERS)):
        if name not in registry:
            raise UserError(
                f"{path}: the {kind} {shown(name)} is not loaded, or its code has changed; give it as "
                f"{kind}, such as my.py:Mine."
            )


def _state(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> State:
    count, names, sparse, counts = header["columns"]
    return State(
        config=resolve(RunConfig.from_record(header["settings"])),
        seed=int(header["seed"]),
        evidence=Evidence(
            class_names=[str(name) for name in header["class_names"]],
            class_of={node: int(c) for node, c, _ in header["labels"]},
            held_out={node for node, _, held_out in header["labels"] if held_out},
            base=[int(c) for c in header["base"]],
            played=[int(c) for c in header["played"]],
            sessions=[int(size) for size in header["sessions"]],
        ),
        columns=Columns(int(count), names and tuple(names), bool(sparse), bool(counts)),
        slots={node: int(slot) for node, slot, _ in header["slots"]},
        left={node for node, _, left in header["slots"] if left},
        nodes=int(header["nodes"]),
        fits=_fits(arrays),
        parameters=_group(arrays, "parameters/"),
        before=_group(arrays, "before/"),
        memory=header["memory"],
        draws=header["draws"],
        step=int(header["step"]),
        temperature=float(header["temperature"]),
        novelty=_novelty(*header["novelty"]),
    )


def _novelty(middle: Any, slope: Any, by_odds: Any) -> Novelty:
    return Novelty(float(middle), float(slope), bool(by_odds))


def _group(arrays: Mapping[str, np.ndarray], prefix: str) -> Parameters:
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): torch.from_numpy(arrays[name]) for name in names}


def _fits(arrays: Mapping[str, np.ndarray]) -> dict[str, Fit]:
    kinds = dict.fromkeys(name.split("/")[1] for name in arrays if name.startswith("fits/"))
    return {kind: Fit(arrays[f"fits/{kind}/words"], arrays.get(f"fits/{kind}/basis")) for kind in kinds}


def _check(state: State) -> None:
    """Raise a ValueError if the parts of a state do not fit together."""
    evidence, config, columns = state.evidence, state.config, state.columns
    classes, slots, ways = len(evidence.class_names), list(state.slots.values()), config.n_way or 1
    sizes = Sizes(
        features=width_of(config.inputs, columns.count),
        base_classes=len(evidence.base),
        n_way=ways,
        classes=classes,
        narrow=width_of(narrow_kind(columns.counts), columns.count),
        nodes=state.nodes,
    )
    fresh = make_method(config, sizes, state.seed).state_dict()
    expected = {name: value.shape for name, value in fresh.items()}
    for fits, wrong in (
        (sorted([*evidence.base, *evidence.played]) == list(range(evidence.known)), "known classes differ"),
        (evidence.known + sum(evidence.sessions) == classes, "classes are missing"),
        (all(0 < size <= ways for size in evidence.sessions), "a session has too few or too many classes"),
        (all(0 <= c < classes for c in evidence.class_of.values()), "a label has no class"),
        (len(set(slots)) == len(slots) > 0 and min(slots) >= 0, "two nodes have the same place"),
        (columns.names is None or len(columns.names) == columns.count, "feature names are missing"),
        (0 < state.temperature < np.inf, "the temperature is not positive"),
        (np.isfinite(state.novelty).all() and state.novelty.slope > 0, "the map of unknown classes is wrong"),
        (_shapes(state.parameters) == expected, "parameters are missing or have other shapes"),
        (_shapes(state.before).items() <= expected.items(), "parameters have other shapes"),
        (all(len(fit.words) == columns.count for fit in state.fits.values()), "inputs have other features"),
    ):
        if not fits:
            raise ValueError(wrong)


def _shapes(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in parameters.items()}
