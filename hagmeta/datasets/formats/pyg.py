"""Datasets of PyTorch Geometric, with safe downloads."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from torch_geometric.datasets import NELL, CoraFull, Reddit2

from hagmeta.common.files.files import written_whole
from hagmeta.datasets.downloads.pyg_base import CarefulDataset
from hagmeta.datasets.downloads.sources import FILES


class Reddit(CarefulDataset, Reddit2):
    """Reddit posts. Their 23,213,838 directed edges are 11,606,919 undirected ones, as in the literature.

    PyG's ``Reddit`` has more edges.
    """

    remote_files = FILES["reddit"]


class Cora(CarefulDataset, CoraFull):
    """Papers in computer science, with edges for citations, by topic."""

    remote_files = FILES["cora-full"]


class Nell(CarefulDataset, NELL):
    """Entities of a known graph, with edges to their relations, by type of entity.

    Relations are also nodes: 55,864 of the 65,755, each with a separate feature. They have no label, and
    PyTorch Geometric counts them as class 0. Means over classes are not dominated by this class. The files
    are pickles without a published hash, and reading a pickle can run code. Download them only over a network
    that you trust.
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


DATASETS: dict[str, type[CarefulDataset]] = {"reddit": Reddit, "cora-full": Cora, "nell": Nell}
