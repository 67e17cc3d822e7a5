"""Run configurations with their seeds: pre-train, meta-train, evaluate, and return a record per run.

`run` is for one configuration, and `run_members` for a pack of several. Both prepare the data, `pretrain` and
`live`, which meta-trains and plays the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch

from hagmeta import datasets
from hagmeta.common.errors import Diverged, UserError
from hagmeta.common.record_schema import FORMAT
from hagmeta.common.records import Record
from hagmeta.common.traits import MethodTraits
from hagmeta.config import RunConfig, pack_key, resolve, runs_in_packs
from hagmeta.datasets.base import Dataset
from hagmeta.methods import METHODS, make_method
from hagmeta.methods.base import Method
from hagmeta.packs.capture import stream_of
from hagmeta.packs.environment import Clock, environment, forget_peaks
from hagmeta.packs.pack import Pack, Progress, no_progress, once_each
from hagmeta.phases.cache import Cache
from hagmeta.phases.checkpoints import Checkpoints, State
from hagmeta.phases.context import Context
from hagmeta.phases.meta_training import meta_train, trained_before
from hagmeta.phases.pretrain import pretrained_encoders
from hagmeta.phases.runtime import Runtime
from hagmeta.phases.sessions import play
from hagmeta.phases.snapshots import Snapshots
from hagmeta.protocol.evaluator import Evaluator
from hagmeta.protocol.metrics import metrics_of
from hagmeta.protocol.predictions import Predictions
from hagmeta.protocol.streams import make_scenario
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.inputs import check_inputs, narrow_inputs
from hagmeta.sparse.plain import PlainGraph

Member = tuple[RunConfig, int]  # a configuration and a seed
MOST_BYTES = 2**30  # of the dense covariance of the columns that a method computes
ValidationScores = dict[str, float | None]
NOT_REHEARSED: ValidationScores = {"stream": None, "last": None, "average": None}


def run(
    config: RunConfig,
    seeds: Sequence[int],
    *,
    dataset: Dataset,
    device: torch.device,
    cache: Path | None = None,
    progress: Progress = no_progress,
    snapshots: Snapshots | None = None,
    predictions: list[Predictions] | None = None,
    eager: bool = False,
    plain: bool = False,
    checkpoints: Checkpoints | None = None,
) -> list[Record]:
    """Run one configuration for several seeds and return a record per seed.

    The record of a seed does not depend on the other seeds.

    Args:
        config: the configuration; `resolve` fills in the settings that are left open.
        seeds: the seeds, which run together as one pack.
        dataset: the graph that `config.dataset` names.
        device: the device to compute on.
        cache: a folder in which runs share pre-trained encoders and inputs; None to share nothing.
        progress: a function that is called with the progress of each phase.
        snapshots: filled with the embeddings of each seed, in the order of the records, if given.
        predictions: filled with the predictions of each seed, in the order of the records, if given.
        eager: do not use CUDA graphs, for debugging.
        plain: run one seed after the other, without packs, CUDA graphs and custom kernels. Then `print`,
            `pdb` and profilers work inside a method.
        checkpoints: the checkpoints of these seeds. An interrupted run continues from the last one.

    Raises:
        Diverged: the loss or the scores of some seeds are not finite. The error has the records of the
            others.
    """
    config = resolve(config)
    return run_members(
        [(config, seed) for seed in seeds],
        dataset=dataset,
        device=device,
        cache=cache,
        progress=progress,
        snapshots=snapshots,
        predictions=predictions,
        eager=eager,
        plain=plain,
        checkpoints=checkpoints,
    )


def run_together(config: RunConfig, seeds: Sequence[int], *, plain: bool = False) -> list[list[int]]:
    """Return the seeds by the pack that they run in: one pack, or one per seed if they cannot share one."""
    alone = plain or not runs_in_packs(resolve(config))
    return [[seed] for seed in seeds] if alone else [list(seeds)]


def run_members(
    members: Sequence[Member],
    *,
    dataset: Dataset,
    device: torch.device,
    cache: Path | None = None,
    progress: Progress = no_progress,
    snapshots: Snapshots | None = None,
    predictions: list[Predictions] | None = None,
    eager: bool = False,
    plain: bool = False,
    checkpoints: Checkpoints | None = None,
) -> list[Record]:
    """Run a pack whose members may differ in some settings, and return a record per member.

    The record of a member does not depend on the others. The arguments are those of `run`.

    Args:
        members: configurations and seeds, in any order. All configurations must have the same `pack_key`.
        dataset: the graph that the configurations name.
        device: the device to compute on.
        cache: a folder in which runs share pre-trained encoders and inputs; None to share nothing.
        progress: a function that is called with the progress of each phase.
        snapshots: filled with the embeddings of each member, in their order, if given.
        predictions: filled with the predictions of each member, in their order, if given.
        eager: do not use CUDA graphs, for debugging.
        plain: run one member after the other, without packs.
        checkpoints: the checkpoints of these members.

    Raises:
        Diverged: the loss or the scores of some members are not finite. The error has the records of the
            others.
    """
    members = [(resolve(config), seed) for config, seed in members]
    if len({pack_key(config) for config, _ in members}) > 1:
        raise ValueError("the members of a pack may differ only in the settings that `may_differ` returns")
    if not all(runs_in_packs(config) for config, _ in members):
        plain, checkpoints = True, None
    assert not (plain and checkpoints), "checkpoints need packs"
    packs = [[place] for place in range(len(members))] if plain else [list(range(len(members)))]
    records: list[Record] = []
    failures: dict[int, str] = {}
    while packs:
        places = packs.pop(0)
        pack = [members[place] for place in places]
        own = checkpoints.part(places) if checkpoints and len(pack) < len(members) else checkpoints
        before = list(snapshots.arrays) if snapshots else []
        try:
            records += _run(pack, dataset, device, cache, progress, snapshots, predictions, eager, plain, own)
        except Diverged as error:
            failures |= {places[each]: reason for each, reason in error.failures.items()}
            if snapshots:
                snapshots.arrays = before
            # The others run again without them, and get the records that they would have had in this pack.
            if left := [place for place in places if place not in failures]:
                packs.insert(0, left)
    if failures:
        raise Diverged(failures, records or None)
    return records


def _run(
    members: Sequence[Member],
    dataset: Dataset,
    device: torch.device,
    cache: Path | None,
    progress: Progress,
    snapshots: Snapshots | None,
    predictions: list[Predictions] | None,
    eager: bool,
    plain: bool,
    checkpoints: Checkpoints | None,
) -> list[Record]:
    forget_peaks(device)
    clock = Clock(len(members), device)
    with stream_of(device):
        with clock("prepare"):
            shared = Cache(cache, datasets.fingerprint(dataset)) if cache else None
            context = prepare_members(members, dataset, device, eager=eager, plain=plain, cache=shared)
        with clock("pretrain"):
            pack = pretrain(context, shared, progress)
        evaluators, validation = live(context, pack, progress, snapshots, clock, checkpoints)
    if predictions is not None:
        predictions += [evaluator.predictions for evaluator in evaluators]
    about = once_each(lambda config: _about(config, dataset, context), [config for config, _ in members])
    return [
        cast(
            Record,
            {
                **of_member,
                "seed": seed,
                **metrics_of(evaluator.predictions),
                **evaluator.diagnostics(),
                "validation": values,
                "seconds": clock.seconds,
                "environment": environment(device, len(members)) | {"plain": plain},
            },
        )
        for of_member, (_, seed), evaluator, values in zip(
            about, members, evaluators, validation, strict=True
        )
    ]


def _about(config: RunConfig, dataset: Dataset, context: Context) -> dict[str, Any]:
    """Return the part of a record that is the same for all seeds of a configuration."""
    return {
        "format": FORMAT,
        "data": datasets.fingerprint(dataset),
        "config": config.canonical(),
        "config_hash": config.hash(),
        "given": config.given(),
        "unhashed": config.unhashed(),
        "scopes": config.scopes(),
        "revisions": config.revisions(),
        "leaks": context.protocol.leaks,
        "oracle": context.method.traits.oracle or context.knowledge.knows_true_means,
        "traits": asdict(_traits(context.method, config)),
    }


def _traits(method: type[Method], config: RunConfig) -> MethodTraits:
    traits = method.traits_of(config)
    return replace(traits, transductive="") if config.unlabelled_nodes == "training" else traits


def prepare(
    config: RunConfig,
    seeds: Sequence[int],
    dataset: Dataset,
    device: torch.device,
    *,
    eager: bool = False,
    plain: bool = False,
    cache: Cache | None = None,
) -> Context:
    """Draw the scenario of each seed, move the graph to `device`, and return the context of the run."""
    config = resolve(config)
    members = [(config, seed) for seed in seeds]
    return prepare_members(members, dataset, device, eager=eager, plain=plain, cache=cache)


def prepare_members(
    members: Sequence[Member],
    dataset: Dataset,
    device: torch.device,
    *,
    eager: bool = False,
    plain: bool = False,
    cache: Cache | None = None,
) -> Context:
    """Return the context of a pack of resolved configurations and seeds."""
    configs = [config for config, _ in members]
    first = configs[0]
    check_features(first, dataset)
    drawn = {seed: make_scenario(dataset, first, seed) for seed in dict.fromkeys(seed for _, seed in members)}
    scenarios = [drawn[seed] for _, seed in members]  # members with the same seed share theirs
    graph = (PlainGraph if plain else Graph)(dataset, device, first.normalisation)
    context = Context(graph, scenarios, first, Runtime(graph.device, first, eager, plain, configs), cache)
    views = context.knowledge.views
    _ = views.inputs, views.narrow  # computed here, so that their time counts as preparation
    return context


def check_features(config: RunConfig, dataset: Dataset) -> None:
    """Raise a UserError if a resolved configuration cannot run on the features of `dataset`."""
    check_inputs(config.inputs, dataset)
    _, columns = narrow_inputs(dataset.kind, dataset.num_features)
    made = METHODS[config.method].narrow_columns(config, columns)
    if 4 * made**2 > MOST_BYTES:
        raise UserError(
            f"{config.method} would make {made:,} columns of the {columns:,} features of {dataset.name}; "
            f"their covariance needs {4 * made**2 / 2**30:.1f} GiB for each seed, and the maximum is "
            f"{MOST_BYTES // 2**30} GiB. Make the dataset without counts=False, or set fewer hops, or "
            "features=encoder."
        )


def pretrain(context: Context, cache: Cache | None, progress: Progress) -> Pack:
    """Return a pack with one method per member, with its pre-trained encoder, if it needs one."""
    pairs = zip(context.members, context.seeds, strict=True)
    methods = [make_method(settings, context.knowledge.views.sizes, seed) for settings, seed in pairs]
    if hasattr(methods[0], "encoder"):
        encoders = pretrained_encoders(context, cache, progress)
        for method, encoder in zip(methods, encoders, strict=True):
            method.encoder.load_state_dict(encoder)
    return context.runtime.pack(methods)


def live(
    context: Context,
    pack: Pack,
    progress: Progress = no_progress,
    snapshots: Snapshots | None = None,
    clock: Clock | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[list[Evaluator], list[ValidationScores]]:
    """Meta-train the pack, score the validation streams if classes are held out, and play the test streams.

    Args:
        context: the configuration, the graph and the scenarios.
        pack: the pre-trained methods.
        progress: a function that is called with the progress of each phase.
        snapshots: filled with embeddings, if given.
        clock: measures the phases.
        checkpoints: where to continue from, and where to store the state.

    Returns:
        An evaluator and the validation scores of each seed.
    """
    clock = clock or Clock(pack.size, context.runtime.device)
    if checkpoints:
        clock.add(checkpoints.spent_before)
        checkpoints.spent = clock.so_far
    before = checkpoints.reached("sessions") if checkpoints else None
    with clock("gpil"):
        trained = (
            trained_before(context, pack, before["trained"])
            if before
            else meta_train(context, pack, progress, checkpoints)
        )
    with clock("evaluate"):
        rehearsed: list[ValidationScores] = before["rehearsed"] if before else [NOT_REHEARSED] * pack.size
        if context.settings.val_classes and context.protocol.validates and not before:
            rehearsed = rehearse(context, pack, progress)

        def keep(session: int, make: Callable[[], State]) -> None:
            assert checkpoints
            checkpoints.keep(
                "sessions",
                f"session {session}",
                lambda: {"trained": trained.state(), "rehearsed": rehearsed, "played": make()},
            )

        streams = [scenario.test for scenario in context.scenarios]
        evaluators = play(
            context,
            pack,
            streams,
            "test",
            progress,
            snapshots,
            trained,
            keep if checkpoints else None,
            before["played"] if before else None,
        )
    if context.settings.scored_on == "validation":
        rehearsed = _scores(evaluators)
    pairs = zip(trained.best, rehearsed, strict=True)
    return evaluators, [{"gpil": best, **values} for best, values in pairs]


def rehearse(context: Context, pack: Pack, progress: Progress) -> list[ValidationScores]:
    """Play the validation streams, restore the parameters, and return the scores of each seed.

    Sessions of validation streams learn as those of test streams do. The scores are macro accuracy at the
    `last` session, its `average` over all sessions, and the average accuracy over queries (`stream`).
    """
    before = pack.snapshot()
    streams = [scenario.validation for scenario in context.scenarios]
    evaluators = play(context, pack, streams, "validation", progress)
    pack.restore(before)
    return _scores(evaluators)


def _scores(evaluators: list[Evaluator]) -> list[ValidationScores]:
    return [_score(metrics_of(evaluator.predictions)) for evaluator in evaluators]


def _score(metrics: dict[str, Any]) -> ValidationScores:
    by_session = metrics["macro_accuracy"]
    return {
        "stream": metrics["average_accuracy"],
        "last": by_session[-1],
        "average": sum(by_session) / len(by_session),
    }
