"""Datasets that PyTorch Geometric has, downloaded with our care and read as it reads them."""

from __future__ import annotations

from pathlib import Path

import scipy.sparse
from torch_geometric.datasets import CoraFull, Reddit2

from hagmeta.datasets.base import NodeDataset
from hagmeta.datasets.clean import make_dataset
from hagmeta.datasets.download import RemoteFile
from hagmeta.datasets.pyg_base import CarefulDataset


def _google_drive(name: str, file_id: str) -> RemoteFile:
    return RemoteFile(name, f"https://drive.usercontent.google.com/download?id={file_id}&confirm=t")


class Reddit(CarefulDataset, Reddit2):
    """Its 23,213,838 directed edges are the 11,606,919 of the literature; PyG's ``Reddit`` has five times as many."""

    remote_files = (
        _google_drive("adj_full.npz", Reddit2.adj_full_id),
        _google_drive("feats.npy", Reddit2.feats_id),
        _google_drive("class_map.json", Reddit2.class_map_id),
        _google_drive("role.json", Reddit2.role_id),
    )


class Cora(CarefulDataset, CoraFull):
    """Papers in computer science, joined by citation; classes are topics."""

    remote_files = (RemoteFile("cora.npz", CoraFull.url.format("cora")),)


DATASETS: dict[str, type[CarefulDataset]] = {"reddit": Reddit, "cora-full": Cora}
SPARSE = {"cora-full"}


def load(name: str, root: Path) -> NodeDataset:
    """Load one of DATASETS from ``root``, downloading it on first use."""
    data = DATASETS[name].open(root)[0]
    features = data.x.numpy()
    return make_dataset(
        name,
        edges=data.edge_index.numpy().T,
        labels=data.y.numpy(),
        features=scipy.sparse.csr_matrix(features) if name in SPARSE else features,
        source=str(root),
    )
