"""Build the embedded Boost dataset from Debian's package ``libboost1.74-dev``.

    python -m tools.datasets.build_boost boost.npz [--deb FILE]

Without --deb, the script downloads the package from Debian's archive. It accepts only the version in
hagmeta/datasets/downloads/sources.py. The definition of nodes, classes, edges and features is in
hagmeta/datasets/embedded/boost.py.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.formats import package, word_features
from hagmeta.datasets.formats.word_features import presence
from tools.datasets import building

HEADERS = "usr/include/boost"
LEFT_OUT = ("detail",)  # internals that many libraries share
GENERATED = "preprocessed"  # folders with the output of the preprocessor for each compiler
MIN_HEADERS_PER_LIBRARY = 40
MIN_HEADERS_PER_FEATURE = 3
# The keywords of C++17.
# fmt: off
KEYWORDS = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case",
    "catch", "char", "char16_t", "char32_t", "class", "compl", "const", "const_cast", "constexpr",
    "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
    "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int",
    "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
    "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "return", "short",
    "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned",
    "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
))
# fmt: on

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_NAME = re.compile(r"(?:\bstd[ \t]*::[ \t]*)?\b[A-Za-z_]\w*")


def build(headers: Mapping[str, str]) -> Dataset:
    """Build the dataset from the texts of headers, by their path inside ``boost``."""
    code = {
        path: _COMMENT.sub(" ", text)
        for path, text in headers.items()
        if "/" in path and _library(path) not in LEFT_OUT and GENERATED not in path.split("/")
    }
    sizes = Counter(map(_library, code))
    kept = word_features.in_no_order(
        path for path in code if sizes[_library(path)] >= MIN_HEADERS_PER_LIBRARY
    )
    libraries = sorted(set(map(_library, kept)))
    node = {path: number for number, path in enumerate(kept)}
    edges = [
        (node[path], node[other]) for path in kept for other in _included(path, code[path]) if other in node
    ]
    return make_dataset(
        "boost",
        edges=np.array(edges).reshape(-1, 2),
        labels=np.array([libraries.index(_library(path)) for path in kept], dtype=np.int64),
        features=presence([set(_features(code[path])) for path in kept], minimum=MIN_HEADERS_PER_FEATURE),
        class_names=libraries,
        source="Boost",
    )


def build_from(deb: Path) -> Dataset:
    """Build the dataset from the package file ``deb``."""
    return build(package.read_folder(deb, sources.BOOST, HEADERS))


def _library(path: str) -> str:
    return path.partition("/")[0]


def _included(path: str, code: str) -> Iterator[str]:
    """Yield the paths inside ``boost`` that a header may mean: from the top, or from its own folder."""
    for name in _INCLUDE.findall(code):
        if name.startswith("boost/"):
            yield name.removeprefix("boost/")
        else:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def _features(code: str) -> Iterator[str]:
    """Yield keywords, names of the standard library (``std::move``) and standard headers (``<vector>``)."""
    for name in _INCLUDE.findall(code):
        if re.fullmatch(r"[a-z_]+(\.h)?", name):  # headers of libraries are in folders
            yield f"<{name}>"
    for name in _NAME.findall(_INCLUDE.sub("", code)):
        if name in KEYWORDS or "::" in name:
            yield "".join(name.split())


if __name__ == "__main__":
    building.from_package(sources.BOOST, build_from, __doc__, "tools.datasets.build_boost")
