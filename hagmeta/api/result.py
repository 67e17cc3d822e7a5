"""`Result`, which `hagmeta.run` returns, and its display as a table."""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from hagmeta.api.display import mean_and_interval, score, sessions_table
from hagmeta.common.errors import UserError
from hagmeta.common.files.files import reason
from hagmeta.common.plugins.identity import short_name
from hagmeta.common.records.records import Record, RunKey, StudyFolder, read_record
from hagmeta.config.run_config import RunConfig
from hagmeta.engine.scores.embeddings import to_bytes
from hagmeta.scenarios.predictions import Predictions, read_predictions

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from analysis.data.results import Results

WIDTH = 100  # characters of a table in a terminal
IDENTITY = ("method", "dataset", "protocol", "n_way", "k_shot", "seed", "session")  # first in a frame
FOLDER = "hagmeta study"  # the attribute of the frame of a study that has its folder
SHADE = 0.16  # of an interval behind its curve


class Tabular:
    """Base class of objects that display as a table: text in a terminal, HTML in a notebook."""

    def _table(self) -> Table:
        raise NotImplementedError

    def __repr__(self) -> str:
        table, text = self._table(), io.StringIO()
        title, caption = str(table.title), str(table.caption)
        table.title = table.caption = None  # rich would wrap them at the width of the table
        plain: dict[str, Any] = {"color_system": None, "markup": False, "emoji": False, "highlight": False}
        Console(file=text, width=WIDTH, force_jupyter=False, **plain).print(table)
        lines = [title, *text.getvalue().splitlines(), *textwrap.wrap(caption, WIDTH)]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return as_html(self._table())


