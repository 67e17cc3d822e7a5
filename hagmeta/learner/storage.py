"""Save and load learners: an archive of arrays (``.npz``) with a header in JSON, and without pickle.

=========================  ====================================================================
entry                      content
=========================  ====================================================================
``header``                 bytes of a JSON object: format, settings, labels, node ids, names
``parameters/NAME``        a parameter of the method
``before/NAME``            the parameter before the last session, if the method needs it
``fits/KIND/words``        word weights of tf-idf or svd inputs (features,)
``fits/KIND/basis``        basis of svd inputs (features, width)
``checksum``               SHA-256 of all other entries, so that damaged and edited files are refused
=========================  ====================================================================
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hagmeta.common.errors import UserError, shown
from hagmeta.common.files.files import check_writable, writing, written_whole
from hagmeta.common.files.outputs import Kind
from hagmeta.common.version import __version__
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.clean import one_line, require_data_file
from hagmeta.engine.cache import Fits
from hagmeta.engine.engine import EngineState
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.novelty import Novelty
from hagmeta.learner.state import State
from hagmeta.learner.table import Columns, NodeId
from hagmeta.methods import METHODS, make_method
from hagmeta.methods.base import Sizes
from hagmeta.packs.pack import Parameters
from hagmeta.sparse.inputs import Fit, narrow_inputs, width_of

Arrays = dict[str, Any]  # by entry

HEADER, CHECKSUM = "header", "checksum"  # entries
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
    arrays: Arrays = {}
    for group, states in (("parameters", state.engine.parameters), ("before", state.engine.before)):
        arrays |= {f"{group}/{name}": value.numpy() for each in states for name, value in each.items()}
    for kind, fit in state.fits.by_kind.items():
        arrays |= {f"fits/{kind}/{name}": each for name, each in fit._asdict().items() if each is not None}
    try:
        # Names of features may hold lone surrogates.
        header = json.dumps(_header(state), ensure_ascii=False, allow_nan=False).encode(
            errors="surrogatepass"
        )
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{shown(name)} holds numbers that are not finite")
    except ValueError as error:
        raise UserError(f"the learner cannot be saved: {one_line(error).rstrip('.')}.") from None
    arrays = {HEADER: np.frombuffer(header, dtype=np.uint8), **arrays}
    arrays[CHECKSUM] = np.frombuffer(_checksum(arrays), dtype=np.uint8)
    check_writable("learner", path)
    with writing("learner", path), written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)


def _checksum(arrays: Arrays) -> bytes:
    """Return a hash of all entries except the checksum itself."""
    digest = hashlib.sha256()
    for name in sorted(arrays.keys() - {CHECKSUM}):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.digest()


def load(path: Path, given: Mapping[str, str]) -> State:
    """Read a state from `path`.

    Args:
        path: The file.
        given: The names of the method and the encoder that the user gave, if any, by kind.
    """
    require_data_file(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    except Exception as error:  # damaged bytes make zipfile, zlib and numpy raise many kinds of errors
        raise UserError(f"{path}: not a saved learner, or damaged ({one_line(error)}).") from error
    header = _read_header(path, arrays)
    _check_plugins(path, header, given)
    try:
        state = _state(header, arrays)
    except UserError as error:  # a setting is no longer valid
        raise UserError(f"{path}: {error}") from None
    _check_sizes(path, state)
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
        "played": evidence.simulated,
        "sessions": evidence.sessions,
        "columns": [columns.count, columns.names, columns.sparse, columns.kind],
        "slots": [[_plain(node), slot, int(node in state.left)] for node, slot in state.slots.items()],
        "nodes": state.fits.nodes,
        "memory": [[[_plain(n) for n in nodes] for nodes in session] for session in state.memory],
        "draws": state.engine.draws,
        "step": state.engine.step,
        "temperature": state.temperature,
        "novelty": state.novelty,
    }


def _plain(node: NodeId) -> str | int:
    if isinstance(node, bool) or not isinstance(node, str | int):
        raise UserError(
            f"node id {shown(node)} is of type {type(node).__name__}; expected a string or a whole number."
        )
    return node


def _read_header(path: Path, arrays: Arrays) -> dict[str, Any]:
    """Return the header of a saved learner, or raise an error if the file is not what `save` wrote."""
    try:
        header = dict(json.loads(arrays[HEADER].tobytes()))
        kind, newer = header["kind"], header["version"] > VERSION
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        kind, newer = "", False
    if kind != KIND:
        raise UserError(f"{path}: not a saved learner; expected a file that `Learner.save` wrote.")
    if newer:
        raise UserError(
            f"{path}: saved in format {header['version']} by hagmeta {header['hagmeta']}; this is hagmeta "
            f"{__version__}, which reads formats up to {VERSION}. Install a newer hagmeta."
        )
    if CHECKSUM not in arrays or arrays[CHECKSUM].tobytes() != _checksum(arrays):
        raise UserError(f"{path}: the saved learner is damaged, or was edited: its checksum differs.")
    return header


def _check_plugins(path: Path, header: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Raise an error if the method or the encoder is not there, or not the one that the user gave."""
    decided = METHODS[header["method"]].decides if header["method"] in METHODS else {}
    encoder = header["settings"].get("encoder", decided.get("encoder", DEFAULT_ENCODER))
    for kind, name, registry in (("method", header["method"], METHODS), ("encoder", encoder, ENCODERS)):
        if given.get(kind, name) != name:
            raise UserError(
                f"{path}: saved with the {kind} {shown(name)}, but {kind} is {shown(given[kind])}; leave "
                f"{kind} out, or give the code that the learner was saved with."
            )
        if name not in registry:
            raise UserError(
                f"{path}: the {kind} {shown(name)} is not loaded, or its code has changed; give it as "
                f"{kind}, such as my.py:Mine."
            )


