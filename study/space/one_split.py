"""Give all configurations of a study the same class split of a graph that has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hagmeta import datasets
from hagmeta.common.plugins.identity import short_name
from hagmeta.common.records.differences import differing
from hagmeta.config.run_config import RunConfig, proposed_split, scopes_of
from hagmeta.scenarios.splits import SplitFor

DEPENDS_ON = ("n_way", "k_shot", "protocol", "query_shot")  # settings that a proposal depends on


def with_one_split(configs: Mapping[RunConfig, RunConfig]) -> tuple[list[RunConfig], list[str]]:
    """Return configurations that share one proposed split per graph, and a note for each graph.

    `resolve` proposes a split for each configuration alone. If the proposals of a graph differ, the effect
    of N would be mixed with that of the split. If they are equal, nothing changes.

    Args:
        configs: The configurations as given, by the same as they run.
    """
    by_dataset: dict[str, list[RunConfig]] = {}
    for resolved, config in configs.items():
        if is_proposed(config):
            by_dataset.setdefault(config.dataset, []).append(resolved)
    several = {name: own for name, own in by_dataset.items() if len({each.classes for each in own}) > 1}
    splits = {name: common_split(own) for name, own in several.items()}
    notes = [_note(own, splits[name][0]) for name, own in several.items()]
    return [_with_split(config, splits) for config in configs.values()], notes


def _with_split(config: RunConfig, splits: Mapping[str, tuple[tuple[int, int, int], int]]) -> RunConfig:
    if config.dataset not in splits or not is_proposed(config):
        return config
    classes, small = splits[config.dataset]
    return config.replace(classes=classes, drop_small=config.drop_small or small > 0)


def _note(configs: Sequence[RunConfig], classes: tuple[int, int, int]) -> str:
    differ = differing([config.canonical() for config in configs], scopes_of(configs))
    values = [
        f"{key} {', '.join(dict.fromkeys(str(getattr(config, key)) for config in configs))}"
        for key in DEPENDS_ON
        if key in differ
    ]
    return (
        f"using classes {' '.join(map(str, classes))} (base, novel-train, novel-test) for all of "
        f"{' and '.join(values)}, because {short_name(configs[0].dataset)} has no class split; set others "
        f"with --set classes={','.join(map(str, classes))}"
    )


def common_split(configs: Sequence[RunConfig]) -> tuple[tuple[int, int, int], int]:
    """Propose one class split for resolved configurations of a graph, as `resolve` does for each alone.

    Return the split, and the number of classes that are too small for one of the configurations.
    """
    tasks = [
        SplitFor(config.n_way or 0, config.k_shot or 0, config.protocol, config.query_shot)
        for config in configs
    ]
    return proposed_split(configs[0].dataset, tuple(sorted(set(tasks))))


def is_proposed(config: RunConfig) -> bool:
    """Return whether `resolve` proposes the class split of `config`."""
    given = config.classes or datasets.describe(config.dataset, Path()).class_split
    return given is None and config.split != "fixed"
