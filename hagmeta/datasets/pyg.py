"""Datasets that PyTorch Geometric has, downloaded with our care and read as it reads them."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import scipy.sparse
from torch import Tensor
from torch_geometric.datasets import NELL, CoraFull, Reddit2

from hagmeta.common.files import written_whole
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


class Nell(CarefulDataset, NELL):
    """Entities of a knowledge graph, joined to the relations that they stand in; classes are kinds of entity.

    Relations are nodes, too: 55,864 of the 65,755, each with a feature of its own. They have no label, and
    PyTorch Geometric counts them into class 0, which the mean over classes is not ruled by. The files are
    pickles from an address without a hash, and reading a pickle can run what it holds: fetch them over a
    network that you trust.
    """

    remote_files = FILES["nell"]

    def download(self) -> None:
        super().download()
        raw = Path(self.raw_dir)
        with tarfile.open(raw / self.remote_files[0].name) as archive:
            for name in self.raw_file_names:
                packed = archive.extractfile(f"nell_data/{name}")
                assert packed is not None
                with written_whole(raw / name) as partial, partial.open("wb") as out:
                    shutil.copyfileobj(packed, out)

    @staticmethod
    def features(x: Tensor) -> scipy.sparse.csr_matrix:
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        return scipy.sparse.csr_matrix(parts, shape=tuple(x.shape))


DATASETS: dict[str, type[CarefulDataset]] = {"reddit": Reddit, "cora-full": Cora, "nell": Nell}
