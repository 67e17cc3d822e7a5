"""The builders of embedded graphs, on sources and packages of our own."""

from __future__ import annotations

import gzip
import io
import json
import runpy
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hagmeta.common.errors import UserError
from hagmeta.datasets.downloads import sources, wordnet_files
from hagmeta.datasets.downloads.download import RemoteFile, sha256
from hagmeta.datasets.formats import package
from hagmeta.datasets.formats.word_features import in_no_order
from tools.datasets import (
    build_bible,
    build_boost,
    build_foldoc,
    build_kanji,
    build_metamath,
)

ROOT = Path(__file__).resolve().parents[4]

ARTICLES = {  # by headwords
    "ada": "   <language, a> A language for {B (http://b)} by {nets}\n   and {bus}. <x@a>\n\n   (1999-01-02)",
    "böc": "   1. <language> For {ADA} and {rarity}.\n\n   2. <language> By {no\n   one}.  [{Jargon File}]",
    "net": "   <networking> For {bus} by {net} {tlas}.",
    "bus|no one": "   <networking> By <language> {Ada} and {nets}.",
    "buse": "   1. <networking> For {ada}.\n\n   2. <language> By {ada}.",
    "rarity": "   <rare> For {ada}.",
    "nothing": "   For {ada}.",
    "own": "       <language> For {ada}.",
    "jargon file": "   <language> {Ada}",
    "tlas": "   <language> {Ada} {bus}",
}
KEPT = ("ada", "böc", "net", "bus", "jargon file")


def foldoc() -> tuple[str, str, dict[str, str]]:
    """A dictionary, its index, and the name of the article under each headword."""
    dictionary, index, names = "", [], {}
    for headwords, text in ARTICLES.items():
        article = headwords.replace("|", "\n") + f"\n\n{text}\n\n"
        start, size = len(dictionary.encode()), len(article.encode())
        dictionary += article
        for headword in headwords.split("|"):
            index.append("\t".join((headword, *map(in_base_64, (start, size)))))
            names[headword] = str(start)
    return dictionary, "\n".join(sorted(index)), names


def in_base_64(number: int) -> str:
    high, low = divmod(number, 64)
    return (in_base_64(high) if high else "") + build_foldoc._DIGITS[low]


@pytest.fixture
def small_foldoc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_foldoc, "MIN_ARTICLES_PER_TAG", 2)
    monkeypatch.setattr(build_foldoc, "MIN_ARTICLES_PER_WORD", 2)


@pytest.mark.usefixtures("small_foldoc")
def test_foldoc_is_built_by_its_rules() -> None:
    dictionary, index, names = foldoc()
    built = build_foldoc.build(dictionary, index)
    headword = {names[headword]: headword for headword in KEPT}
    order = [headword[name] for name in in_no_order(headword)]
    # Left out: senses of two subjects, a rare one, none, Debian's own, a list of acronyms.
    assert built.class_names == ("language", "networking")
    assert [built.class_names[label] for label in built.labels] == [
        "networking" if name in ("net", "bus") else "language" for name in order
    ]
    # "nets" is the plural of a headword; a source, an address and a loop are no edges.
    edges = {tuple(sorted((order[a], order[b]))) for a, b in built.edges}
    of_ada = {("ada", other) for other in ("bus", "böc", "jargon file", "net")}
    assert edges == of_ada | {("bus", "böc"), ("bus", "net")}
    # The columns are ada, and, bus, by, for, nets: no subject, no address, no date.
    rows = dict(zip(order, built.features.toarray().tolist(), strict=True))
    assert rows["ada"] == [0, 1, 1, 1, 1, 1] and rows["böc"] == [1, 1, 0, 1, 1, 0]
    assert rows["bus"] == [1, 1, 0, 1, 0, 1] and rows["jargon file"] == [1, 0, 0, 0, 0, 0]


