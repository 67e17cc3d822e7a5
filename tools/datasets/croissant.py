"""Write a Croissant file next to each embedded graph, from its card and its arrays.

    python -m tools.datasets.croissant

Croissant describes a dataset in JSON-LD (https://docs.mlcommons.org/croissant). The files have its core
fields, the classes as records, and the fields on collection, biases and limits of its RAI vocabulary.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import hagmeta
from hagmeta.datasets import EMBEDDED, describe, embedded, load
from hagmeta.datasets.embedded.card import OF_ALL

DATA = Path(embedded.__file__).with_name("data")
SUFFIX = ".croissant.json"
PUBLISHED = "2026-11-19"  # first release of all embedded graphs
OWN_WORDS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
CONTEXT = {  # the one that Croissant 1.0 prescribes
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{word: f"cr:{word}" for word in OWN_WORDS.split()},
}


def croissant(name: str) -> dict[str, Any]:
    """Return the content of the Croissant file of an embedded graph."""
    card, info = EMBEDDED[name].CARD, describe(name, Path())
    built = [f"Nodes: {card.nodes}", f"Classes: {card.classes}", f"Edges: {card.edges}"]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": name,
        "description": (
            f"A graph for class-incremental node classification: {info.description}. It has {info.nodes:,} "
            f"nodes, {info.edges:,} edges, {info.features:,} features and {info.classes} classes. "
            f"Made from {card.source}."
        ),
        "version": f"{info.revision}.0.0",
        "datePublished": PUBLISHED,
        "creator": {"@type": "sc:Organization", "name": "The hagmeta contributors"},
        "isBasedOn": card.url,
        "citeAs": card.cite,
        "license": list(card.licence_urls),
        "distribution": [_file(path) for path in files(name)],
        "recordSet": [_classes(name)],
        "rai:dataCollection": " ".join([*built, f"Features: {card.features}"]),
        "rai:dataBiases": list(card.biases),
        "rai:dataLimitations": [*card.limits, *OF_ALL],
    }


def files(name: str) -> list[Path]:
    """Return the arrays of an embedded graph: the graph, and the order of its nodes if it has one."""
    return [path for path in (DATA / f"{name}.npz", DATA / f"{name}_order.npz") if path.exists()]


def _file(path: Path) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": "application/zip",  # a NumPy archive
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def _classes(name: str) -> dict[str, Any]:
    """Return the classes as a set of records: label, name and number of nodes."""
    graph = load(name, Path())
    kinds = {"label": "sc:Integer", "name": "sc:Text", "nodes": "sc:Integer"}
    rows = zip(range(graph.num_classes), graph.class_names, graph.class_sizes.tolist(), strict=True)
    return {
        "@type": "cr:RecordSet",
        "@id": "classes",
        "name": "classes",
        "key": {"@id": "classes/label"},
        "field": [
            {"@type": "cr:Field", "@id": f"classes/{key}", "name": f"classes/{key}", "dataType": kind}
            for key, kind in kinds.items()
        ],
        "data": [{f"classes/{key}": value for key, value in zip(kinds, row, strict=True)} for row in rows],
    }


def main() -> None:
    """Write all files."""
    for name in EMBEDDED:
        path = DATA / f"{name}{SUFFIX}"
        path.write_text(json.dumps(croissant(name), indent=1, ensure_ascii=False) + "\n")
        print(f"{path.relative_to(Path(hagmeta.__file__).parents[1])}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
