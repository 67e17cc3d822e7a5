"""Hyperparameter search: Optuna proposes, Ray Tune runs, ASHA stops what lags behind on validation streams.

The search's own memory is ``optuna.db`` in the study's folder, so that it goes on after a kill and
`optuna-dashboard` can open it. Test labels play no part: the objective is the accuracy on classes held out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import optuna
import yaml

from hagmeta.common.records import Record
from hagmeta.config import RunConfig, resolve
from hagmeta.common.errors import UserError
from hagmeta.common.files import written_whole
from study.plan import Plan, Trial
from study.progress import StudyProgress
from study.resources import Resources
from study.space import Dimension, Space
from study.store import Store
from study.tuning import Recorder, run_tuner

from ray import tune  # after study.tuning, which sets Ray's environment up
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from study.trial import objective, run_sample

GRACE = 4  # validations before a sample may be stopped
FRESH_SEEDS = 10  # with which the best configuration is run on the test streams


def check_search(space: Space) -> RunConfig:
    """The one configuration that a search varies; it must hold classes out to validate on."""
    if len(space.configs) != 1:
        raise UserError(
            f"{space.name}: a search varies one configuration; this space has {len(space.configs)}."
        )
    if not space.configs[0].val_classes:
        raise UserError(
            f"{space.name}: a search needs val_classes above 0, or it would tune on classes it knows."
        )
    return space.configs[0]


def open_study(space: Space, store: Store) -> optuna.Study:
    """The search's memory; samples that a kill interrupted are marked as failed and proposed anew."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=_storage(store), study_name=space.name, direction="maximize", load_if_exists=True
    )
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def samples_left(space: Space, study: optuna.Study) -> int:
    """How many of the samples asked for are still to be run."""
    assert space.search is not None
    return max(0, space.search.samples - len(told(study)))


def run_search(
    space: Space,
    store: Store,
    study: optuna.Study,
    resources: Resources,
    progress: StudyProgress,
    *,
    retries: int,
    time_budget: float | None,
    eager: bool = False,
) -> None:
    """Run the samples that are left."""
    base = check_search(space)
    done = len(told(study))
    searcher = OptunaSearch(
        metric="val_accuracy",
        mode="max",
        study_name=space.name,
        storage=_storage(store),
        sampler=optuna.samplers.TPESampler(seed=done),  # a resumed search must not repeat its first proposals
    )
    spec = {
        "config": base.canonical(),
        "seeds": list(space.seeds),
        "threads": max(1, int(resources.cpus)),
        "gpu_share": resources.gpu_share(base),
        "snapshot": None,
        "eager": eager,
    }
    run_tuner(
        _sample,
        {"spec": spec, **{dimension.key: _domain(dimension) for dimension in space.sample}},
        store,
        resources,
        _SampleRecorder(store, Plan((base,), space.seeds, ()), progress),
        tune.TuneConfig(
            search_alg=searcher,
            scheduler=ASHAScheduler(
                metric="val_accuracy", mode="max", max_t=10_000, grace_period=GRACE, reduction_factor=3
            ),
            num_samples=samples_left(space, study),
            max_concurrent_trials=resources.slots,
            reuse_actors=True,
            time_budget_s=time_budget,
        ),
        retries,
    )


def largest_sample(space: Space) -> RunConfig:
    """The widest configuration that may be drawn: what a sample must have room for."""
    widest = {d.key: max(d.values) for d in space.sample if d.key in ("hidden", "embedding", "query_shot")}
    return resolve(replace(check_search(space), **widest))


def best_config(space: Space, store: Store) -> tuple[RunConfig, float]:
    """The sample with the best mean validation accuracy over its seeds, and that accuracy."""
    scores: dict[str, list[Record]] = {}
    for record in store.records():
        outdated = resolve(RunConfig.from_record(record["config"])).hash() != record["config_hash"]
        if record["validation"].get("stream") is not None and record["seed"] in space.seeds and not outdated:
            scores.setdefault(record["config_hash"], []).append(record)
    if not scores:
        raise UserError(f"no sample of {space.name} has finished; see {store.failures}.")
    best = max(scores.values(), key=objective)
    return RunConfig.from_record(best[0]["config"]), objective(best)


def confirmation(space: Space, config: RunConfig, store: Store) -> tuple[RunConfig, tuple[int, ...]]:
    """The chosen configuration without held-out classes, and seeds that the search never saw."""
    start = max(space.seeds) + 1
    chosen = resolve(replace(config, val_classes=0))
    with written_whole(store.folder / "best.yaml") as partial:
        partial.write_text(yaml.safe_dump(chosen.canonical(), sort_keys=False))
    return chosen, tuple(range(start, start + FRESH_SEEDS))


def importances(study: optuna.Study) -> dict[str, float]:
    """How much each hyperparameter explains of the objective; empty while too few samples tell."""
    try:
        return dict(optuna.importance.get_param_importances(study))
    except (ValueError, RuntimeError):
        return {}


class _SampleRecorder(Recorder):
    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._progress.finished(trial.trial_id)  # it may have been stopped before its end, by ASHA

    def _figures(self, records: list[Record]) -> list[float]:
        return [objective(records)]

    def _of(self, trial: Any) -> Trial:
        spec = trial.config["spec"]
        sampled = {key: value for key, value in trial.config.items() if key != "spec"}
        return Trial(RunConfig.from_mapping({**spec["config"], **sampled}), tuple(spec["seeds"]))


def _sample(config: dict[str, Any]) -> None:
    run_sample(config["spec"], {key: value for key, value in config.items() if key != "spec"})


def told(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Samples that were run to their end, or stopped for lagging behind."""
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return study.get_trials(deepcopy=False, states=states)


def _storage(store: Store) -> optuna.storages.BaseStorage:
    return optuna.storages.RDBStorage(f"sqlite:///{store.folder.resolve() / 'optuna.db'}")


def _domain(dimension: Dimension) -> Any:
    if dimension.kind == "choice":
        return tune.choice(list(dimension.values))
    low, high = dimension.values
    if dimension.kind == "randint":
        return tune.randint(low, high + 1)
    return {"uniform": tune.uniform, "loguniform": tune.loguniform}[dimension.kind](low, high)