METAMATH = """\
$( A header. $)
$( ####################
   TITLES ELSEWHERE
   #################### $)
$c ( ) -> + |- wff $.  $v ph ps $.
wph $f wff ph $.
$(
####################
      A PART
####################
$)
$(
#*#*#*#*#*#*#*#*#*#*#
      Logic  and
      proofs
#*#*#*#*#*#*#*#*#*#*#
$)
wi $a wff ( ph -> ps ) $.
${ mp.1 $e |- + $.
  mp $a |- ph $.
$}
id $p |- ( ph -> ph ) $= wph wph mp $( a comment in a proof $) wi $.
id2 $p |- ( ph -> ph ) $= ( mp id wi unknown ) ABCZD $.
$(
#*#*#*#*#*#*#*#*#*#*#
      Sums
#*#*#*#*#*#*#*#*#*#*#
$)
sum $p |- ( ph + ph ) $= ( mp ) A $.
sum2 $p |- ( ph + ph ) $= ( id2 sum ) A $.
$(
#*#*#*#*#*#*#*#*#*#*#
      Rare
#*#*#*#*#*#*#*#*#*#*#
$)
rare $p |- ( ph + ph ) $= ( sum ) A $.
$(
####################
      SUPPLEMENTARY MATERIAL (USER'S MATHBOXES)
####################
$)
$(
#*#*#*#*#*#*#*#*#*#*#
      Mathbox for A. Person
#*#*#*#*#*#*#*#*#*#*#
$)
mine $p |- ( ph + ph ) $= ( sum ) A $.
mine2 $p |- ( ph + ph ) $= ( sum ) A $.
"""


@pytest.fixture
def small_metamath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_metamath, "MIN_STATEMENTS_PER_SECTION", 2)
    monkeypatch.setattr(build_metamath, "MIN_STATEMENTS_PER_SYMBOL", 2)
    monkeypatch.setattr(build_metamath, "MAX_CITATIONS", 2)


@pytest.mark.usefixtures("small_metamath")
def test_metamath_is_built_by_its_rules() -> None:
    built = build_metamath.build(METAMATH)
    order = in_no_order(["id", "id2", "mp", "sum", "sum2"])
    assert built.class_names == ("Logic and proofs", "Sums")  # one is rare, one a mathbox
    assert [built.class_names[label] for label in built.labels] == [
        "Sums" if label.startswith("sum") else "Logic and proofs" for label in order
    ]
    # "mp" is cited by three, so edges to it are left out; syntax and what is not there are no nodes.
    edges = {tuple(sorted((order[a], order[b]))) for a, b in built.edges}
    assert edges == {("id", "id2"), ("id2", "sum2"), ("sum", "sum2")}
    # The columns are ( ) + ->: neither variables nor the hypothesis of "mp".
    rows = dict(zip(order, built.features.toarray().tolist(), strict=True))
    assert rows["mp"] == [0, 0, 0, 0]
    assert rows["id"] == [1, 1, 0, 1] and rows["sum"] == [1, 1, 1, 0]
    assert built.node_order is not None
    in_source = sorted(zip(built.node_order.tolist(), order, strict=True))
    assert in_source == list(enumerate(["mp", "id", "id2", "sum", "sum2"]))


NOUNS = """\
  1 This is the licence.
00000001 05 n 02 dog 0 a 1 003 @ 00000002 n 0000 + 00000001 v 0101 @ 09999999 n 0000 | an animal that; "which"
00000002 05 n 01 animal 0 002 ~ 00000001 n 0000 ~ 00000003 n 0000 | an animal
00000003 05 n 01 cat 0 001 @ 00000002 n 0000 | an animal that runs; "open
00000004 03 n 01 entity 0 000 | that which is
"""
VERBS = """\
00000001 38 v 01 run 0 002 + 00000001 n 0101 $ 00000001 v 0000 02 + 02 00 + 08 00 | that which runs
"""
NODES = ("n1", "n2", "n3", "n4", "v1", "a1", "a2")
ADJECTIVES = """\
00000001 00 s 01 quick 0 001 & 00000002 a 0000 | an animal
00000002 00 a 01 fast 0 001 & 00000001 a 0000 | that which runs
"""


