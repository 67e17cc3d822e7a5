"""Run configurations with their seeds: pre-train, meta-train, evaluate, and return an output per run.

`run` is for one configuration, and `run_members` for a pack of several. Both prepare the data, `pretrain` and
`train_and_evaluate`, which meta-trains and plays the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from hagmeta import datasets
from hagmeta.common.errors import Diverged, UserError
from hagmeta.common.records.record_schema import FORMAT
from hagmeta.common.records.records import Record
from hagmeta.common.traits import MethodTraits
from hagmeta.config.run_config import RunConfig, pack_key, resolve, runs_in_packs
from hagmeta.datasets.base import Dataset
from hagmeta.engine.cache import Cache
from hagmeta.engine.checkpoints import State
from hagmeta.engine.context import Context
from hagmeta.engine.options import Mode, RunOptions
from hagmeta.engine.runtime import Runtime
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import meta_train, trained_before
from hagmeta.engine.training.pretrain import pretrained_encoders, pretraining_settings
from hagmeta.methods import METHODS, make_method
from hagmeta.methods.base import Method
from hagmeta.packs.capture import stream_of
from hagmeta.packs.environment import Clock, environment, forget_peaks, gpu_joules
from hagmeta.packs.pack import Pack, once_each
from hagmeta.scenarios import ProtocolSettings
from hagmeta.scenarios.evaluator import Evaluator
from hagmeta.scenarios.metrics import metrics_of
from hagmeta.scenarios.predictions import Predictions
from hagmeta.scenarios.streams import make_scenario
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.inputs import check_inputs, narrow_inputs
from hagmeta.sparse.plain import PlainGraph

Member = tuple[RunConfig, int]  # a configuration and a seed
MOST_BYTES = 2**30  # of the dense covariance of the columns that a method computes
ValidationScores = dict[str, float | None]
NOT_VALIDATED: ValidationScores = {"stream": None, "last": None, "average": None}


class RunOutput(NamedTuple):
    """What a run returns: its record, its predictions, and its embeddings if the options ask for them."""

    record: Record
    predictions: Predictions
    embeddings: dict[str, np.ndarray] | None


def run(config: RunConfig, seeds: Sequence[int], dataset: Dataset, options: RunOptions) -> list[RunOutput]:
    """Run one configuration for several seeds and return an output per seed.

    The output of a seed does not depend on the other seeds.

    Args:
        config: the configuration; `resolve` fills in the settings that are left open.
        seeds: the seeds, which run together as one pack.
        dataset: the graph that `config.dataset` names.
        options: how to run them.

    Raises:
        Diverged: the loss or the scores of some seeds are not finite. The error has the outputs of the
            others.
    """
    config = resolve(config)
    return run_members([(config, seed) for seed in seeds], dataset, options)


def run_together(config: RunConfig, seeds: Sequence[int], mode: Mode) -> list[list[int]]:
    """Return the seeds by the pack that they run in: one pack, or one per seed if they cannot share one."""
    alone = mode == "plain" or not runs_in_packs(resolve(config))
    return [[seed] for seed in seeds] if alone else [list(seeds)]


@lru_cache(maxsize=10_000)
def encoder_key(config: RunConfig) -> Hashable:
    """Return what identifies the encoders of a resolved configuration, up to the seed; None without one.

    Configurations with equal keys share their pre-trained encoders. Others may do so too.
    """
    if not config.applies("pretrain_epochs"):
        return None
    task = [(item.name, getattr(config, item.name)) for item in fields(ProtocolSettings)]
    return (config.dataset, *task, *pretraining_settings(config))


def run_members(members: Sequence[Member], dataset: Dataset, options: RunOptions) -> list[RunOutput]:
    """Run a pack whose members may differ in some settings, and return an output per member.

    The output of a member does not depend on the others.

    Args:
        members: configurations and seeds, in any order. All configurations must have the same `pack_key`.
        dataset: the graph that the configurations name.
        options: how to run them. In plain mode, members run one after the other.

    Raises:
        Diverged: the loss or the scores of some members are not finite. The error has the outputs of the
            others.
    """
    members = [(resolve(config), seed) for config, seed in members]
    if len({pack_key(config) for config, _ in members}) > 1:
        raise ValueError("the members of a pack may differ only in the settings that `may_differ` returns")
    if not all(runs_in_packs(config) for config, _ in members):
        options = replace(options, mode="plain", checkpoints=None)
    plain, checkpoints = options.mode == "plain", options.checkpoints
    assert not (plain and checkpoints), "checkpoints need packs"
    packs = [[place] for place in range(len(members))] if plain else [list(range(len(members)))]
    outputs: list[RunOutput] = []
    failures: dict[int, str] = {}
    while packs:
        places = packs.pop(0)
        if checkpoints and len(places) < len(members):
            options = replace(options, checkpoints=checkpoints.part(places))
        try:
            outputs += _run([members[place] for place in places], dataset, options)
        except Diverged as error:
            failed = {place: error.failures[n] for n, place in enumerate(places) if n in error.failures}
            if not failed:
                raise  # the same pack would diverge again
            failures |= failed
            # The others run again without them, and get the outputs that they would have had in this pack.
            if left := [place for place in places if place not in failed]:
                packs.insert(0, left)
    if failures:
        raise Diverged(failures, outputs or None)
    return outputs


def _run(members: Sequence[Member], dataset: Dataset, options: RunOptions) -> list[RunOutput]:
    forget_peaks(options.device)
    clock, before = Clock(len(members), options.device), gpu_joules(options.device)
    if options.checkpoints:
        clock.add(options.checkpoints.spent_before)
        options.checkpoints.spent = clock.so_far
    with stream_of(options.device):
        with clock("prepare"):
            context = prepare_members(members, dataset, options)
        with clock("pretrain"):
            pack = pretrain(context)
        evaluators, validation = train_and_evaluate(context, pack, clock)
    about = once_each(lambda config: _about(config, dataset, context), [config for config, _ in members])
    trained = trained_parameters(context, pack)
    where = environment(options.device, len(members)) | {"plain": context.runtime.plain}
    where |= _energy(before, options)
    outputs = []
    for of_member, (_, seed), evaluator, scores in zip(about, members, evaluators, validation, strict=True):
        record = {
            **of_member,
            "seed": seed,
            **metrics_of(evaluator.predictions),
            **evaluator.diagnostics(),
            "validation": scores,
            "trained_parameters": trained,
            "seconds": clock.seconds,
            "environment": dict(where),
        }
        outputs.append(RunOutput(cast(Record, record), evaluator.predictions, evaluator.embeddings))
    return outputs


def _energy(before: float | None, options: RunOptions) -> dict[str, float]:
    """Return the energy of the GPU during a pack, and the share of the GPU that the pack had.

    There is none without a counter, or if the run continued from a checkpoint.
    """
    now = gpu_joules(options.device)
    continued = options.checkpoints and options.checkpoints.spent_before
    if before is None or now is None or continued:
        return {}
    return {"gpu_joules": round(now - before, 3), "gpu_share": options.gpu_share}


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
        "oracle": context.method.traits.oracle or context.known.knows_true_means,
        "traits": asdict(_traits(context.method, config)),
    }


def trained_parameters(context: Context, pack: Pack) -> int:
    """Return how many parameters of each method of a trained pack had gradient steps, in any phase.

    A pre-trained encoder counts even if it is frozen afterwards. The head of pre-training does not, because
    no later phase uses it.
    """
    prefixes = ("encoder.",) if context.settings.pretrain_epochs else ()
    return sum(
        value.numel() // pack.size
        for name, value in pack.parameters.items()
        if name in pack.trained or name.startswith(prefixes)
    )


def _traits(method: type[Method], config: RunConfig) -> MethodTraits:
    traits = method.traits_of(config)
    return replace(traits, transductive="") if config.unlabelled_nodes == "training" else traits


def prepare(
    config: RunConfig,
    seeds: Sequence[int],
    dataset: Dataset,
    device: torch.device,
    *,
    mode: Mode = "captured",
) -> Context:
    """Return the context of one configuration and several seeds."""
    config = resolve(config)
    return prepare_members([(config, seed) for seed in seeds], dataset, RunOptions(device=device, mode=mode))


def prepare_members(members: Sequence[Member], dataset: Dataset, options: RunOptions) -> Context:
    """Draw the scenario of each seed, move the graph to the device, and return the context of a pack.

    The configurations of the members are resolved.
    """
    configs = [config for config, _ in members]
    first = configs[0]
    check_features(first, dataset)
    drawn = {seed: make_scenario(dataset, first, seed) for seed in dict.fromkeys(seed for _, seed in members)}
    scenarios = [drawn[seed] for _, seed in members]  # members with the same seed share theirs
    runtime = Runtime(options, first, configs)
    graph = (PlainGraph if runtime.plain else Graph)(dataset, options.device, first.normalisation)
    cache = Cache(options.cache, datasets.fingerprint(dataset)) if options.cache else None
    context = Context(graph, scenarios, first, runtime, cache)
    views = context.known.views
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


def pretrain(context: Context) -> Pack:
    """Return a pack with one method per member, with its pre-trained encoder, if it needs one."""
    pairs = zip(context.members, context.seeds, strict=True)
    methods = [make_method(settings, context.known.views.sizes, seed) for settings, seed in pairs]
    if hasattr(methods[0], "encoder"):
        for method, encoder in zip(methods, pretrained_encoders(context), strict=True):
            method.encoder.load_state_dict(encoder)
    return context.runtime.pack(methods)


def train_and_evaluate(
    context: Context, pack: Pack, clock: Clock | None = None
) -> tuple[list[Evaluator], list[ValidationScores]]:
    """Meta-train the pack, score the validation streams if classes are held out, and play the test streams.

    Args:
        context: the configuration, the graph, the scenarios and the options.
        pack: the pre-trained methods.
        clock: measures the phases.

    Returns:
        An evaluator and the validation scores of each seed.
    """
    clock = clock or Clock(pack.size, context.runtime.device)
    checkpoints = context.runtime.options.checkpoints
    before = checkpoints.reached("sessions") if checkpoints else None
    with clock("gpil"):
        trained = trained_before(context, pack, before["trained"]) if before else meta_train(context, pack)
    with clock("evaluate"):
        validation: list[ValidationScores] = before["validation"] if before else [NOT_VALIDATED] * pack.size
        if context.settings.val_classes and context.protocol.validates and not before:
            validation = validate(context, pack)

        def keep(session: int, make: Callable[[], State]) -> None:
            assert checkpoints
            checkpoints.keep(
                "sessions",
                f"session {session}",
                lambda: {"trained": trained.state(), "validation": validation, "evaluated": make()},
            )

        streams = [scenario.test for scenario in context.scenarios]
        evaluated = before["evaluated"] if before else None
        evaluators = evaluate_streams(
            context, pack, streams, "test", trained, keep if checkpoints else None, evaluated
        )
    if context.settings.scored_on == "validation":
        validation = _scores(evaluators)
    pairs = zip(trained.best, validation, strict=True)
    return evaluators, [{"gpil": best, **values} for best, values in pairs]


def validate(context: Context, pack: Pack) -> list[ValidationScores]:
    """Play the validation streams, restore the parameters, and return the scores of each seed.

    Sessions of validation streams learn as those of test streams do. The scores are macro accuracy at the
    `last` session, its `average` over all sessions, and the average accuracy over queries (`stream`).
    """
    before = pack.snapshot()
    streams = [scenario.validation for scenario in context.scenarios]
    evaluators = evaluate_streams(context, pack, streams, "validation")
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
