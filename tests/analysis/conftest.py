from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from analysis.data.results import Results
from analysis.report import Report
from hagmeta.common.records.metrics import forgotten, harmonic_means
from hagmeta.common.records.records import config_hash
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.scenarios import PROTOCOLS
from tests.analysis.browsing import BROWSERS

Write = Callable[..., Path]
TITLES = {
    **{"hag-meta": "HAG-Meta", "proto-gcn": "Proto-GCN", "proto-gat": "Proto-GAT", "meta-gnn": "Meta-GNN"},
    **{"gpn": "GPN", "er-gnn": "ER-GNN", "icarl": "iCaRL", "cec": "CEC", "sgc-ncm": "SGC-NCM"},
    **{"posterior-means": "Posterior means", "joint": "Joint", "frozen": "Frozen"},
}
ROLES = {"hag-meta": "studied", "posterior-means": "proposed", "joint": "bound", "frozen": "bound"}


def traits(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of its method."""
    method = config["method"]
    clause = "visible nodes without labels, queries among them, move its class means"
    moved = (
        any(config.get(key) for key in ("unlabelled_weight", "propagation_weight"))
        and "unlabelled_weight" in config
    )
    return {
        "title": TITLES.get(method, method),
        "role": ROLES.get(method, "baseline"),
        "oracle": method == "joint",
        "transductive": clause if moved else "",
    }


@cache
def about(config: RunConfig) -> dict[str, Any]:
    """What the records of all seeds of a configuration say of it."""
    return {
        "config": config.canonical(),
        "config_hash": config.hash(),
        "data": sha256(config.dataset.encode()).hexdigest(),
        "oracle": config.method == "joint" or getattr(config, "nla_weights", "") == "oracle",
        "leaks": PROTOCOLS[config.protocol].leaks,
        "given": config.given(),
        "unhashed": config.unhashed(),
        "scopes": config.scopes(),
        "revisions": config.revisions(),
        "traits": traits(config.canonical()),
    }


def figures(accuracy: Sequence[float]) -> dict[str, Any]:
    """Return the other fields of a record with these accuracies."""
    sessions = range(len(accuracy))
    drop = accuracy[0] - accuracy[-1]
    matrix = [[accuracy[t]] * (t + 1) for t in sessions]
    whole, later = list(accuracy), [None, *accuracy[1:]]
    return {
        **dict.fromkeys(
            ("accuracy", "base_accuracy", "macro_accuracy", "macro_base_accuracy", "macro_f1"), whole
        ),
        **dict.fromkeys(("novel_accuracy", "new_accuracy", "harmonic"), later),
        **dict.fromkeys(("macro_novel_accuracy", "macro_harmonic"), later),
        "matrix": matrix,
        "classes_met": list(sessions),
        "pd": drop,
        "rpd": drop / accuracy[0],
        "average_accuracy": sum(accuracy) / len(accuracy),
        "forgetting": forgotten(matrix),
        "validation": {"gpil": None, "stream": None},
        "seconds": {"prepare": 0.5, "pretrain": 1.0, "gpil": 2.0, "evaluate": 0.5},
        "environment": {
            "device": "CPU",
            "seeds_in_pack": 2,
            "peak_gpu_bytes": 0,
            "peak_memory_bytes": 2**29,
            "torch": "2.13.0",
            "commit": "0" * 40,
        },
    }


def with_novel(base: Sequence[float], novel: float) -> dict[str, Any]:
    """Return values of a record whose novel accuracy is not that of the base classes."""
    later = [None, *[novel] * (len(base) - 1)]
    matrix = [[first, *[novel] * session] for session, first in enumerate(base)]
    return {
        **{"base_accuracy": list(base), "novel_accuracy": later, "new_accuracy": later},
        **{"harmonic": harmonic_means(base, later), "matrix": matrix, "forgetting": forgotten(matrix)},
    }


def writer(parent: Path) -> Write:
    """Writes runs of one configuration to a study: ``write({seed: accuracies}, nla=False)``."""

    def runs(
        curves: dict[int, Sequence[float]],
        *,
        study: str = "study",
        record: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        config = resolve(RunConfig.of(**({"sessions": len(next(iter(curves.values()))) - 1} | settings)))
        folder, told = parent / study, about(config)
        for seed, accuracy in curves.items():
            path = folder / "runs" / config.hash() / f"{seed}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(told | {"seed": seed} | figures(accuracy) | (record or {})))
        return folder

    return runs


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


@pytest.fixture(scope="module")
def write_once(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Writes what several tests of a module read."""
    return writer(tmp_path_factory.mktemp("studies"))


def rewritten(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """Every record of a study as ``change(record)`` returns it, under the hash of its configuration."""
    for path in sorted(folder.glob("runs/*/*.json")):
        record = change(json.loads(path.read_text()))
        record["config_hash"] = config_hash(record["config"], record["unhashed"], record["revisions"])
        path.unlink()
        there = folder / "runs" / record["config_hash"] / path.name
        there.parent.mkdir(exist_ok=True)
        there.write_text(json.dumps(record))
    return folder


def reconfigured(folder: Path, without: str = "", **settings: Any) -> Path:
    """Every record of a study with these settings, and without one that it has."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        config = {key: value for key, value in (record["config"] | settings).items() if key != without}
        return record | {"config": config}

    return rewritten(folder, change)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures: drawing them takes most of the time of a report."""
    monkeypatch.setattr("analysis.figures.FIGURES", {})


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One headless Chromium for all, which cannot reach any host."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip(
            "no browser: install the packages chromium and chromium-driver to test the pages of a report"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost")
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page from disk, after setting the window, the colour scheme and whether scripts run."""

    def open_page(
        html: str, width: int = 1280, scheme: str = "light", scripts: bool = True, state: str = ""
    ) -> Any:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        browser.get("about:blank")  # the same address with another state is not loaded again
        browser.get(f"{path.as_uri()}#{state}" if state else path.as_uri())
        return browser

    for log in ("browser", "performance"):
        browser.get_log(log)  # what earlier tests left there
    yield open_page
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def sentences(results: Results) -> list[str]:
    """Return the sentences of a report."""
    return [finding.text for finding in Report(results).findings]