def test_wordnet_is_built_by_its_rules() -> None:
    built = wordnet_files.build([NOUNS, VERBS, ADJECTIVES])
    order = [
        name.replace("0", "") for name in in_no_order(f"{kind}0000000{number}" for kind, number in NODES)
    ]
    assert built.class_names == ("adj.all", "noun.Tops", "noun.animal", "verb.motion")
    files = {"n4": "noun.Tops", "n": "noun.animal", "v": "verb.motion", "a": "adj.all"}
    assert [built.class_names[label] for label in built.labels] == [
        files.get(name) or files[name[0]] for name in order
    ]
    # A satellite adjective is found by pointers to adjectives; a loop and what is not there are no edges.
    edges = {tuple(sorted((order[a], order[b]))) for a, b in built.edges}
    assert edges == {("n1", "n2"), ("n1", "v1"), ("n2", "n3"), ("a1", "a2")}
    # The columns are an, animal, runs, that, which; examples do not count, with their quotes open or closed.
    rows = dict(zip(order, built.features.toarray().tolist(), strict=True))
    assert built.num_features == 5
    assert rows["n1"] == [1, 1, 0, 1, 0] and rows["n3"] == [1, 1, 1, 1, 0] and rows["v1"] == [0, 0, 1, 1, 1]


def test_wordnet_keeps_the_best_connected() -> None:
    built = wordnet_files.build([NOUNS, VERBS, ADJECTIVES], most=2)
    assert np.bincount(built.labels).tolist() == [2, 1, 2, 1]
    assert len(built.edges) == 3  # the cat, with one neighbour, is out


VERSES = {
    "Genesis 1:1": "In the beginning God made [the] earth.",
    "Genesis 1:2": "# And the earth was void.",
    "Genesis 2:1": "The earth, the genesis of John.",
    "Jude 1:1": "In the end.",
    "1 John 1:1": "In the beginning was God.",
    "1 John 1:2": "And the earth.",
}
REFERENCES = """const s = { gen: [[["gen"]], [["1"], ["1jn 1:1", "gen 1:2"], ["gen 1:2"]], [["2"], []]],
jud: [[["jud"]], [["1"], ["gen 1:1"]]],
"1jn": [[["1jn"]], [["1"], ["gen 1:1", "jud 1:1"], ["gen 2:1"]]] }, c = ["gen"], h = ({ book: a }) => a;"""


@pytest.fixture
def small_bible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_bible, "MIN_VERSES_PER_BOOK", 2)
    monkeypatch.setattr(build_bible, "MIN_VERSES_PER_WORD", 2)


@pytest.mark.usefixtures("small_bible")
def test_bible_is_built_by_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    built = build_bible.build(json.dumps(VERSES), REFERENCES)
    order = in_no_order(place for place in VERSES if place != "Jude 1:1")  # its book is too small
    assert built.class_names == ("Genesis", "1 John")  # in the order of the text
    assert [built.class_names[label] for label in built.labels] == [
        place.rpartition(" ")[0] for place in order
    ]
    # A reference in both directions is one edge; a verse does not refer to itself.
    edges = {tuple(sorted((order[a], order[b]))) for a, b in built.edges}
    assert edges == {
        ("1 John 1:1", "Genesis 1:1"),
        ("Genesis 1:1", "Genesis 1:2"),
        ("1 John 1:2", "Genesis 2:1"),
    }
    # The columns are and, beginning, earth, god, in, the, was: no words of the names of books.
    rows = dict(zip(order, built.features.toarray().tolist(), strict=True))
    assert rows["Genesis 1:1"] == [0, 1, 1, 1, 1, 1, 0] and rows["Genesis 2:1"] == [0, 0, 1, 0, 0, 1, 0]
    monkeypatch.setattr(build_bible, "MAX_VERSES_PER_BOOK", 1)
    assert np.bincount(build_bible.build(json.dumps(VERSES), REFERENCES).labels).tolist() == [1, 1]


HEADERS = {
    "config.hpp": "#include <vector>",
    "any/any.hpp": "#include <boost/any/detail/cast.hpp>\n#include <vector>\n/* class\n */ std :: move(x);",
    "any/detail/cast.hpp": '# include "../any.hpp"\nclass any; // struct\nint std_x;',
    "mpl/a.hpp": "#include <boost/any/any.hpp>\n#include <boost/config.hpp>\nclass std::move",
    "mpl/b.hpp": '  #include "a.hpp"\n//#include <boost/any/any.hpp>\n#include <vector>\nint x;',
    "mpl/preprocessed/c.hpp": "#include <boost/mpl/a.hpp>",
    "detail/a.hpp": "#include <boost/mpl/a.hpp>",
    "detail/b.hpp": "#include <boost/mpl/a.hpp>",
    "rare/a.hpp": "#include <boost/mpl/a.hpp>",
}


