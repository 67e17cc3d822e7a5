"""Print a digest of each result of this checkout, one JSON object per line, for `same_numbers.py`.

    python benchmarks/same_numbers_side.py [METHOD|analysis ...]

The first line has the number of digests. A case that fails has the error instead of a digest. With methods,
only their runs and learners are computed; with "analysis", only reports.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch

import hagmeta
from analysis.data import reading
from analysis.page import explorer
from analysis.references.place import place
from analysis.references.references import KINDS as REFERENCES
from analysis.references.references import read_references
from analysis.references.tables import compare_tables
from analysis.report import Report
from analysis.tables.table import Cell, Table
from hagmeta import Dataset, Learner, datasets
from hagmeta.common.errors import UserError, choose
from hagmeta.common.records.records import config_hash
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.engine.run import run
from hagmeta.methods import METHODS
from study.search.history import SearchHistory, open_histories
from study.space import spaces as space
from study.store.store import Store
from tests.analysis.conftest import about, figures
from tests.analysis.random_studies import write_study

ROOT = Path(hagmeta.__file__).resolve().parents[1]
CPU = torch.device("cpu")
SEEDS = (0, 1)
IGNORED = {"seconds", "environment", "traits", "given", "births", "scopes", "unhashed", "revisions", "format"}
IGNORED |= {"trained_parameters"}  # counted only since then, and earlier commits are compared
# The cases "hash" have the hash of the configuration, so a renamed setting changes no digest of a run.
IN_HASHES = {"config", "config_hash"}
# Results are the same for all methods of a kind if they are the same for one. These show all that the phases
# treat differently: see `tests/hagmeta/kinds.py`.
KINDS = ("hag-meta", "meta-gnn", "er-gnn", "icarl", "ewc", "tap", "mecoin", "sgc-lda", "posterior-means",
         "frozen", "joint")  # fmt: skip
SYNTHETIC = "synthetic:nodes=401,edges=1500,features=60,classes=10,seed=1"
SMALL = {
    **{"hidden": 8, "embedding": 4, "heads": 2, "projection": 40, "lift": 40, "centres": 40, "codebooks": 6},
    **{"pretrain_epochs": 1, "episodes": 1, "validate_every": 1, "finetune_steps": 2, "inner_steps": 1},
    **{"memory": 3, "n_way": 2, "k_shot": 2},
}
CASES: tuple[dict[str, Any], ...] = (
    *({"protocol": "strict"}, {"rehearsal": "none"}, {"protocol": "released"}, {"protocol": "growing"}),
    *({"visibility": "whole"}, {"rehearsal": "1", "smoothing": 0.5, "logit_adjustment": 1.0}),
    *({"encoder": "gat"}, {"inputs": "svd"}),
    {"classes": (2, 4, 4), "val_classes": "half", "self_training": 1},
)
PROPOSALS = 20
MOST_CONFIGS = 100  # of a larger space, only the first dataset is analysed
STUDIES = 200  # random ones
COMPARED_SEEDS = range(6)  # the fewest that are tested
REPORTS = "analysis"
PLACED = "gkeal", 3  # a method on as many graphs, compared with the references
Case = tuple[str, Callable[[], Any]]  # a name, "KIND DETAILS", and a function that returns what to compare


def cases(only: Sequence[str]) -> Iterator[Case]:
    """Yield all cases, or only reports and the runs and learners of some methods."""
    methods = [each for each in METHODS if not only or each in only]
    for method in methods:
        for case in CASES:
            yield f"run {method} {_text(case)}", lambda m=method, c=case: _run(m, _synthetic(), c)
    for method in [each for each in KINDS if each in methods]:
        yield f"run {method} plain", lambda m=method: _run(m, _synthetic(), {}, plain=True)
        yield f"run {method} on real columns", lambda m=method: _run(m, _dense(), {})
        yield f"run {method} on kanji", lambda m=method: _run(m, _kanji(), {"sessions": 2})
        if not METHODS[method].traits.oracle:
            yield f"learner {method}", lambda m=method: _learner(m)
    if not only:
        yield from _hash_cases()
        yield from proposal_cases(space.names())
    if not only or REPORTS in only:
        yield from analysis_cases(space.names())


def _text(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


@cache
def _synthetic() -> Dataset:
    return datasets.load(SYNTHETIC, Path())


@cache
def _dense() -> Dataset:
    """Return a graph with 40 real columns and 10 classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 10
    features = rng.normal(size=(300, 40)) + 0.5 * rng.normal(size=(10, 40))[labels]
    ends = (np.arange(300)[:, None] + 10 * rng.integers(1, 30, size=(300, 2))) % 300
    edges = np.stack([np.repeat(np.arange(300), 2), ends.ravel()], axis=1)
    return Dataset.from_arrays(
        np.unique(np.sort(edges, axis=1), axis=0), labels, features.astype(np.float32), name="dense"
    )


