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

import io
import json
import math
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
from hagmeta.engine.known.batches import HeldOutBatches, ReplayBatches, batches_of
from hagmeta.engine.known.views import lasting_inputs
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.header import check_header, parsed
from hagmeta.learner.novelty import Novelty
from hagmeta.learner.state import State
from hagmeta.learner.table import Columns, NodeId
from hagmeta.methods import METHODS, make_method
from hagmeta.methods.base import Sizes
from hagmeta.packs.pack import Parameters
from hagmeta.sparse.inputs import Fit, narrow_inputs, width_of

HEADER = "header"  # the entry
MOST_HEADER = 1000  # bytes in front of the numbers of an array
KIND = "hagmeta-learner"
START = b'{"kind": "hagmeta-learner"'  # of the header
DEFAULT_ENCODER = "gcn"  # of methods that have none
VERSION = 1  # increase it when older code cannot read newer files


class Form(NamedTuple):
    """What an entry must look like."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    needed: bool

    @property
    def bytes(self) -> int:
        """Return the size of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


class OtherRevisionWarning(UserWarning):
    """The method has changed since the learner was saved. Its predictions may differ."""


def _is_learner(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive, archive.open("header.npy") as file:
        return START in file.read(1000)


LEARNER = Kind("a saved learner", _is_learner)


def save(state: State, path: Path) -> None:
    """Write `state` to `path`. The file appears only when it is complete."""
    arrays: dict[str, np.ndarray] = {}
    for group, states in (("parameters", state.engine.parameters), ("before", state.engine.before)):
        arrays |= {f"{group}/{name}": value.numpy() for each in states for name, value in each.items()}
    for kind, fit in state.fits.by_kind.items():
        arrays |= {f"fits/{kind}/{name}": each for name, each in fit._asdict().items() if each is not None}
    try:
        # Names of features may hold lone surrogates.
        header = json.dumps(_header(state), ensure_ascii=False).encode(errors="surrogatepass")
        check_header(parsed(header))  # what cannot be loaded is not written
        for name, array in arrays.items():
            _check_finite(name, array)
    except ValueError as error:
        raise UserError(f"the learner cannot be saved: {one_line(error).rstrip('.')}.") from None
    arrays = {HEADER: np.frombuffer(header, dtype=np.uint8), **arrays}
    check_writable("learner", path)
    with writing("learner", path), written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path, given: Mapping[str, str]) -> State:
    """Read a state from `path`. The header is checked first, then all entries, and only then they are read.

    Args:
        path: The file.
        given: The names of the method and the encoder that the user gave, if any, by kind.
    """
    require_data_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            content = _content(archive, entries[HEADER]) if HEADER in entries else b""
            header = _read_header(path, content)
            _check_plugins(path, header, given)
            state = _read(path, archive, entries, header)
    except UserError:
        raise
    except Exception as error:  # damaged bytes make zipfile, zlib and numpy raise many kinds of errors
        raise UserError(f"{path}: not a saved learner, or damaged ({one_line(error)}).") from error
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


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of an entry, which are as many as in the file: `save` does not compress."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise ValueError(f"the entry {shown(entry.filename)} is compressed")
    return archive.read(entry)