@pytest.fixture
def small_boost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_boost, "MIN_HEADERS_PER_LIBRARY", 2)
    monkeypatch.setattr(build_boost, "MIN_HEADERS_PER_FEATURE", 2)


@pytest.mark.usefixtures("small_boost")
def test_boost_is_built_by_its_rules() -> None:
    built = build_boost.build(HEADERS)
    order = in_no_order(["any/any.hpp", "any/detail/cast.hpp", "mpl/a.hpp", "mpl/b.hpp"])
    # Left out: a header in no folder, a generated one, shared internals, a small library.
    assert built.class_names == ("any", "mpl")
    assert [built.class_names[label] for label in built.labels] == [path[:3] for path in order]
    # Headers are found from the top and from their own folder; comments include nothing.
    edges = {tuple(sorted((order[a], order[b]))) for a, b in built.edges}
    assert edges == {
        ("any/any.hpp", "any/detail/cast.hpp"),
        ("any/any.hpp", "mpl/a.hpp"),
        ("mpl/a.hpp", "mpl/b.hpp"),
    }
    # The columns are <vector>, class, int, std::move: nothing of comments, no names of Boost's own.
    rows = dict(zip(order, built.features.toarray().tolist(), strict=True))
    assert rows["any/any.hpp"] == [1, 0, 0, 1] and rows["any/detail/cast.hpp"] == [0, 1, 1, 0]
    assert rows["mpl/a.hpp"] == [0, 1, 0, 1] and rows["mpl/b.hpp"] == [1, 0, 1, 0]


KANJIDIC = """\
# KANJIDIC
海 3324 U6d77 B85 G2 S9 Q3815.7 カイ うみ T1 あ {sea} {ocean}
洋 4D4E U6d0b B85 S9 Q3815.1 ヨウ {ocean} {western style}
林 4E53 U6797 B75 C99 S8 Q4499.0 リン はやし {grove}
森 3F39 U68ee B75 S12 Q4099.4 シン リン T1 カイ {forest} {grove}
枝 3B5E U679d B75 S8 Q4494.7 シ {bough}
口 387D U53e3 B30 S3 Q6000.0 コウ {mouth}
"""
EDICT = """\
EDICT /EDICT/
海洋 [かいよう] /(n) ocean/
海海森 [x] /(n) x/
森の枝 [x] /(n) x/
枝森 [x] /(n) 海口/
海口 [x] /(n) x/
"""


@pytest.fixture
def small_kanji(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_kanji, "MIN_CHARACTERS_PER_RADICAL", 2)
    monkeypatch.setattr(build_kanji, "MIN_CHARACTERS_PER_FEATURE", 2)


@pytest.mark.usefixtures("small_kanji")
def test_kanji_is_built_by_its_rules() -> None:
    built = build_kanji.build(KANJIDIC, EDICT)
    order = in_no_order("海洋森枝")  # one is in no word, and one has a radical of its own
    assert built.class_names == ("75 木", "85 水")
    assert [built.class_names[label] for label in built.labels] == [
        "85 水" if name in "海洋" else "75 木" for name in order
    ]
    edges = {tuple(sorted((order[a], order[b]))) for a, b in built.edges}
    assert edges == {("洋", "海"), ("枝", "森"), ("森", "海")}  # kana between two kanji separate them
    # The columns are corner 1: 3 and 4, corner 2: 8, corner 3: 1 and 9, corner 4: 5, corner 5: 7, ocean, and
    # strokes: 9. No reading counts: one is in hiragana, one is in names, others are rare.
    rows = dict(zip(order, built.features.toarray().tolist(), strict=True))
    assert rows["海"] == [1, 0, 1, 1, 0, 1, 1, 1, 1] and rows["洋"] == [1, 0, 1, 1, 0, 1, 0, 1, 1]
    assert rows["森"] == [0, 1, 0, 0, 1, 0, 0, 0, 0] and rows["枝"] == [0, 1, 0, 0, 1, 0, 1, 0, 0]


def test_the_classical_radical_comes_first() -> None:
    radicals = {name: character.radical for name, character in build_kanji._characters(KANJIDIC)}
    assert radicals == {"海": 85, "洋": 85, "林": 99, "森": 75, "枝": 75, "口": 30}


