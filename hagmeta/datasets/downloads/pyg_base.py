"""Base class of datasets read with PyTorch Geometric: safe downloads, atomic files, one-line errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch_geometric.data import InMemoryDataset
from torch_geometric.data.data import BaseData

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.clean import one_line
from hagmeta.datasets.downloads.download import RemoteFile, fetch_all


class CarefulDataset(InMemoryDataset):
    """An InMemoryDataset that never uses incomplete files. Subclasses set ``remote_files``.

    ``arguments`` are passed to the class of PyTorch Geometric, in addition to the folder.
    """

    remote_files: tuple[RemoteFile, ...]
    arguments: ClassVar[Mapping[str, Any]] = {}
    counts: ClassVar[Literal[False] | None] = None  # False: all columns are used unchanged

    def download(self) -> None:
        fetch_all(self.remote_files, Path(self.raw_dir))

    @classmethod
    def save(cls, data_list: Sequence[BaseData], path: str) -> None:
        with written_whole(Path(path)) as partial:
            super().save(data_list, str(partial))

    @classmethod
    def read(cls, name: str, root: Path) -> Dataset:
        """Return the graph as a dataset ``name``. It is downloaded and processed on first use."""
        data = cls.open(root)[0]
        return make_dataset(
            name,
            edges=data.edge_index.T,
            labels=data.y,
            features=data.x,
            counts=cls.counts,
            source=str(root),
        )

    @classmethod
    def open(cls, root: Path) -> CarefulDataset:
        """Load the dataset, downloading and processing it on first use."""
        try:
            return cls(str(root), **cls.arguments)
        except UserError:
            raise
        except OSError as error:
            raise UserError(f"{root}: {one_line(error)}.") from error
        except Exception as error:  # damaged bytes make torch and numpy raise many kinds of errors
            raise UserError(
                f"{root}: a file there cannot be read ({one_line(error)}). Delete the folder and run again."
            ) from error
