"""Build the embedded WordNet dataset from Debian's package ``wordnet-base``.

    python -m tools.datasets.build_wordnet wordnet.npz [--deb FILE]

Without --deb, the script downloads the package from Debian's archive. It accepts only the version in
hagmeta/datasets/downloads/sources.py. The definition of nodes, classes, edges and features is in
hagmeta/datasets/embedded/wordnet.py.
"""

from __future__ import annotations

from hagmeta.datasets.downloads import sources
from hagmeta.datasets.downloads.wordnet_files import build_from
from tools.datasets import building

if __name__ == "__main__":
    building.from_package(sources.WORDNET, build_from, __doc__, "tools.datasets.build_wordnet")
