"""Datasets that PyTorch Geometric has, downloaded with our care and read as it reads them."""

from __future__ import annotations

import scipy.sparse
from torch import Tensor
from torch_geometric.datasets import CoraFull, Reddit2

from hagmeta.datasets.pyg_base import CarefulDataset
from hagmeta.datasets.sources import FILES


class Reddit(CarefulDataset, Reddit2):
    """Its 23,213,838 directed edges are the literature's 11,606,919; PyG's own ``Reddit`` has more."""

    remote_files = FILES["reddit"]


class Cora(CarefulDataset, CoraFull):
    """Papers in computer science, joined by citation; classes are topics."""

    remote_files = FILES["cora-full"]

    @staticmethod
    def features(x: Tensor) -> scipy.sparse.csr_matrix:
        return scipy.sparse.csr_matrix(x.numpy())


DATASETS: dict[str, type[CarefulDataset]] = {"reddit": Reddit, "cora-full": Cora}
