"""FOLDOC, Metamath and WordNet: what is embedded, and that the real packages give it again."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hagmeta.datasets import (
    Dataset,
    build_foldoc,
    build_metamath,
    build_wordnet,
    describe,
    load,
    npz,
    sources,
)

FINGERPRINTS = {
    "foldoc": "b1ec74a2e6ce2a35d775e803d4f4f71ab76e2404b8dee175017335031b38f796",
    "metamath": "1da99da24c4a1ff730eb0143aa9922dd297b7e11eb825179fa442bb8cf2758ac",
    "wordnet": "a7961681a4b365884a83040d03ed10894f13f294e5ab6d0526e258d143324976",
}
BUILDERS = {"foldoc": build_foldoc, "metamath": build_metamath, "wordnet": build_wordnet}
PACKAGES = {"foldoc": sources.FOLDOC, "metamath": sources.METAMATH, "wordnet": sources.WORDNET}


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


def test_order_of_nodes_tells_nothing_of_their_class(dataset: Dataset) -> None:
    # Were nodes in the order of their source, neighbours in the list would mostly share a class.
    shares = np.bincount(dataset.labels) / dataset.num_nodes
    by_chance = np.sum(shares**2)
    assert np.mean(dataset.labels[1:] == dataset.labels[:-1]) == pytest.approx(by_chance, abs=0.01)


def test_no_feature_gives_a_class_away(dataset: Dataset) -> None:
    classes = np.eye(dataset.num_classes, dtype=np.float32)[dataset.labels]
    both = dataset.features.T @ classes
    precision = both / dataset.features.getnnz(axis=0)[:, None]
    assert np.all(np.minimum(precision, both / classes.sum(axis=0)) <= 0.9)


@pytest.mark.parametrize("name", sorted(FINGERPRINTS))
def test_licences_are_kept_beside_the_data(name: str) -> None:
    licence = Path(npz.__file__).with_name(f"{name}.LICENSE").read_text()
    told = {
        "foldoc": "Version 1.1 or any later version",
        "metamath": "CC0\nPublic Domain Dedication",
        "wordnet": "the same appear on ALL copies",
    }
    assert told[name] in licence


# The real packages, where they are, in $HAGMETA_PACKAGES:
# apt-get download dict-foldoc metamath-databases wordnet-base.


@pytest.fixture(params=sorted(BUILDERS))
def real(request: pytest.FixtureRequest) -> tuple[str, ModuleType, Path]:
    name = request.param
    folder = Path(os.environ.get("HAGMETA_PACKAGES", "."))
    # apt writes the epoch of a version, too: wordnet-base_1%3a3.0-37_all.deb.
    found = list(folder.glob(f"{PACKAGES[name].name.partition('_')[0]}_*.deb"))
    if not found:
        pytest.skip(f"{PACKAGES[name].name} is not in $HAGMETA_PACKAGES")
    return name, BUILDERS[name], found[0]


def test_the_real_package_gives_what_is_embedded(real: tuple[str, ModuleType, Path], tmp_path: Path) -> None:
    name, builder, deb = real
    built = builder.build_from(deb)
    assert built.fingerprint == FINGERPRINTS[name]
    assert built.class_names == load(name, tmp_path).class_names


def test_all_of_wordnet_is_built_from_the_package_put_there(tmp_path: Path) -> None:
    found = list(Path(os.environ.get("HAGMETA_PACKAGES", ".")).glob("wordnet-base_*.deb"))
    if not found:
        pytest.skip(f"{sources.WORDNET.name} is not in $HAGMETA_PACKAGES")
    raw = tmp_path / "wordnet-full/raw"
    raw.mkdir(parents=True)
    (raw / sources.WORDNET.name).symlink_to(found[0].resolve())
    built = load("wordnet-full", tmp_path)
    info = describe("wordnet-full", tmp_path)
    assert (info.nodes, info.edges) == (built.num_nodes, len(built.edges))
    assert (info.features, info.classes) == (built.num_features, built.num_classes)
    assert built.fingerprint == "ae8ca405bcfd7b028b5a50a87f9d0395e855e451651f00622cc5ea47ebbce5a7"