@cache
def _kanji() -> Dataset:
    return datasets.load("kanji", Path())


_space = cache(space.read)


def _config(method: str, graph: Dataset, settings: dict[str, Any]) -> RunConfig:
    classes = {"classes": (2, 2, 5)} if graph.num_classes == 10 else {}  # kanji has a split
    return RunConfig.of({**SMALL, **classes, "method": method, "dataset": graph, **settings})


def _run(method: str, graph: Dataset, settings: dict[str, Any], *, plain: bool = False) -> Any:
    """Return the records and predictions of a run."""
    options = RunOptions(device=CPU, mode=mode_of(plain=plain))
    outputs = run(_config(method, graph, settings), SEEDS, graph, options)
    left_out = IGNORED | IN_HASHES
    kept = [{k: v for k, v in output.record.items() if k not in left_out} for output in outputs]
    return kept, [output.predictions.arrays() for output in outputs]


def _learner(method: str) -> Any:
    """Return the answers of a learner after `fit` and two calls of `learn`."""
    graph = _synthetic()
    names = np.array(graph.class_names)[graph.labels]
    old = {node: str(name) for node, name in enumerate(names) if name < "4"}
    learner = Learner(method, seed=0, device="cpu", **SMALL).fit(graph, old)
    for new in (("4", "5"), ("6", "7")):
        learner.learn(graph, {name: np.flatnonzero(names == name)[:3].tolist() for name in new})
    scores = learner.predict_proba(graph)["probability"].to_numpy()
    return learner.predict(graph), scores, learner.predict_unknown(graph)["unknown"].to_numpy()


def _hash_cases() -> Iterator[Case]:
    def of(settings: dict[str, Any]) -> str:
        return resolve(RunConfig.of(settings)).hash()

    for method in METHODS:
        for case in CASES:
            yield f"hash {method} {_text(case)}", lambda m=method, c=case: _config(m, _synthetic(), c).hash()
    for pinned in json.loads((ROOT / "tests/hagmeta/hashes.json").read_text()):
        yield f"hash {_text(pinned['settings'])}", lambda settings=pinned["settings"]: of(settings)


def proposal_cases(spaces: Sequence[str]) -> Iterator[Case]:
    """Yield a case for each search of these spaces."""
    for name in spaces:
        read = _space(name)
        if read.search:
            with tempfile.TemporaryDirectory() as folder:
                histories = open_histories(read, Store(Path(folder)))
            for history in histories:
                yield f"proposals {name} {history.cell.title}", lambda cell=history.cell: _proposals(cell)


def _proposals(cell: Any) -> list[list[Any]]:
    """Return the values of the first samples of a search. The result of each is drawn from its values."""
    history = SearchHistory(cell, PROPOSALS, Store(Path()))
    found = []
    for number in range(PROPOSALS):
        found.append(list(history.draw(number).values()))
        score = zlib.crc32(json.dumps(found[-1]).encode()) / 2**32
        history.tell(number, [(score, score)] * len(cell.seeds))
    return found


def analysis_cases(spaces: Sequence[str]) -> Iterator[Case]:
    """Yield a case for each of these spaces, and for random studies."""
    for name in spaces:
        yield f"analysis {name}", lambda n=name: _analysis(lambda folder: invent(n, folder))
        yield f"analysis {name} explorer", lambda n=name: _explorer(lambda folder: invent(n, folder))
    for number in range(STUDIES):
        yield f"analysis random {number}", lambda n=number: _analysis(lambda folder: write_study(folder, n))
    for kind in REFERENCES:
        yield f"analysis among the references {kind}", lambda k=kind: _among_references(k)