def test_order_is_the_same_anywhere_and_none_of_the_names() -> None:
    names = ["a", "b", "c", "d", "e"]
    assert in_no_order(names) == in_no_order(reversed(names)) == ["d", "c", "b", "e", "a"]


# The packages and the commands.


@pytest.fixture
def write_package(tmp_path: Path) -> Callable[[dict[str, str | bytes]], Path]:
    def write(files: dict[str, str | bytes]) -> Path:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:xz") as tar:
            for name, text in files.items():
                content = text.encode() if isinstance(text, str) else text
                entry = tarfile.TarInfo(f"./{name}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        members = {"debian-binary": b"2.0", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
        deb = tmp_path / "own.deb"
        deb.write_bytes(
            b"!<arch>\n"
            + b"".join(
                f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
                + content
                + b"\n" * (len(content) % 2)
                for name, content in members.items()
            )
        )
        return deb

    return write


def own(deb: Path) -> RemoteFile:
    return RemoteFile(deb.name, f"https://example.org/{deb.name}", sha256=sha256(deb))


def test_files_are_read_out_of_a_package(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a": "one", "usr/b": "zwölf"})
    assert package.read(deb, own(deb), ["usr/b", "usr/a"]) == ["zwölf", "one"]
    with pytest.raises(UserError, match=r"own.deb: cannot be read \(.*usr/c"):
        package.read(deb, own(deb), ["usr/c"])


def test_a_dictionary_is_unpacked(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a.dict.dz": gzip.compress("zwölf".encode())})
    assert package.read(deb, own(deb), ["usr/a.dict.dz"]) == ["zwölf"]


def test_another_encoding_is_read(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a": "海".encode("euc_jp")})
    assert package.read(deb, own(deb), ["usr/a"], "euc_jp") == ["海"]
    with pytest.raises(UserError, match=r"own.deb: cannot be read \("):
        package.read(deb, own(deb), ["usr/a"])


def test_a_folder_is_read_out_of_a_package(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a": "one", "usr/b/c": "two", "usr/b/d/e": b"\xff", "usr/bb": "four"})
    assert package.read_folder(deb, own(deb), "usr/b") == {"c": "two", "d/e": "\ufffd"}


def test_a_package_of_npm_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.tgz"
    with tarfile.open(path, mode="w:gz") as tar:
        entry = tarfile.TarInfo("package/json/a.json")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"{}"))
    assert package.read(path, own(path), ["json/a.json"]) == ["{}"]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"own.tgz: cannot be read \("):
        package.read(path, own(path), ["json/a.json"])


@pytest.mark.parametrize("content", [b"", b"!<arch>\n", b"!<arch>\nshort", b"PK"])
def test_what_is_no_package_is_said_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.deb").write_bytes(content)
    with pytest.raises(UserError, match=r"bad.deb: cannot be read \(") as error:
        package.read(tmp_path / "bad.deb", own(tmp_path / "bad.deb"), ["a"])
    assert "\n" not in str(error.value)


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a builder's command, which must end with status 2 and write nothing; returns what it prints."""

    def run(name: str, *arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, "out.npz", *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_module(f"tools.datasets.build_{name}", run_name="__main__")
        assert end.value.code == 2 and not (tmp_path / "out.npz").exists()
        return capsys.readouterr().err

    return run


def test_another_version_is_refused(
    write_package: Callable[[dict[str, str | bytes]], Path], refused: Callable[..., str]
) -> None:
    deb = write_package({build_metamath.DATABASE: METAMATH})
    [line] = refused("metamath", "--deb", str(deb)).splitlines()
    assert line.startswith(f"{deb}: expected {sources.METAMATH.name} from ")
    assert line.endswith(f"its SHA-256 is {sha256(deb)}; expected {sources.METAMATH.sha256}.")


def test_two_packages_are_both_checked(
    write_package: Callable[[dict[str, str | bytes]], Path], refused: Callable[..., str]
) -> None:
    deb = str(write_package({build_kanji.CHARACTERS: KANJIDIC}))
    assert f"expected {sources.KANJIDIC.name} from " in refused("kanji", "--packages", deb, deb)
    assert refused("kanji", "--packages", deb)


def test_a_package_that_is_absent_is_said(refused: Callable[..., str]) -> None:
    assert refused("wordnet", "--deb", "absent.deb").startswith("absent.deb: cannot be read (")