def _array(content: bytes) -> np.ndarray:
    """Return the array in an entry. Its size is checked before memory is allocated for it."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array has another format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError("an array has another size than its header says")
    file.seek(0)
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _check_finite(name: str, array: np.ndarray) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{shown(name)} holds numbers that are not finite")


def _read_header(path: Path, content: bytes) -> dict[str, Any]:
    try:
        header = parsed(_array(content).tobytes())
        kind, version = header["kind"], header["version"]
    except (KeyError, TypeError, ValueError):
        kind, version = "", 0
    if kind != KIND:
        raise UserError(f"{path}: not a saved learner; expected a file that `Learner.save` wrote.")
    if type(version) is int and version > VERSION:
        raise UserError(
            f"{path}: saved in format {version} by hagmeta {header.get('hagmeta')}; this is hagmeta "
            f"{__version__}, which reads formats up to {VERSION}. Install a newer hagmeta."
        )
    try:
        check_header(header)
    except ValueError as error:
        raise _damaged(path, error) from None
    return dict(header)


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path}: the saved learner is damaged ({one_line(error)}).")


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


def _read(
    path: Path, archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], header: Mapping[str, Any]
) -> State:
    """Return the state, given a header of the right form."""
    try:
        state = _state(header)
        _check(state, header["settings"], header["method"])
        forms = _forms(state)
        _check_entries(path, archive, entries, forms)
        arrays = {}
        for name in entries.keys() - {HEADER}:
            arrays[name] = _array(_content(archive, entries[name]))
            if (arrays[name].shape, arrays[name].dtype) != forms[name][:2]:
                raise ValueError(f"{shown(name)} has another shape or type")
            _check_finite(name, arrays[name])
    except Exception as error:  # code of a method can raise any error for odd sizes
        raise _damaged(path, error) from None
    parameters, before = ([_group(arrays, prefix)] for prefix in ("parameters/", "before/"))
    return replace(
        state,
        fits=state.fits._replace(by_kind=_fits(arrays)),
        engine=replace(state.engine, parameters=parameters, before=before),
    )


def _state(header: Mapping[str, Any]) -> State:
    """Return the state of a header, without arrays."""
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
        fits=Fits(header["nodes"], {}),
        engine=EngineState(finished=len(header["sessions"]) + 1, draws=header["draws"], step=header["step"]),
        memory=header["memory"],
        temperature=header["temperature"],
        novelty=Novelty(*header["novelty"]),
    )


def _group(arrays: Mapping[str, np.ndarray], prefix: str) -> Parameters:
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): torch.from_numpy(arrays[name]) for name in names}


def _fits(arrays: Mapping[str, np.ndarray]) -> dict[str, Fit]:
    kinds = dict.fromkeys(name.split("/")[1] for name in arrays if name.startswith("fits/"))
    return {kind: Fit(arrays[f"fits/{kind}/words"], arrays.get(f"fits/{kind}/basis")) for kind in kinds}


def _check(state: State, settings: Mapping[str, Any], method: str) -> None:
    """Raise a ValueError if the values of a header do not fit together."""
    evidence, config, columns = state.evidence, state.config, state.columns
    classes, ways, canonical = len(evidence.class_names), config.n_way or 1, config.canonical()
    there = state.slots.keys() - state.left
    kind = batches_of(METHODS[config.method])
    labelled = {c for node, c in evidence.class_of.items() if node in there and node not in evidence.held_out}
    arrived = [evidence.known, *evidence.sessions] if kind is ReplayBatches else []
    for fits, wrong in (
        (all(canonical.get(name) == value for name, value in settings.items()), "settings do not resolve"),
        (config.method == method, "two methods are named"),
        (config.classes == (evidence.known, 0, ways), "the setting classes differs from the known classes"),
        (len(evidence.base) == config.groups[0], "the number of base classes differs"),
        (
            sorted([*evidence.base, *evidence.simulated]) == list(range(evidence.known)),
            "known classes differ",
        ),
        (evidence.known + sum(evidence.sessions) == classes, "classes are missing"),
        (all(size <= ways for size in evidence.sessions), "a session has too many classes"),
        (all(c < classes for c in evidence.class_of.values()), "a label has no class"),
        (labelled == set(range(classes)), "a class has no labelled node in the last graph"),
        (config.inputs != "tf-idf" or columns.kind == "counts", "features are not counts"),
        (len(state.engine.draws) == int(kind is HeldOutBatches), "states of random generators are missing"),
        (list(map(len, state.memory)) == arrived, "remembered classes differ"),
    ):
        if not fits:
            raise ValueError(wrong)


def _forms(state: State) -> dict[str, Form]:
    """Return the shapes and types of all entries that may be there, and whether they must be."""
    config, columns = state.config, state.columns
    sizes = Sizes(
        features=width_of(config.inputs, columns.count),
        base_classes=len(state.evidence.base),
        n_way=config.n_way or 1,
        classes=len(state.evidence.class_names),
        narrow=narrow_inputs(columns.kind, columns.count)[1],
        nodes=state.fits.nodes,
    )
    forms = {}
    for name, value in _parameters(config, sizes, state.seed).items():
        dtype = torch.empty(0, dtype=value.dtype).numpy().dtype
        forms[f"parameters/{name}"] = Form(tuple(value.shape), dtype, True)
        if METHODS[config.method].has("session_statistics"):
            forms[f"before/{name}"] = Form(tuple(value.shape), dtype, False)
    narrow = lasting_inputs(config, columns.kind, columns.count)
    for kind in {config.inputs, narrow} - {"raw", ""}:
        forms[f"fits/{kind}/words"] = Form((columns.count,), np.dtype(np.float64), True)
        if kind == "svd":
            width = width_of(kind, columns.count)
            forms[f"fits/{kind}/basis"] = Form((columns.count, width), np.dtype(np.float64), True)
    return forms


def _parameters(config: RunConfig, sizes: Sizes, seed: int) -> Parameters:
    """Return parameters with the shapes and types of the method, without using memory if that is possible."""
    try:
        with torch.device("meta"):
            return make_method(config, sizes, seed).state_dict()
    except Exception:  # the code of a plug-in may need the values of its tensors
        return make_method(config, sizes, seed).state_dict()


def _check_entries(
    path: Path, archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], forms: Mapping[str, Form]
) -> None:
    """Raise a ValueError if entries are missing, unknown or too large, before they are read."""
    every = archive.infolist()
    if len(entries) != len(every) or any(entry.comment for entry in every):
        raise ValueError("its table of contents is damaged")
    if sum(entry.file_size for entry in every) > path.stat().st_size:
        raise ValueError("its entries overlap")
    for name in [name for name, form in forms.items() if form.needed and name not in entries]:
        raise ValueError(f"{shown(name)} is missing")
    for name in sorted(entries.keys() - forms.keys() - {HEADER}):
        raise ValueError(f"{shown(name)} is unknown")
    for name, form in forms.items():
        if name in entries and not 0 < entries[name].file_size - form.bytes < MOST_HEADER:
            raise ValueError(f"{shown(name)} has another size")
