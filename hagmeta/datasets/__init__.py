"""Datasets by name: ``load`` a dataset, or ``describe`` it without loading.

A name is one of these:

- a name from ``names()``;
- a path to an .npz file, or ``npz:FILE``;
- ``mat:PREFIX`` for .mat files;
- ``synthetic:nodes=...,edges=...,features=...,classes=...`` for a random graph of any size.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from hagmeta.common.errors import UserError, choose, shown
from hagmeta.common.files.files import expanded
from hagmeta.common.plugins.identity import is_identity
from hagmeta.common.plugins.registry import Registry
from hagmeta.common.settings.setting import Settings, setting
from hagmeta.datasets import prepared, synthetic
from hagmeta.datasets.base import UNLABELLED, Dataset, DatasetInfo
from hagmeta.datasets.clean import one_line
from hagmeta.datasets.downloads import arxiv, download, sources
from hagmeta.datasets.embedded import bible, boost, debian, foldoc, kanji, metamath, wordnet
from hagmeta.datasets.formats import mat, npz

__all__ = [
    "DATASETS",
    "UNLABELLED",
    "Dataset",
    "DatasetInfo",
    "DatasetSettings",
    "describe",
    "files_at_hand",
    "fingerprint",
    "load",
    "name_of",
    "names",
    "revision",
]


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(Settings):
    """The graph."""

    dataset: str = setting(
        "debian", "name from `python -m hagmeta datasets`, path FILE.npz, or mat:PREFIX", scope="task"
    )


LARGE = 32e6  # bytes of files or generated arrays; loading more takes about a second

EMBEDDED = {module.INFO.name: module for module in (debian, foldoc, metamath, wordnet, bible, boost, kanji)}


def _read_mat(name: str, folder: Path) -> Dataset:
    """Read a downloaded graph in the ``.mat`` layout. The first of its files has the edges."""
    prefix = sources.FILES[name][0].name.removesuffix(mat.SUFFIXES[0])
    return mat.load(str(folder / prefix), name)


FROM_FILES: dict[str, Callable[[Path], Dataset]] = {  # do not need PyG
    **{name: partial(_read_mat, name) for name in ("amazon-clothing", "dblp", "amazon-electronics")},
    **{"wordnet-full": wordnet.load_full, "ogbn-arxiv": arxiv.read},
}
_REGISTRY = {
    info.name: info
    for info in (*(module.INFO for module in EMBEDDED.values()), *sources.INFOS, *synthetic.INFOS)
}
_held: weakref.WeakValueDictionary[str, Dataset] = weakref.WeakValueDictionary()  # by identity
DATASETS: Registry[Callable[[], Dataset]] = Registry("dataset", {})  # plug-ins
_KINDS = ("mat:", "npz:", "synthetic:")
_FORMS = ("FILE.npz", "mat:PREFIX", "synthetic:nodes=N,edges=E,features=F,classes=C", "file.py:function")


def names() -> tuple[str, ...]:
    """Return the names of the registered datasets."""
    return tuple(_REGISTRY)


def name_of(reference: str | os.PathLike[str] | Dataset) -> str:
    """Return the name of a dataset in configurations and records.

    Args:
        reference: One of these:

            - a name, which is returned as it is;
            - a path to ``my.npz``, which becomes ``npz:my.npz``;
            - a function that makes a dataset, as ``my_graphs.py:roads`` or ``package.module:roads``;
            - the name of an entry point;
            - a dataset. ``load`` finds it by its identity while the object exists.
    """
    if isinstance(reference, Dataset):
        if reference.origin is None:
            _held[reference.identity] = reference
        return reference.identity
    if isinstance(reference, str) and (
        reference in _REGISTRY or reference.startswith(_KINDS) or is_identity(reference)
    ):
        return reference
    if isinstance(reference, str) and not reference.endswith(".npz"):
        return DATASETS.name_of(reference) if DATASETS.knows(reference) else reference
    if not isinstance(reference, str | os.PathLike):
        raise UserError(
            f"dataset is {shown(reference)}; expected a name, or a path to a file that ends in .npz."
        )
    path = os.fsdecode(reference)
    if not path.endswith(".npz"):
        raise UserError(f"dataset is the path {shown(path)}; expected a path that ends in .npz.")
    return f"npz:{path}"


def load(reference: str | os.PathLike[str] | Dataset, root: Path) -> Dataset:
    """Load a dataset.

    Datasets that are neither embedded nor generated are downloaded into ``root`` on first use. Datasets that
    are slow to load are also prepared there; see :mod:`hagmeta.datasets.prepared`.

    Args:
        reference: Any reference that ``name_of`` accepts.
        root: The folder of downloaded and prepared datasets.

    Returns:
        The dataset.
    """
    name = name_of(reference)
    if name in _held:
        return _held[name]
    made_from = _made_from(name, root)
    if made_from is None:
        dataset = _read(name, root)
    else:
        if revision(name) > 1:
            made_from = [*made_from, f"revision {revision(name)}"]
        dataset = prepared.load(name, made_from, root / "prepared", lambda: _read(name, root))
    object.__setattr__(dataset, "origin", name)
    return dataset


def files_at_hand(reference: str | os.PathLike[str]) -> list[Path]:
    """Return the files of an .npz or .mat dataset; an empty list for other datasets."""
    name = name_of(reference)
    kind, _, rest = name.partition(":")
    if rest and kind == "mat":
        return list(mat.paths(rest))
    return [expanded(rest)] if rest and kind == "npz" else []


def _made_from(name: str, root: Path) -> list[str] | None:
    """Return what identifies the content of a dataset before it is read; None if it is fast to load."""
    kind, _, rest = name.partition(":")
    files = files_at_hand(name)
    if files:
        large = all(map(os.path.isfile, files)) and sum(file.stat().st_size for file in files) >= LARGE
        return [prepared.file_identity(file) for file in files] if large else None
    if name in synthetic.PRESETS or (rest and kind == "synthetic"):
        config = synthetic.PRESETS[name] if name in synthetic.PRESETS else synthetic.parse(rest)
        # Another version of numpy may draw different numbers.
        return [repr(config), f"numpy {np.__version__}"] if config.size >= LARGE else None
    if name in sources.FILES:  # prepare even small ones, since importing PyTorch Geometric takes seconds
        folder = _raw_folder(name, root)
        if not describe(name, root).on_disk:
            download.fetch_all(sources.FILES[name], folder)
        return [
            file.sha256 or file.blob or prepared.file_identity(folder / file.name)
            for file in sources.FILES[name]
        ]
    return None


def _read(name: str, root: Path) -> Dataset:
    kind, _, rest = name.partition(":")
    if rest and kind == "mat":
        return mat.load(rest, name)
    if rest and kind == "npz":
        return npz.load(expanded(rest), name)
    if rest and kind == "synthetic":
        return synthetic.generate(name, synthetic.parse(rest))
    if is_identity(name):
        return _made_by_plugin(name)
    choose("dataset", name, (*_REGISTRY, *_FORMS))
    if name in EMBEDDED:
        return EMBEDDED[name].load()
    if name in synthetic.PRESETS:
        return synthetic.generate(name, synthetic.PRESETS[name])

    # Download before the slow import, so that a missing network is reported at once.
    download.fetch_all(sources.FILES[name], _raw_folder(name, root))
    if name in FROM_FILES:
        return FROM_FILES[name](_raw_folder(name, root))
    from hagmeta.datasets.downloads import pyg_benchmarks
    from hagmeta.datasets.formats import pyg

    return (pyg.DATASETS | pyg_benchmarks.DATASETS)[name].read(name, root / name)


def _made_by_plugin(name: str) -> Dataset:
    if name not in DATASETS:
        raise UserError(
            f"dataset {name}: this graph is only in the memory of another process; create or load it here."
        )
    try:
        made = DATASETS[name]()
    except UserError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise UserError(f"dataset {name}: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(made, Dataset):
        raise UserError(
            f"dataset {name}: the plug-in returned a {type(made).__name__}; expected a hagmeta.Dataset, for "
            "example from Dataset.from_arrays."
        )
    return made


def describe(reference: str | os.PathLike[str] | Dataset, root: Path) -> DatasetInfo:
    """Return the facts about a dataset that are known without loading or downloading it."""
    name = name_of(reference)
    kind, _, rest = name.partition(":")
    if rest and kind == "mat":
        on_disk = all(map(os.path.isfile, mat.paths(rest)))
        return DatasetInfo(name, "files in the .mat format", rest, on_disk=on_disk)
    if rest and kind == "npz":
        return DatasetInfo(name, "a file in the .npz format", rest, on_disk=os.path.isfile(expanded(rest)))
    if rest and kind == "synthetic":
        config = synthetic.parse(rest)
        counts = (config.nodes, config.edges, config.features, config.classes)
        return DatasetInfo(name, "random graph", synthetic.SOURCE, *counts)
    if name in _held:
        graph = _held[name]
        counts = (graph.num_nodes, len(graph.edges), graph.num_features, graph.num_classes)
        return DatasetInfo(name, "a graph in memory", "memory", *counts)
    if is_identity(name):
        return DatasetInfo(name, "a graph from a plug-in, or from another process", "plug-in")
    info = _REGISTRY[choose("dataset", name, (*_REGISTRY, *_FORMS))]
    files = sources.FILES.get(name, ())
    return replace(info, on_disk=all((_raw_folder(name, root) / file.name).is_file() for file in files))


def revision(reference: str | os.PathLike[str]) -> int:
    """Return the revision of a registered dataset; 1 for any other reference."""
    name = name_of(reference)
    return _REGISTRY[name].revision if name in _REGISTRY else 1


def _raw_folder(name: str, root: Path) -> Path:
    return root / name / sources.RAW_FOLDERS.get(name, "")


def fingerprint(dataset: Dataset) -> str:
    """Return the SHA-256 of edges, labels, features and a fixed split. The name does not matter."""
    return dataset.fingerprint
