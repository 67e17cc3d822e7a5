"""The page to explore: its numbers are those of the tables, and a reader can use it in a browser."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

import hagmeta
from analysis.__main__ import main as report_main
from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.data.results import Panel, Results
from analysis.figures.style import LOOKS
from analysis.page import explorer
from analysis.references.references import load_references
from analysis.tables.cost import cost_table
from analysis.tables.panels import metrics_table, sessions_table, summary_table
from analysis.tables.table import Table
from hagmeta.__main__ import main as hagmeta_main
from hagmeta.common.records.records import StudyFolder
from hagmeta.scenarios.predictions import read_predictions
from tests.analysis.browsing import CONTRAST, DOWN, ENTER, RIGHT, SPACE, find, texts
from tests.analysis.random_studies import write_study

GRAPH = "synthetic:nodes=400,edges=1600,features=40,classes=12"
TASK: dict[str, Any] = {"classes": (4, 2, 6), "n_way": 2, "features": "propagated"}
Show = Callable[..., Any]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs with predictions: two shapes, two methods, and a setting that varies."""
    folder = tmp_path_factory.mktemp("explored")
    data = hagmeta.load_dataset(GRAPH)
    for shots in (3, 5):
        for method in ("sgc-ncm", "sgc-lda"):
            hagmeta.run(method, data, seeds=6, k_shot=shots, **TASK).save(folder)
    for hops in (1, 2):
        hagmeta.run("sgc-ncm", data, seeds=6, k_shot=5, hops=hops, **TASK).save(folder)
    return folder


@pytest.fixture(scope="module")
def results(study: Path) -> Results:
    return read([study])


@pytest.fixture(scope="module")
def html(results: Results) -> str:
    words = {"title": "made", "command": "hagmeta-report made", "report": "index.html"}
    return explorer.render(Analysis(results), **words)


@pytest.fixture(scope="module")
def data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found.group(1))


def panel_of(results: Results, told: dict[str, Any]) -> Panel:
    return next(panel for panel in results.panels if panel.title == told["title"])


def state_of(told: dict[str, Any], **more: Any) -> str:
    chosen = {key: told[key] for key in ("dataset", "protocol", "n_way", "k_shot")}
    return urlencode(chosen | {"show": "*"} | more)


def shown(browser: Any) -> dict[str, dict[str, str]]:
    """The table of the page: texts by configuration and column."""
    columns, *rows = browser.execute_script(
        "return [...document.querySelectorAll('#table tr')].map((row) => [...row.cells]"
        ".map((cell) => (cell.querySelector('.choose') ?? cell).textContent))"
    )
    return {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows}


def cells(table: Table) -> dict[str, dict[str, str]]:
    return {
        row[0].text: {
            name: cell.text + cell.mark for name, cell in zip(table.columns[1:], row[1:], strict=True)
        }
        for row in table.rows
    }


def go(browser: Any, state: str) -> None:
    """Follow a link within the page, and wait until it is drawn."""
    browser.execute_async_script(
        "const [state, done] = arguments; if (location.hash.slice(1) === state) return done();"
        "addEventListener('hashchange', () => setTimeout(done), {once: true}); location.hash = state;",
        state,
    )


# The numbers, in a browser.