def _state(header: Mapping[str, Any], arrays: Arrays) -> State:
    """Return the state that a header and the arrays of a file describe."""
    count, names, sparse, kind = header["columns"]
    return State(
        config=resolve(RunConfig.of(header["settings"])),
        seed=header["seed"],
        evidence=Evidence(
            class_names=header["class_names"],
            class_of={node: c for node, c, _ in header["labels"]},
            held_out={node for node, _, held_out in header["labels"] if held_out},
            base=header["base"],
            simulated=header["played"],
            sessions=header["sessions"],
        ),
        columns=Columns(count, names and tuple(names), sparse, kind),
        slots={node: slot for node, slot, _ in header["slots"]},
        left={node for node, _, left in header["slots"] if left},
        fits=Fits(header["nodes"], _fits(arrays)),
        engine=EngineState(
            parameters=[_group(arrays, "parameters/")],
            before=[_group(arrays, "before/")],
            finished=len(header["sessions"]) + 1,
            draws=header["draws"],
            step=header["step"],
        ),
        memory=header["memory"],
        temperature=header["temperature"],
        novelty=Novelty(*header["novelty"]),
    )


def _group(arrays: Arrays, prefix: str) -> Parameters:
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): torch.from_numpy(arrays[name]) for name in names}


def _fits(arrays: Arrays) -> dict[str, Fit]:
    kinds = dict.fromkeys(name.split("/")[1] for name in arrays if name.startswith("fits/"))
    return {kind: Fit(arrays[f"fits/{kind}/words"], arrays.get(f"fits/{kind}/basis")) for kind in kinds}


def _check_sizes(path: Path, state: State) -> None:
    """Raise an error if parameters have other names or sizes than those of the method today."""
    config, columns = state.config, state.columns
    sizes = Sizes(
        features=width_of(config.inputs, columns.count),
        base_classes=len(state.evidence.base),
        n_way=config.n_way or 1,
        classes=len(state.evidence.class_names),
        narrow=narrow_inputs(columns.kind, columns.count)[1],
        nodes=state.fits.nodes,
    )
    expected = make_method(config, sizes, state.seed).state_dict()
    found = state.engine.parameters[0]
    if {name: value.shape for name, value in found.items()} != {n: v.shape for n, v in expected.items()}:
        raise UserError(
            f"{path}: {config.method} has other parameters now than when the learner was saved; fit it again."
        )
