"""The embedded dataset boost: headers of the Boost C++ libraries, classified by library."""

from __future__ import annotations

from pathlib import Path

from hagmeta.datasets.base import Dataset, DatasetInfo
from hagmeta.datasets.embedded.card import DataCard
from hagmeta.datasets.formats import npz

INFO = DatasetInfo(
    name="boost",
    description="headers of the Boost C++ libraries and their includes, by library",
    source="embedded",
    nodes=12_118,
    edges=54_412,
    features=600,
    classes=70,
    class_split=(19, 18, 33),
    n_way=3,
    k_shot=5,
)

CARD = DataCard(
    source="Boost 1.74, from Debian 12's package `libboost1.74-dev`",
    url="https://www.boost.org",
    cite="Boost C++ libraries, version 1.74. Copyright Boost project contributors. https://www.boost.org",
    licence="BSL-1.0",
    licence_urls=("https://spdx.org/licenses/BSL-1.0.html",),
    nodes="Header files.",
    classes="The library of the header, which is the first folder of its path. Libraries with fewer than 40 "
    "headers are left out. So are headers in no folder, shared internals (`boost/detail`), and headers that "
    "the preprocessor generated.",
    edges="Two headers are joined if one includes the other by its name.",
    features="Keywords of C++, names of the standard library, such as `std::move`, and included headers of "
    "the standard library or the system, such as `<vector>`. At least 3 headers must use them. They are "
    "binary. Comments and Boost's own names are not features.",
    findings=(
        "No feature predicts a library with precision and recall both above 0.48.",
        "No model was trained to choose these rules, and the default split is the one that `hagmeta` proposes"
        " for your own graph.",
    ),
    biases=(
        "Code of one project, in one language.",
        "Libraries with many small headers have most of the nodes.",
    ),
    limits=(
        "Most neighbours share a class, so edges alone tell much about it.",
        "Headers that only include others have no feature.",
        "Includes whose name is a macro have no edge.",
    ),
)


def load() -> Dataset:
    """Read the file in this folder."""
    return npz.load(Path(__file__).parent / "data" / "boost.npz", INFO.name)