def invent(name: str, folder: Path) -> None:
    """Write a record for each configuration of a space, with invented accuracies."""
    configs = _space(name).resolved
    if len(configs) > MOST_CONFIGS:
        configs = tuple(each for each in configs if each.dataset == configs[0].dataset)
    for number, config in enumerate(configs):
        told = about(config)
        runs = folder / "runs" / config.hash()
        runs.mkdir(parents=True)
        for seed in COMPARED_SEEDS:
            rng = np.random.default_rng([zlib.crc32(name.encode()), number, seed])
            curve = (0.6 + 0.1 * (number % 7) / 7 - 0.1 * np.arange(3) + 0.02 * rng.normal(size=3)).tolist()
            (runs / f"{seed}.json").write_text(json.dumps(told | {"seed": seed} | figures(curve)))


@contextmanager
def _study(write: Callable[[Path], Any]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "study"  # its name is in the report
        folder.mkdir()
        write(folder)
        yield folder


def _analysis(write: Callable[[Path], Any]) -> Any:
    """Return all comparisons of a report on a study, and the cells of its tables."""
    with _study(write) as folder:
        results = reading.read([folder])
    report = Report(results)
    families = report.comparisons.families
    compared = [(repr(key), found.told) for family in families for key, found in family.comparisons.items()]
    return compared, _cells(report.tables)


def _cells(tables: Iterable[Table]) -> list[Any]:
    """Return the cells of tables, in an order that does not depend on the order of the page."""
    ordered = sorted(tables, key=lambda table: (table.name, table.title))
    return [(table.name, table.columns, table.rows) for table in ordered]


def _explorer(write: Callable[[Path], Any]) -> Any:
    """Return the numbers of the page to explore."""
    with _study(write) as folder:
        found = explorer.data(Report(reading.read([folder])))
    return {key: value for key, value in found.items() if key != "words"}


def _among_references(kind: str) -> Any:
    """Return all comparisons of a study with the references, and the cells of its tables."""
    with _study(lambda folder: _perturbed(folder, kind)) as folder:
        placed = place([folder], kind=kind)
    compared = [
        (repr(key), found.told) for key, found in placed.analysis.comparisons.reference.comparisons.items()
    ]
    return compared, _cells(compare_tables(placed))


def _perturbed(folder: Path, kind: str) -> None:
    """Write a study with a changed setting and accuracies close to those of a reference."""
    method, count = PLACED
    own = [record for record in read_references().of(kind) if record["config"]["method"] == method]
    graphs = sorted({record["config"]["dataset"] for record in own})[:count]
    for record in own:
        if record["config"]["dataset"] in graphs:
            config = record["config"] | {"hidden": 7}
            name = config_hash(config, record["unhashed"], record["revisions"])
            rng = np.random.default_rng(record["seed"])
            new = figures((np.array(record["macro_accuracy"]) * (0.8 + 0.2 * rng.random())).tolist())
            kept = {key: value for key, value in record.items() if key not in ("births", "backward_transfer")}
            path = folder / "runs" / name / f"{record['seed']}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            told = {"config": config, "config_hash": name, "classes_met": record["classes_met"]}
            path.write_text(json.dumps(kept | new | told))


def digest(found: Any) -> str:
    """Return a hash of `found`: text as it is, and JSON with the bytes of arrays otherwise."""
    if isinstance(found, str):
        return found
    return sha256(json.dumps(found, sort_keys=True, default=_jsonable).encode()).hexdigest()[:16]


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [str(value.dtype), value.shape, sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Cell):
        return vars(value)
    raise TypeError(f"{type(value).__name__} cannot be compared")


def main() -> None:
    """Print the digests. Anything else that is printed goes to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    try:
        only = [choose("case", name, [*METHODS, REPORTS]) for name in sys.argv[1:]]
    except UserError as error:
        sys.exit(str(error))
    found = list(cases(only))
    print(json.dumps({"cases": len(found)}), file=out)
    for name, compute in found:
        line = {"name": name}
        try:
            line["digest"] = digest(compute())
        except Exception as error:  # is compared as well
            line["failed"] = f"{type(error).__name__}: {error}".replace(str(ROOT), ".")
        print(json.dumps(line), file=out)


if __name__ == "__main__":
    main()
