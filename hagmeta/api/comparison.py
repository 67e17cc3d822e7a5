"""`hagmeta.compare`: compare results seed by seed, with the tests and verdicts of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hagmeta.api.result import FOLDER, Result, Tabular, as_results, results_in
from hagmeta.common.errors import UserError
from hagmeta.common.records.records import StudyFolder, opened
from hagmeta.common.settings.scopes import scopes_in

if TYPE_CHECKING:
    import pandas as pd

    from analysis.statistics.estimates import Estimate
    from analysis.statistics.inference import Difference


@dataclass(frozen=True)
class Pair:
    """The difference of two results, paired by seed: ``one`` minus ``other``.

    Attributes:
        one: The name of the first result.
        other: The name of the result that is subtracted.
        last: The difference at the last session, with its test and verdict.
        average: The difference of the averages over sessions. It has an interval but no test.
    """

    one: str
    other: str
    last: Difference
    average: Estimate


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Paired differences between results, with tests and verdicts.

    Attributes:
        title: The dataset, the protocol, N and K.
        pairs: The differences. ``pairs[i].last.verdict`` is the verdict of one pair.
        words: How the differences were tested.
        badge: A warning if there are too few seeds to decide, otherwise empty.
    """

    title: str
    pairs: list[Pair]
    words: str
    badge: str

    def frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per pair.

        Each row is the difference of the column ``result`` minus the column ``minus``. ``last`` and
        ``average`` are differences of macro accuracy, between -1 and 1. Columns that end in ``_low`` and
        ``_high`` are the limits of their intervals: of the family for ``last``, and of 95 % for ``average``.
        ``p`` is corrected for all pairs; it is NaN if there are too few seeds.

        Returns:
            The DataFrame.

        Example:
            >>> import hagmeta
            >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3, features="propagated", seeds=2)
            >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
            >>> one, other = (hagmeta.run(method, graph, **task) for method in ("sgc-ncm", "sgc-ridge"))
            >>> hagmeta.compare(one, other).frame()[["result", "minus", "seeds", "verdict"]].values.tolist()
            [['SGC-NCM', 'SGC-Ridge', 2, 'too few seeds']]
        """
        import pandas as pd

        return pd.DataFrame(
            {
                "result": pair.one,
                "minus": pair.other,
                "seeds": pair.last.seeds,
                **_limits("last", pair.last),
                "p": pair.last.corrected,
                "verdict": pair.last.verdict,
                **_limits("average", pair.average),
            }
            for pair in self.pairs
        )

    def _table(self) -> Table:
        from analysis.words import p_value, points, verdict

        words = ". ".join(filter(None, [self.badge, self.words]))
        table = Table(title=self.title, caption=words, title_justify="left", caption_justify="left")
        for column in ("result", "minus", "seeds", "last session", "adjusted p", "verdict", "average"):
            table.add_column(column, justify="right" if column in ("seeds", "last session") else "left")
        for pair in self.pairs:
            last = pair.last
            p = p_value(last.corrected).removeprefix("p ").removeprefix("= ") if last.tested else ""
            cells = (points(last), p, verdict(last), points(pair.average))
            table.add_row(pair.one, pair.other, str(last.seeds), *cells)
        return table


def _limits(name: str, difference: Difference | Estimate) -> dict[str, float]:
    return {name: difference.mean, f"{name}_low": difference.low, f"{name}_high": difference.high}


def compare(*results: Result | pd.DataFrame, references: bool | str = False) -> Comparison:
    """Compare results seed by seed, with the tests and verdicts of the report.

    Args:
        *results: Two or more results of `hagmeta.run`, or rows of the ``frame()`` of a study, in which each
            configuration counts as a result. They must have the same task: the same graph, protocol,
            classes, N, K and so on. Different methods must have the same labels (``rehearsal``). The last one
            is the reference: ``compare(a, b)`` shows a minus b.
        references: Compare one or more results with the reference results instead. True or
            ``"defaults"`` compares with the defaults of methods, ``"tuned"`` with tuned methods.

    Returns:
        A `Comparison`. It holds the paired differences at the last session. Each has an
        interval and a p-value that are corrected for all pairs, and a verdict: significantly better,
        significantly worse, equivalent, inconclusive or too few seeds. Differences of averages over sessions
        have 95 % intervals but no tests.

    Raises:
        UserError: The results have different tasks or labels, or two have the same configuration. With
            `references`: the references have another task, or fewer than three seeds in common.

    Example:
        >>> import hagmeta
        >>> task = dict(classes=(4, 2, 4), n_way=2, k_shot=3, features="propagated", seeds=6)
        >>> graph = "synthetic:nodes=300,edges=1200,features=40,classes=10"
        >>> comparison = hagmeta.compare(
        ...     hagmeta.run("sgc-ridge", graph, **task), hagmeta.run("sgc-ncm", graph, **task)
        ... )
        >>> comparison.pairs[0].last.seeds
        6
        >>> comparison.pairs[0].last.verdict
        'inconclusive'
    """
    from analysis.comparisons import Analysis
    from analysis.statistics.estimates import estimate
    from analysis.statistics.inference import discoveries
    from analysis.words import a_look

    given = list(_unpacked(results))
    _check_comparable(given, fewest=1 if references else 2)
    if references:
        return _with_references(given, "defaults" if references is True else references)
    found = as_results(given)
    names = dict(zip(found.runs["config_hash"], found.runs["label"], strict=True))
    reference = names[given[-1].config.hash()]
    found = found.against(reference)
    (panel,) = found.panels
    last, average = panel.by_seed("last"), panel.by_seed("average")
    comparisons = Analysis(found).comparisons
    tested = comparisons.reference
    every = {(one, other): each for (_, one, other), each in comparisons.configurations.items()}
    if not every:  # switches of one method: the report tests their effects, not the pairs
        asked = {(label, reference): last[label] - last[reference] for label in panel.labels[1:]}
        tested = discoveries(asked, "each result minus the last one, at the last session", found.metric)
        every = dict(tested.comparisons)
    pairs = [
        Pair(one, other, every[one, other], estimate(average[one] - average[other]))
        for one, other in sorted(every, key=lambda key: key[1] != reference)
    ]
    badge = a_look(max(pair.last.seeds for pair in pairs))
    return Comparison(panel.title, pairs, tested.words, badge)


def _unpacked(results: Sequence[Any]) -> Iterator[Any]:
    """Yield the results, and those of rows of a study."""
    for each in results:
        if hasattr(each, "itertuples"):
            yield from _results_of_rows(each)
        else:
            yield each


def _results_of_rows(rows: pd.DataFrame) -> list[Result]:
    """Return the results of the configurations and seeds that some rows of a frame have."""
    if FOLDER not in rows.attrs or not {"config", "seed"} <= {*rows.columns}:
        raise UserError(
            "these rows do not say of which study they are; expected rows of the frame() of a study, with "
            "its columns config and seed. pandas keeps them in selections, but not in groups or merges."
        )
    keys = rows[["config", "seed"]].drop_duplicates().itertuples(index=False, name=None)
    return list(results_in(StudyFolder(Path(rows.attrs[FOLDER])), keys))


def _with_references(results: Sequence[Result], kind: str) -> Comparison:
    """Return each result minus each reference, the highest reference first."""
    from analysis.references.place import place
    from analysis.statistics.estimates import estimate
    from analysis.words import a_look

    with TemporaryDirectory() as folder:
        for result in results:
            result.save(folder)
        placed = place([Path(folder)], kind=kind)
    if placed.refusals:
        reasons = " ".join(each.words for each in placed.refusals)
        raise UserError(f"cannot compare with the references. {reasons}")
    pairs, ranks = [], []
    for each in placed.standings:
        average = each.panel.by_seed("average")
        ordered = sorted(each.tests, key=lambda other: -each.means[other])
        pairs += [
            Pair(each.label, other, each.tests[other], estimate(average[each.label] - average[other]))
            for other in ordered
        ]
        ranks.append(f"{each.label} ranks {each.rank} of {len(each.rivals) + 1}")
    title = f"{placed.standings[0].panel.title}, references of the kind {kind!r}: {'; '.join(ranks)}"
    return Comparison(
        title,
        pairs,
        placed.analysis.comparisons.reference.words,
        a_look(max(pair.last.seeds for pair in pairs)),
    )


def _check_comparable(results: Sequence[Result], fewest: int = 2) -> None:
    """Raise an error if the results cannot be compared."""
    from analysis.data.labels import readable

    for each in results:
        if not isinstance(each, Result):
            raise UserError(f"compare got a value of type {type(each).__name__}; expected a hagmeta.Result.")
    if len(results) < fewest:
        given = "1 result" if results else "no results"
        raise UserError(f"compare got {given}; expected {'two' if fewest == 2 else 'one'} or more.")
    first = results[0].records[0]
    scopes = scopes_in(opened(each.records[0]) for each in results)
    for each in results[1:]:
        other = each.records[0]
        keys = [key for key in scopes.task if first["config"].get(key) != other["config"].get(key)]
        differ = [f"{key} is {_both(first['config'], other['config'], key)}" for key in keys]
        if first["data"] != other["data"] and "dataset" not in keys:
            differ.append(f"{first['config']['dataset']} is the name of two different graphs")
        if differ:
            raise UserError(f"cannot compare results of different tasks: {'; '.join(differ)}.")
    if len({each.config.method for each in results}) > 1:
        _check_labels([each.records[0]["config"] for each in results], scopes.labels)
    seen: dict[str, str] = {}
    for each in results:
        if each.config.hash() in seen:
            raise UserError(
                f"two results have the same configuration ({readable(each.title)}); expected different "
                "configurations."
            )
        seen[each.config.hash()] = each.title


def _check_labels(configs: Sequence[dict[str, Any]], labels: Sequence[str]) -> None:
    """Raise an error if the methods may read different labels. A method without the setting has no limit."""
    for key in labels:
        values = list(dict.fromkeys(str(config[key]) for config in configs if key in config))
        if len(values) > 1:
            raise UserError(
                f"cannot compare methods that may read different labels: {key} is {' and '.join(values)}. "
                "Only results of one method may differ in it."
            )


def _both(one: dict[str, Any], other: dict[str, Any], key: str) -> str:
    values = [config.get(key, "absent") for config in (one, other)]
    return " and ".join(
        "/".join(map(str, value)) if isinstance(value, list) else str(value) for value in values
    )
