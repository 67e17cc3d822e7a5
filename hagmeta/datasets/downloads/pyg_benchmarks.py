"""Benchmark graphs of PyTorch Geometric, checked against their published counts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Amazon, CitationFull, Coauthor, EmailEUCore, WikiCS

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.clean import UNLABELLED
from hagmeta.datasets.downloads.pyg_base import CarefulDataset
from hagmeta.datasets.downloads.sources import FILES, INFOS

LEAST_MEMBERS = 25  # of a department with labels: the released protocol needs 5 supports and 20 queries


class CountedDataset(CarefulDataset):
    """A dataset whose counts are known. Files with other counts are refused, since no hash is published."""

    @property
    def processed_dir(self) -> str:
        """Return a folder that differs from PyTorch Geometric's, which may hold files with other contents."""
        return str(Path(self.raw_dir).with_name("hagmeta"))

    @classmethod
    def read(cls, name: str, root: Path) -> Dataset:
        dataset = super().read(name, root)
        [info] = [info for info in INFOS if info.name == name]
        counts = {
            "nodes": (dataset.num_nodes, info.nodes),
            "edges": (len(dataset.edges), info.edges),
            "features": (dataset.num_features, info.features),
            "classes": (dataset.num_classes, info.classes),
        }
        wrong = [
            f"{found:,} {what} (expected {expected:,})"
            for what, (found, expected) in counts.items()
            if found != expected
        ]
        if wrong:
            raise UserError(
                f"{root}: the files are not the published {name}: they have {', '.join(wrong)}. "
                "Delete the folder and run again."
            )
        return dataset


def words_as_sparse(data: Data) -> Data:
    """Store the words of a graph as a sparse matrix. PyTorch Geometric's dense one can exceed 1 GB."""
    assert data.x is not None
    data.x = data.x.to_sparse()
    return data


class CoauthorCS(CountedDataset, Coauthor):
    """Authors in computer science, with edges between co-authors, by field of study.

    Mecoin and LPMC start with 5 base classes and add one class in each of 10 sessions.
    """

    remote_files = FILES["coauthor-cs"]
    arguments: ClassVar = {"name": "CS", "pre_transform": words_as_sparse}


class CoauthorPhysics(CountedDataset, Coauthor):
    """Authors in physics, with edges between co-authors, by field of study."""

    remote_files = FILES["coauthor-physics"]
    arguments: ClassVar = {"name": "Physics", "pre_transform": words_as_sparse}


class AmazonComputers(CountedDataset, Amazon):
    """Computers on Amazon, with edges between products often bought together, by category.

    Mecoin and LPMC start with 5 base classes and add one class in each of 5 sessions.
    """

    remote_files = FILES["amazon-computers"]
    arguments: ClassVar = {"name": "Computers", "pre_transform": words_as_sparse}


class AmazonPhoto(CountedDataset, Amazon):
    """Photo equipment on Amazon, with edges between products often bought together, by category."""

    remote_files = FILES["amazon-photo"]
    arguments: ClassVar = {"name": "Photo", "pre_transform": words_as_sparse}


class CoraML(CountedDataset, CitationFull):
    """Papers on machine learning, with edges for citations, by topic.

    Geometer starts with 2 base classes and adds one class in each of 5 sessions.
    """

    remote_files = FILES["cora-ml"]
    arguments: ClassVar = {"name": "Cora_ML", "pre_transform": words_as_sparse}


class CiteSeerFull(CountedDataset, CitationFull):
    """Papers in computer science, with edges for citations, by area."""

    remote_files = FILES["citeseer-full"]
    arguments: ClassVar = {"name": "CiteSeer", "pre_transform": words_as_sparse}


class DBLPFull(CountedDataset, CitationFull):
    """Papers in computer science, with edges for citations, by area.

    The dataset ``dblp`` is another graph.
    """

    remote_files = FILES["dblp-full"]
    arguments: ClassVar = {"name": "DBLP", "pre_transform": words_as_sparse}


class PubMedFull(CountedDataset, CitationFull):
    """Papers on diabetes, with edges for citations, by type of diabetes."""

    remote_files = FILES["pubmed-full"]
    arguments: ClassVar = {"name": "PubMed", "pre_transform": words_as_sparse}


def with_identity_features(data: Data) -> Data:
    """Give each node one feature, and remove the labels of departments with few members."""
    assert data.y is not None and data.num_nodes is not None
    sizes = torch.bincount(data.y)
    data.y = torch.where(sizes[data.y] < LEAST_MEMBERS, UNLABELLED, data.y)
    data.x = torch.eye(data.num_nodes)
    return data


class EmailEu(CountedDataset, EmailEUCore):
    """Members of a research institution, with edges between those who exchange e-mail, by department.

    The source has no features. We made these choices:

    - The features are the identity matrix, so that each node has one feature. They say nothing about nodes
      that are not visible yet. Rows of the adjacency matrix would.
    - All columns are used unchanged, because tf-idf and SVD of an identity matrix are useless.
    - 25 of the 42 departments have fewer than 25 members. Their members have no label, since a 5-shot task
      of the released protocol needs 25. They stay in the graph.
    """

    remote_files = FILES["email-eu-core"]
    arguments: ClassVar = {"pre_transform": with_identity_features}
    counts: ClassVar[Literal[False]] = False

    def process(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            super().process()


class WikiComputerScience(CountedDataset, WikiCS):
    """Wikipedia articles on computer science, with edges for links, by field.

    The features are means of word vectors. The 520 self-loops among the 216,123 published edges are dropped.
    We do not use the published splits.
    """

    remote_files = FILES["wiki-cs"]
    arguments: ClassVar = {"is_undirected": True}


DATASETS: dict[str, type[CountedDataset]] = {
    "coauthor-cs": CoauthorCS,
    "coauthor-physics": CoauthorPhysics,
    "amazon-computers": AmazonComputers,
    "amazon-photo": AmazonPhoto,
    "cora-ml": CoraML,
    "citeseer-full": CiteSeerFull,
    "dblp-full": DBLPFull,
    "pubmed-full": PubMedFull,
    "email-eu-core": EmailEu,
    "wiki-cs": WikiComputerScience,
}
