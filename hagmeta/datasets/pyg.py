"""Datasets that PyTorch Geometric has, downloaded with our care and read as it reads them."""

from __future__ import annotations

from pathlib import Path

import scipy.sparse
from torch_geometric.datasets import CoraFull, Reddit2

from hagmeta.datasets.base import NodeDataset
from hagmeta.datasets.clean import make_dataset
from hagmeta.datasets.pyg_base import CarefulDataset
from hagmeta.datasets.sources import FILES


class Reddit(CarefulDataset, Reddit2):
    """Its 23,213,838 directed edges are the literature's 11,606,919; PyG's own ``Reddit`` has more."""

    remote_files = FILES["reddit"]


class Cora(CarefulDataset, CoraFull):
    """Papers in computer science, joined by citation; classes are topics."""

    remote_files = FILES["cora-full"]


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
