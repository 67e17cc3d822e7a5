"""The public datasets in the ``.mat`` layout, as PyTorch Geometric datasets that download themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data

from hagmeta.datasets import mat
from hagmeta.datasets.base import NodeDataset
from hagmeta.datasets.clean import make_dataset
from hagmeta.datasets.download import RemoteFile, git_blob_id
from hagmeta.datasets.pyg_base import CarefulDataset
from hagmeta.errors import UserError


class MatDataset(CarefulDataset):
    """A graph in the ``.mat`` layout; subclasses say where it lies, and the git blob id of each file."""

    url: str
    prefix: str
    blobs: tuple[str, str, str]  # of the network, the train and the test file

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def remote_files(self) -> tuple[RemoteFile, ...]:  # type: ignore[override]
        return tuple(
            RemoteFile(name, f"{self.url}/{name}", blob)
            for name, blob in zip(self.raw_file_names, self.blobs, strict=True)
        )

    @property
    def raw_file_names(self) -> list[str]:
        return [self.prefix + suffix for suffix in mat.SUFFIXES]

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def process(self) -> None:
        # Files put there by hand have not been checked before.
        for file, path in zip(self.remote_files, self.raw_paths, strict=True):
            if git_blob_id(Path(path)) != file.blob:
                raise UserError(
                    f"{path}: its git blob id is {git_blob_id(Path(path))}; expected {file.blob}. "
                    f"Delete it and run again, or put {file.url} in its place."
                )
        dataset = mat.load(str(Path(self.raw_dir) / self.prefix), type(self).__name__)
        features = scipy.sparse.coo_matrix(dataset.features)
        data = Data(
            x=torch.sparse_coo_tensor(
                torch.from_numpy(np.stack(features.coords)), torch.from_numpy(features.data), features.shape
            ),
            edge_index=torch.from_numpy(np.ascontiguousarray(dataset.edges.T)),
            y=torch.tensor([int(name) for name in dataset.class_names])[torch.from_numpy(dataset.labels)],
        )
        self.save([data], self.processed_paths[0])


class AmazonClothing(MatDataset):
    r"""Clothing, shoes and jewelry on Amazon, joined when bought together; classes are kinds of product.

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

    url = (
        "https://raw.githubusercontent.com/Zhen-Tan-dmml/GFCIL/"
        "9b78210418711a795280c588f55aef63f7df5b3b/few_shot_data"
    )
    prefix = "Amazon_clothing"
    blobs = (
        "1d9cde48180cce0e9f9fc08628362e661d9e2b20",
        "c6b954abbf44b9ab48d393949b7d2900345671f6",
        "69b1b026da94e601cee465b44ac04457fd82d621",
    )


class DBLP(MatDataset):
    r"""Papers in computer science, joined by citation; classes are venues.

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

    url = AmazonClothing.url
    prefix = "dblp"
    blobs = (
        "10ad9ae1029106cdcfa11e857c96af338119cbff",
        "363e9afefbedce08cff5d1da94abfb35d1dc3734",
        "865c7aba67d1d23d40644143bcc91b61bf0ccfe8",
    )


class AmazonElectronics(MatDataset):
    r"""Electronics on Amazon, joined when bought together; classes are kinds of product.

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

    url = (
        "https://raw.githubusercontent.com/kaize0409/GPN_Graph-Few-shot/"
        "40ef635aa2a81f175e56c5588e1d50688f6aa85e/few_shot_data"
    )
    prefix = "Amazon_eletronics"  # sic
    blobs = (
        "79da2f1117c024987ef96fdc9382ac0c8b64c8ce",
        "e1f86759374345bfbb250ef5ababa3b5686209a7",
        "a7d46745f30e910aac6aabe8321d0b3c8f6087dd",
    )


DATASETS: dict[str, type[MatDataset]] = {
    "amazon-clothing": AmazonClothing,
    "dblp": DBLP,
    "amazon-electronics": AmazonElectronics,
}


def load(name: str, root: Path) -> NodeDataset:
    """Load one of DATASETS from ``root``, downloading it on first use."""
    data = DATASETS[name].open(root)[0]
    features = data.x.coalesce()
    return make_dataset(
        name,
        edges=data.edge_index.numpy().T,
        labels=data.y.numpy(),
        features=scipy.sparse.csr_matrix(
            (features.values().numpy(), features.indices().numpy()), shape=tuple(features.shape)
        ),
        source=str(root),
    )