def test_every_number_of_the_page_is_in_the_tables(
    show: Show, results: Results, html: str, data: dict[str, Any]
) -> None:
    browser = show(html)
    told = Analysis(results).comparisons
    costs = cost_table(results)
    for panel_told in data["panels"]:
        panel = panel_of(results, panel_told)
        summary, sessions = cells(summary_table(panel, told)), cells(sessions_table(panel, told))
        go(browser, state_of(panel_told))
        page = shown(browser)
        assert list(page) == list(summary)  # in the order of the report
        seconds = {
            row[0].text: row[costs.columns.index("seconds")].text
            for row in costs.rows
            if row[3].text.startswith(_shape(panel_told))
        }
        for label, row in summary.items():
            assert page[label]["seeds"] == row["seeds"]
            assert page[label]["macro accuracy"] == row["last"]
            assert page[label]["minus reference"] == row["last minus reference"]
            assert page[label]["verdict"] == row["verdict"]
            assert page[label]["seconds"] == seconds[label]
        for session, column in ((0, "first"), ("average", "average")):
            go(browser, state_of(panel_told, session=session))
            assert {label: row["macro accuracy"] for label, row in shown(browser).items()} == {
                label: row[column] for label, row in summary.items()
            }
        for session in range(3):
            go(browser, state_of(panel_told, session=session))
            means = {label: row["macro accuracy"].split(" ")[0] for label, row in shown(browser).items()}
            assert means == {label: row[str(session)] for label, row in sessions.items()}
        metrics = metrics_table(panel, told)
        assert metrics is not None
        for title in (name for name in metrics.columns[2:] if name != "average"):
            go(browser, state_of(panel_told, metric=title))
            page = {label: row[title] for label, row in shown(browser).items()}
            assert page == {label: row[title] for label, row in cells(metrics).items()}, title


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_the_references_are_explored_with_the_numbers_of_their_tables(
    show: Show, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["sgc-lda", "sgc-ridge", "ranpac"]
    where = [f"method={method}" for method in methods]
    options = [word for each in ("dataset=foldoc", *where) for word in ("--where", each)]
    out = tmp_path / "references"
    assert report_main(["references", *options, "--explore", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"report: {out / 'index.html'}\n"
    results = load_references("defaults", datasets=["foldoc"]).where({"method": methods})
    (panel,) = results.panels
    browser = show((out / explorer.NAME).read_text())
    assert texts(browser, "h1") == ["Explore reference results (defaults) on foldoc"]
    table = cells(summary_table(panel, Analysis(results).comparisons))
    page = shown(browser)
    assert len(page) == 3 and list(page) == list(table)
    for label, row in table.items():
        assert page[label]["macro accuracy"] == row["last"]
        assert page[label]["minus reference"] == row["last minus reference"]
        assert page[label]["verdict"] == row["verdict"]
    assert texts(browser, "#classes-words") == ["This page has no scores by class of these runs."]
    assert not find(browser, ".pair").is_displayed()  # no predictions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--references", "best"], "invalid choice: 'best' (choose from 'defaults', 'tuned')"),
        (["--where", "dataset=nowhere"], "no run has this value; expected one of amazon-computers"),
    ],
)
def test_references_that_do_not_exist_are_one_line_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert report_main(["references", *options, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and not told.out
    assert not (tmp_path / "out").exists()


def _shape(told: dict[str, Any]) -> str:
    return f"{told['n_way']}-way {told['k_shot']}-shot"


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 11])
def test_made_studies_have_the_numbers_of_their_tables(tmp_path: Path, number: int) -> None:
    write_study(tmp_path, number)
    results = read([tmp_path])
    found = explorer.data(Analysis(results))
    last = {each["title"]: place for place, each in enumerate(found["metrics"])}["accuracy"]
    for told in found["panels"]:
        panel = panel_of(results, told)
        table = cells(summary_table(panel, Analysis(results).comparisons))
        labels = [found["labels"][index] for index in told["rows"]]
        assert labels == list(table)
        for label, values, seeds in zip(labels, told["numbers"][last]["values"], told["seeds"], strict=True):
            assert seeds == table[label]["seeds"]
            for column, (mean, half) in {"last": values[-4:-2], "average": values[-2:]}.items():
                text = "" if mean is None else f"{mean / 10:.1f}"
                assert table[label][column] == (text if half is None else f"{text} ± {half / 10:.1f}")


def test_scores_by_class_are_those_of_the_records(
    study: Path, results: Results, data: dict[str, Any]
) -> None:
    told = data["panels"][0]
    panel = panel_of(results, told)
    for row, label in enumerate(panel_labels(data, told)):
        expected: dict[int, list[float]] = {}
        for record in records(study, panel, label):
            for place, number in enumerate(record["classes_met"]):
                value = record["class_accuracy"][-1][place]
                if value is not None:
                    expected.setdefault(number, []).append(value)
        page = {number: (seeds, mean) for number, _, seeds, mean, *_ in told["classes"][row]}
        assert page == {
            number: (len(values), round(1000 * float(np.mean(values)))) for number, values in expected.items()
        }


def test_queries_that_only_one_gets_right_are_found(
    study: Path, results: Results, data: dict[str, Any]
) -> None:
    told = data["panels"][0]
    panel = panel_of(results, told)
    labels = panel_labels(data, told)
    right: dict[str, set[tuple[int, int]]] = {label: set() for label in labels}
    for label in labels:
        for record in records(study, panel, label):
            file = StudyFolder(study).predictions_of((record["config_hash"], record["seed"]))
            found = read_predictions(file)
            for query, correct in zip(found.queries[-1], found.correct()[-1], strict=True):
                if correct:
                    right[label].add((record["seed"], int(query)))
    counts = {}
    for label in labels:
        others = set().union(*(right[other] for other in labels if other != label))
        counts[label] = right[label] - others
    for label, answers in zip(labels, told["answers"], strict=True):
        assert answers["only"] == len(counts[label])
        assert {(seed, query) for seed, query, *_ in answers["examples"]} <= counts[label]
    assert sum(map(len, counts.values())) > 0


def panel_labels(data: dict[str, Any], told: dict[str, Any]) -> list[str]:
    return [data["labels"][index] for index in told["rows"]]


def records(study: Path, panel: Panel, label: str) -> Iterator[dict[str, Any]]:
    for _, run in panel.runs[panel.runs["label"] == label].iterrows():
        yield json.loads((study / "runs" / run["config_hash"] / f"{run['seed']}.json").read_text())


@pytest.fixture
def small(tmp_path: Path) -> Path:
    graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
    task: dict[str, Any] = {"classes": (4, 2, 4), "n_way": 2, "k_shot": 3, "features": "propagated"}
    return hagmeta.run("sgc-ncm", graph, seeds=2, **task).save(tmp_path)


def test_a_damaged_file_of_predictions_is_named(small: Path) -> None:
    file = next(small.glob("predictions/*/1.npz"))
    file.write_bytes(b"damaged")
    (panel,) = explorer.data(Analysis(read([small])))["panels"]
    assert len(panel["damaged"]) == 1 and str(file) in panel["damaged"][0]
    assert panel["answers"][0]["seeds"] == 1


def test_the_command_of_a_configuration_repeats_its_runs(data: dict[str, Any], tmp_path: Path) -> None:
    told = next(each for each in data["panels"] if each["k_shot"] == "5")
    row = next(row for row, text in enumerate(told["commands"]) if "hops=2" in text)
    program, *arguments = shlex.split(told["commands"][row])
    assert program == "hagmeta"
    assert hagmeta_main([*arguments, "--json", str(tmp_path / "again.json")]) == 0
    again = json.loads((tmp_path / "again.json").read_text())
    assert len(again) == 6
    mean = np.mean([record["macro_accuracy"][-1] for record in again])
    assert told["numbers"][0]["values"][row][-4] == round(1000 * mean)


def test_text_of_records_cannot_leave_the_page(small: Path) -> None:
    hostile = "</script><script>document.title = 'taken'</script>"
    results = read([small])
    runs = results.runs.assign(label=hostile)
    html = explorer.render(Analysis(results._with(runs)), title=hostile, command=hostile, report="index.html")
    assert hostile not in html


def test_there_is_a_colour_for_dark_pages_for_every_look() -> None:
    assert len(explorer.DARK) == len(set(explorer.DARK)) == len(LOOKS)


# What a reader does, in a browser.


def test_it_opens_from_disk_without_an_error_or_a_request(show: Show, html: str) -> None:
    browser = show(html)
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url for url in sent if not url.startswith(("data:", "about:"))} == {
        browser.current_url.split("#")[0]
    }