@dataclass(frozen=True, repr=False)
class Result(Tabular):
    """The runs of one configuration, one per seed.

    Attributes:
        records: One record per seed. A record is a dictionary of JSON values, as in the folder of a study.
        config: The configuration, with all defaults filled in.
        predictions: For each record, the predicted class of each query in each session.
    """

    records: list[Record]
    config: RunConfig
    predictions: list[Predictions] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Return the name of the method for tables and legends."""
        return str(self.records[0]["traits"]["title"])

    @property
    def seeds(self) -> list[int]:
        """Return the seeds in the order of ``records``."""
        return [record["seed"] for record in self.records]

    def _table(self) -> Table:
        return sessions_table(self.records)

    def frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per seed and session.

        The first columns identify the run: method, dataset, protocol, n_way, k_shot, seed and session. The
        other columns are the metrics of that session, between 0 and 1. Empty columns are left out.

        Returns:
            The DataFrame, sorted by seed and session.

        Example:
            >>> import hagmeta
            >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
            >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3, features="propagated")
            >>> result = hagmeta.run("sgc-ncm", graph, seeds=2, **task)
            >>> frame = result.frame()
            >>> len(frame)  # two seeds, sessions 0 to 2
            6
            >>> list(frame.columns[:7])
            ['method', 'dataset', 'protocol', 'n_way', 'k_shot', 'seed', 'session']
        """
        from analysis.data.results import SCORES

        results = as_results([self])
        not_metrics = {"run", "study", "label", "config_hash", "first", "pd", "rpd", "seconds"}
        not_metrics |= {*results.keys, *SCORES, *IDENTITY}
        metrics = [name for name in results.sessions if name not in not_metrics]
        frame = results.sessions.sort_values(["seed", "session"])[[*IDENTITY, *metrics]]
        return frame.dropna(axis="columns", how="all").reset_index(drop=True)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot macro accuracy by session: the mean over seeds with its 95 % interval.

        Args:
            ax: The matplotlib axes to draw on. Pass the same axes to plot several results in one figure. By
                default, the call creates a new figure.

        Returns:
            The axes, with a title, labels and a legend.

        Example:
            >>> import hagmeta
            >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
            >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3, features="propagated")
            >>> result = hagmeta.run("sgc-ncm", graph, seeds=2, **task)
            >>> ax = result.plot()
            >>> ax.get_xlabel(), ax.get_ylabel(), len(ax.lines)
            ('session', 'macro accuracy (%)', 1)
        """
        import matplotlib.pyplot as plt
        from matplotlib.ticker import MaxNLocator

        if ax is None:
            ax = plt.figure(layout="constrained").add_subplot()
        curves = zip(*(score(record) for record in self.records), strict=True)
        estimates = [mean_and_interval([100 * value for value in values]) for values in curves]
        means, halves = zip(*estimates, strict=True)
        count = "1 seed" if len(self.records) == 1 else f"{len(self.records)} seeds"
        (line,) = ax.plot(range(len(means)), means, marker="o", label=f"{self.title}, {count}")
        if len(self.records) > 1:
            low, high = ([m + sign * h for m, h in estimates] for sign in (-1, 1))
            ax.fill_between(range(len(halves)), low, high, color=line.get_color(), alpha=SHADE, linewidth=0)
        ax.set_xlabel("session")
        ax.set_ylabel("macro accuracy (%)")
        ax.set_title(self._where(), fontsize="medium")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False)
        return ax

    def _where(self) -> str:
        config = self.config
        leak = " (leaks)" if self.records[0]["leaks"] else ""
        task = f"{config.n_way}-way {config.k_shot}-shot, {config.protocol}{leak}"
        return f"{short_name(config.dataset)}\n{task}"

    def save(self, folder: str | Path) -> Path:
        """Write records and predictions to a folder that `python -m analysis FOLDER` reads.

        Several results can share a folder, and a study can continue in it. A run that is already in the
        folder is replaced.

        Args:
            folder: The folder to write to. It is created if it does not exist.

        Returns:
            The path of the folder.

        Raises:
            UserError: The folder cannot be written, a study is running in it, or it has runs of another
                graph with the same name.

        Example:
            >>> import hagmeta, tempfile
            >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
            >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3, features="propagated")
            >>> result = hagmeta.run("sgc-ncm", graph, seeds=2, **task)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     saved = result.save(folder)
            ...     len(list(saved.glob("runs/*/*.json"))), len(list(saved.glob("predictions/*/*.npz")))
            (2, 2)
        """
        from study.store.store import Store

        store = Store(Path(folder).expanduser())
        try:
            store.runs.mkdir(parents=True, exist_ok=True)
            with store.locked():
                self._refuse_other_graphs(store.record_files(), store.folder)
                for record, predictions in zip_longest(self.records, self.predictions):
                    if predictions is not None:  # a study may not have kept them
                        key = (record["config_hash"], record["seed"])
                        store.write_predictions(key, to_bytes(predictions.arrays()))
                    store.write(record)
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {reason(error)}.") from None
        return store.folder

    def _refuse_other_graphs(self, files: Any, folder: Path) -> None:
        own = self.records[0]
        for path in files:
            try:
                other = read_record(path)
            except ValueError:  # damaged; the report names the file
                continue
            same_name = other["config"].get("dataset") == own["config"]["dataset"]
            if same_name and other["data"] != own["data"]:
                raise UserError(
                    f"{folder} already has runs of a different graph named {own['config']['dataset']}; save "
                    f"to another folder."
                )


def results_in(folder: StudyFolder, keys: Iterable[RunKey]) -> Iterator[Result]:
    """Yield a result for each configuration among some runs of a study."""
    by_config: dict[str, list[Record]] = {}
    for config, seed in keys:
        record = read_record(folder.runs / config / f"{seed}.json")
        by_config.setdefault(config, []).append(record)
    for config, records in by_config.items():
        files = [folder.predictions_of((config, record["seed"])) for record in records]
        predictions = [read_predictions(file) for file in files] if all(map(Path.exists, files)) else []
        yield Result(records, RunConfig.of(records[0]["config"]), predictions)


def as_results(results: Sequence[Result]) -> Results:
    """Return the records of ``results`` in the form that `analysis` reads from a folder."""
    from analysis.data.reading import read

    with TemporaryDirectory() as folder:
        for result in results:
            result.save(folder)
        return read([Path(folder)])


def as_html(table: Table) -> str:
    """Return ``table`` as plain HTML."""
    style = "text-align: {}; padding: 2px 10px"
    aligned = [style.format("right" if column.justify == "right" else "left") for column in table.columns]

    def row(cells: Sequence[Any], tag: str) -> str:
        pairs = zip(aligned, cells, strict=True)
        inside = "".join(f'<{tag} style="{how}">{_text(cell)}</{tag}>' for how, cell in pairs)
        return f"<tr>{inside}</tr>"

    head = row([column.header for column in table.columns], "th")
    rows = zip(*(column.cells for column in table.columns), strict=True)
    body = "\n".join(row(cells, "td") for cells in rows)
    title = f'<caption style="caption-side: top; text-align: left"><b>{_text(table.title)}</b></caption>'
    caption = f'<p style="max-width: 60em"><small>{_text(table.caption)}</small></p>'
    return f"<table>\n{title}\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n{caption}"


def _text(value: Any) -> str:
    return html.escape(str(value or ""))
