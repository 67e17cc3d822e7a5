"""Public datasets in the ``.mat`` layout, as PyTorch Geometric datasets with download."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data

from hagmeta.datasets.downloads.pyg_base import CarefulDataset
from hagmeta.datasets.downloads.sources import FILES
from hagmeta.datasets.formats import mat


class MatDataset(CarefulDataset):
    """A graph in the ``.mat`` layout. Subclasses set ``remote_files``."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def raw_file_names(self) -> list[str]:
        return [file.name for file in self.remote_files]

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def process(self) -> None:
        dataset = mat.load(self.raw_paths[0].removesuffix(mat.SUFFIXES[0]), type(self).__name__)
        features = scipy.sparse.coo_matrix(dataset.features)
        data = Data(
            x=torch.sparse_coo_tensor(
                torch.from_numpy(np.stack(features.coords)),
                torch.from_numpy(features.data),
                features.shape,
                check_invariants=True,
            ),
            edge_index=torch.from_numpy(np.ascontiguousarray(dataset.edges.T)),
            y=torch.tensor([int(name) for name in dataset.class_names])[torch.from_numpy(dataset.labels)],
        )
        self.save([data], self.processed_paths[0])


class AmazonClothing(MatDataset):
    r"""Clothing, shoes and jewelry on Amazon, with edges between products viewed together, by product type.

    **STATS:**

    .. list-table::
        :header-rows: 1

        * - #nodes
          - #edges
          - #features
          - #classes
        * - 24,919
          - 91,680
          - 9,034
          - 77
    """

    remote_files = FILES["amazon-clothing"]


class DBLP(MatDataset):
    r"""Papers in computer science, with edges for citations, by venue.

    **STATS:**

    .. list-table::
        :header-rows: 1

        * - #nodes
          - #edges
          - #features
          - #classes
        * - 40,672
          - 288,270
          - 7,202
          - 137
    """

    remote_files = FILES["dblp"]


class AmazonElectronics(MatDataset):
    r"""Electronics on Amazon, with edges between products bought together, by product type.

    **STATS:**

    .. list-table::
        :header-rows: 1

        * - #nodes
          - #edges
          - #features
          - #classes
        * - 42,318
          - 43,556
          - 8,669
          - 167
    """

    remote_files = FILES["amazon-electronics"]


DATASETS: dict[str, type[MatDataset]] = {
    "amazon-clothing": AmazonClothing,
    "dblp": DBLP,
    "amazon-electronics": AmazonElectronics,
}