def test_hiding_a_configuration_by_keyboard_hides_it_everywhere(show: Show, html: str) -> None:
    browser = show(html)
    drawn = (
        "return ['#curves .line', '#cost .bar', '#table tbody tr']"
        ".map((each) => document.querySelectorAll(each).length)"
    )
    before = browser.execute_script(drawn)
    find(browser, "#list input").send_keys(SPACE)
    assert browser.execute_script(drawn) == [count - 1 for count in before]
    state = browser.current_url.split("#")[1]
    assert browser.execute_script(drawn) == show(html, state=state).execute_script(drawn)


def test_what_was_chosen_is_in_the_link(show: Show, html: str) -> None:
    browser = show(html)
    for name, text in (("k_shot", "3"), ("metric", "harmonic"), ("session", "1")):
        find(browser, f"#choose-{name}").send_keys(text)
    find(browser, "[name=view][value=minus]").click()
    titles = texts(browser, "h2")
    assert titles[0] == "Harmonic by session: " + GRAPH + ", strict, 2-way 3-shot"
    state = browser.current_url.split("#")[1]
    assert texts(show(html, state=state), "h2") == titles
    assert find(browser, "[name=view][value=minus]").is_selected()


def test_a_link_that_names_what_is_not_there_says_so(show: Show, html: str) -> None:
    browser = show(html, state="dataset=nowhere&metric=harmonic&session=99&one=nobody")
    assert texts(browser, "#warnings p") == [
        "The address names what this page does not have: dataset nowhere, session 99, one nobody."
    ]
    find(browser, "#choose-metric").send_keys("accuracy")
    assert texts(browser, "#warnings p") == []


