"""Measure the page to explore: its size, the time until it is drawn, and the time of each change.

    python benchmarks/explorer.py --folder results/made --make 5000

The first command makes a study of random predictions, with all metrics and the files that real runs have.
It needs selenium, chromium and chromedriver.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hagmeta.common.records.records import StudyFolder, config_hash
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.engine.scores.embeddings import to_bytes
from hagmeta.scenarios.metrics import metrics_of
from hagmeta.scenarios.predictions import Predictions

METHODS = ("hag-meta", "icarl", "cec", "er-gnn")
GRID = {"learning_rate": (0.001, 0.002, 0.005, 0.01, 0.02), "hidden": (16, 32, 64, 128, 256)}
SEEDS = 10
KNOWN, N_WAY, SESSIONS, QUERIES = 24, 3, 8, 10  # classes, classes, sessions, queries per class
SIZES = {"1280": (1280, 800), "390": (390, 844)}
DRAWN = "return Number(document.documentElement.dataset.drawn)"
CHOOSE = """const select = document.getElementById('choose-{}');
select.selectedIndex = (select.selectedIndex + 1) % select.length;
select.dispatchEvent(new Event('change', {{bubbles: true}}));"""
CHANGES = {
    "another dataset": CHOOSE.format("dataset"),
    "another metric": CHOOSE.format("metric"),
    "show all": "document.querySelector('[data-show=all]').click();",
    "hide one": "document.querySelector('#list input').click();",
}
# Reading a height makes the browser compute the layout.
CLOCK = "const start = performance.now(); {} document.body.offsetHeight; return performance.now() - start"


def make_study(folder: Path, runs: int) -> None:
    """Write a study with `runs` runs, rounded up to whole datasets."""
    random = np.random.default_rng(0)
    configs: list[dict[str, Any]] = [
        {"method": method, **dict(zip(GRID, values, strict=True))}
        for method, values in product(METHODS, product(*GRID.values()))
    ]
    for graph in range(-(-runs // (len(configs) * SEEDS))):
        for settings in configs:
            skill = 0.35 + 0.3 * random.random()
            config = resolve(RunConfig.of(**settings, n_way=N_WAY, sessions=SESSIONS))
            for seed in range(SEEDS):
                _write_run(StudyFolder(folder), config, f"graph-{graph}", seed, skill)


def _write_run(store: StudyFolder, config: RunConfig, dataset: str, seed: int, skill: float) -> None:
    told = {**config.canonical(), "dataset": dataset}
    key = config_hash(told, config.unhashed(), config.revisions()), seed
    predictions = _predictions(np.random.default_rng((seed, int(key[0], 16))), seed, skill)
    record: dict[str, Any] = {
        "format": 1,
        "config": told,
        "config_hash": key[0],
        "seed": seed,
        "data": f"{dataset:0<64}".encode().hex()[:64],
        "given": config.given(),
        "unhashed": config.unhashed(),
        "scopes": config.scopes(),
        "revisions": config.revisions(),
        "leaks": False,
        "oracle": False,
        "traits": {"title": told["method"], "role": "baseline", "oracle": False, "transductive": ""},
        **metrics_of(predictions),
        "validation": {"gpil": None, "stream": None},
        "seconds": {"pretrain": 1.0, "evaluate": 0.02 * told["hidden"] + skill},
        "environment": {"device": "CPU", "seeds_in_pack": SEEDS, "torch": "2", "commit": "0" * 40},
    }
    for path in (store.runs / key[0] / f"{seed}.json", store.predictions_of(key)):
        path.parent.mkdir(parents=True, exist_ok=True)
    store.predictions_of(key).write_bytes(to_bytes(predictions.arrays()))
    (store.runs / key[0] / f"{seed}.json").write_text(json.dumps(record))


def _predictions(random: np.random.Generator, seed: int, skill: float) -> Predictions:
    """Return random predictions; each session is harder, and all runs of a seed have the same queries."""
    count = KNOWN + N_WAY * SESSIONS
    order = np.random.default_rng(seed).permutation(count)
    made = Predictions((order[:KNOWN], *order[KNOWN:].reshape(SESSIONS, N_WAY)))
    for session in range(SESSIONS + 1):
        true = np.repeat(made.met(session), QUERIES)
        right = random.random(len(true)) < skill * (1 - 0.04 * session)
        predicted = np.where(right, true, random.choice(made.met(session), len(true)))
        made.add(true * 100 + np.tile(np.arange(QUERIES), len(true) // QUERIES), predicted, true)
    return made


def measure(page: Path) -> Iterator[tuple[str, float]]:
    """Yield what was measured in the browser, in seconds."""
    browser = _browser()
    try:
        for scheme, (name, size) in product(("light", "dark"), SIZES.items()):
            _emulate(browser, *size, scheme)
            browser.get("about:blank")
            browser.get(page.resolve().as_uri())
            yield f"opened, {name} pixels, {scheme}", browser.execute_script(DRAWN) / 1000
        _emulate(browser, *SIZES["1280"], "light")
        for name, script in CHANGES.items():
            yield name, browser.execute_script(CLOCK.format(script)) / 1000
    finally:
        browser.quit()


def _browser() -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def _emulate(browser: Any, width: int, height: int, scheme: str) -> None:
    size: Mapping[str, Any] = {
        "width": width,
        "height": height,
        "deviceScaleFactor": 1,
        "mobile": width < 500,
    }
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def main() -> None:
    """Write the page of a study and measure it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="the study")
    parser.add_argument(
        "--make", type=int, metavar="RUNS", help="make the study first, with RUNS random runs"
    )
    options = parser.parse_args()
    if options.make:
        make_study(options.folder, options.make)

    from analysis.comparisons import Analysis
    from analysis.data.reading import read
    from analysis.page import explorer

    results = read([options.folder])
    start = time.process_time()
    page = options.folder / explorer.NAME
    html = explorer.render(Analysis(results), title=options.folder.name, command="", report="index.html")
    page.write_text(html, encoding="utf-8")
    print(f"{len(results.runs):,} runs, {len(results.panels)} settings, {len(results.labels)} configurations")
    print(f"written: {time.process_time() - start:.1f} s of CPU time, {page.stat().st_size / 2**20:.2f} MiB")
    for name, seconds in measure(page):
        print(f"{name}: {seconds:.2f} s")


if __name__ == "__main__":
    main()