def test_the_chart_is_read_and_clicked_by_keyboard(show: Show, html: str, data: dict[str, Any]) -> None:
    browser = show(html)
    chart = find(browser, "#curves svg")
    chart.send_keys(RIGHT)
    tip = find(browser, "#tip").text
    told = data["panels"][0]
    assert f"{told['numbers'][0]['values'][0][2] / 10:.1f} ± " in tip  # session 1 of the first row
    assert "seeds: 6" in tip and told["commands"][0] in tip
    chart.send_keys(DOWN)
    label = find(browser, "#tip strong").text
    assert label in panel_labels(data, told)[1:]
    chart.send_keys(ENTER)
    assert browser.switch_to.active_element.text == f"One configuration: {label}"


def test_a_slider_moves_over_the_configurations_that_were_run(
    show: Show, html: str, data: dict[str, Any]
) -> None:
    told = next(each for each in data["panels"] if each["k_shot"] == "5")
    browser = show(html, state=state_of(told, one="SGC-NCM (hops 1)"))
    command = find(browser, "#command").text
    assert "hops=1" in command
    find(browser, "#slider-hops").send_keys(RIGHT)
    assert browser.switch_to.active_element.get_attribute("id") == "slider-hops"
    assert "hops=2" in find(browser, "#command").text
    find(browser, "#slider-hops").send_keys(RIGHT)
    assert "hops" not in find(browser, "#command").text  # 3 is the default
    label = find(browser, "#detail-title").text.removeprefix("One configuration: ")
    assert texts(browser, "#facts dd")[0] == shown(browser)[label]["macro accuracy"]


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        *((390, "light"), (1280, "dark")),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((390, "dark"), (1280, "light"))),
    ],
)
def test_it_fits_the_screen_and_is_legible(show: Show, html: str, width: int, scheme: str) -> None:
    browser = show(html, width=width, scheme=scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(CONTRAST) == []


def test_without_scripts_it_points_to_the_report(show: Show, html: str) -> None:
    browser = show(html, scripts=False)
    assert find(browser, "noscript a").get_attribute("href").endswith("/index.html")
    assert not find(browser, "#choosers").is_displayed()
