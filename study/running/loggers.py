"""Create the loggers of experiment trackers, by name."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hagmeta.common.errors import UserError
from study.store.store import Store

if TYPE_CHECKING:
    from ray import tune


MOST_LETTERS = 150  # of a name, which is also one of a folder
PARTS = ("pre-train/", "meta-train/", "test/", "session/")  # prefixes of reported values


Namer = Callable[[Sequence[Mapping[str, Any]], Sequence[int]], Sequence[str]]  # of `Names.of`


class RunNames:
    """Names the runs of trackers: method, dataset, what varies, and seeds."""

    def __init__(self, name: Namer) -> None:
        self._name, self._taken = name, dict[str, str]()

    def of(self, trial: Any) -> str:
        """Return the name of a trial of Tune; equal names get the name of the trial in our files."""
        spec = trial.config["spec"]
        parts = self._name(spec["configs"], _seeds(spec))
        name = ", ".join(parts)[:MOST_LETTERS].replace("/", "-")
        return (
            name if self._taken.setdefault(name, spec["name"]) == spec["name"] else f"{name} {spec['name']}"
        )


def _tensorboard(store: Store, names: RunNames, console: Console) -> tune.Callback:
    from ray.tune.logger import LoggerCallback
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

    folder = store.folder.resolve() / "tensorboard"

    class Live(LoggerCallback):
        """Writes to our folder at once; Ray's logger uses a temporary one until a trial has ended."""

        def __init__(self) -> None:
            self._writers: dict[Any, SummaryWriter] = {}

        def __getstate__(self) -> dict[str, Any]:
            """Return nothing: Tune pickles callbacks to restore a study, but our files do that."""
            return {}

        def log_trial_start(self, trial: Any) -> None:
            self._writers[trial] = SummaryWriter(str(folder / names.of(trial)), flush_secs=5)

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            for name, value in figures(result).items():
                self._writers[trial].add_scalar(name, value, result["training_iteration"])

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            if writer := self._writers.pop(trial, None):  # none if its worker never started
                values = {name: _plain(value) for name, value in settings(trial).items()}
                for part in hparams(values, figures(trial.last_result)):
                    writer.file_writer.add_summary(part)
                writer.close()

    console.print(f"watch the study: tensorboard --logdir {store.folder / 'tensorboard'}", soft_wrap=True)
    return Live()


def _mlflow(store: Store, names: RunNames, console: Console) -> tune.Callback:
    from mlflow import MlflowClient, MlflowException
    from mlflow.entities import Metric, Param
    from ray.tune.logger import LoggerCallback

    where = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{store.folder.resolve() / 'mlflow.db'}")
    try:
        client = MlflowClient(where)
        found = client.get_experiment_by_name(store.folder.name)
        experiment = found.experiment_id if found else client.create_experiment(store.folder.name)
    except MlflowException as error:
        raise UserError(f"--log mlflow cannot use {where}: {str(error).splitlines()[0]}") from None

    class InBatches(LoggerCallback):
        """Writes in batches; Ray's logger writes each number alone, and all settings with every report."""

        def __init__(self) -> None:
            self._runs: dict[Any, str] = {}

        def __getstate__(self) -> dict[str, Any]:
            """Return nothing: Tune pickles callbacks to restore a study, but our files do that."""
            return {}

        def log_trial_start(self, trial: Any) -> None:
            run = client.create_run(experiment, run_name=names.of(trial))
            self._runs[trial] = run.info.run_id
            params = [Param(name, str(value)) for name, value in settings(trial).items()]
            client.log_batch(self._runs[trial], params=params)

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            step, now = result["training_iteration"], int(1000 * time.time())
            metrics = [Metric(name, value, now, step) for name, value in figures(result).items()]
            client.log_batch(self._runs[trial], metrics=metrics)

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            failed = failed or "failed" in trial.last_result
            if trial in self._runs:  # false if its worker never started
                client.set_terminated(self._runs[trial], "FAILED" if failed else "FINISHED")

    console.print(f"watch the study: mlflow ui --backend-store-uri {where}", soft_wrap=True)
    return InBatches()


def _wandb(store: Store, names: RunNames, console: Console) -> tune.Callback:
    import wandb
    from ray.tune.logger import LoggerCallback

    folder = store.folder.resolve()
    if os.environ.get("WANDB_MODE") == "offline":
        written = store.folder / "wandb" / "offline-run-*"
        console.print(f"upload at the end: wandb sync {written}", soft_wrap=True)
    elif not wandb.login(prompt=False):
        raise UserError(
            "--log wandb needs an account: set WANDB_API_KEY, or run wandb login. "
            "Set WANDB_MODE=offline to write to the study's folder instead."
        )

    class Together(LoggerCallback):
        """Writes all runs from one thread, so that no trial waits; Ray's logger starts a process for each."""

        def __init__(self) -> None:
            self._runs: dict[Any, Any] = {}
            self._thread = ThreadPoolExecutor(1)

        def __getstate__(self) -> dict[str, Any]:
            """Return nothing: Tune pickles callbacks to restore a study, but our files do that."""
            return {}

        def log_trial_start(self, trial: Any) -> None:
            self._thread.submit(self._begin, trial, names.of(trial))

        def _begin(self, trial: Any, name: str) -> None:
            about = {"id": trial.trial_id, "name": name, "config": settings(trial)}
            place = {"project": folder.name, "dir": str(folder), "reinit": "create_new"}
            self._runs[trial] = wandb.init(**about, **place, settings=wandb.Settings(silent=True))

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            values, step = figures(result), result["training_iteration"]
            self._thread.submit(lambda: self._runs[trial].log(values, step=step))

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            code = int(failed or "failed" in trial.last_result)
            self._thread.submit(lambda: self._runs.pop(trial).finish(exit_code=code))

        def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
            self._thread.submit(int).result()  # after all others

    return Together()


def settings(trial: Any) -> dict[str, Any]:
    """Return the settings and seeds of a trial of Tune; a setting that differs in its pack has all values."""
    spec = trial.config["spec"]
    first, *others = spec["configs"]
    shared = {
        key: value
        if all(other.get(key) == value for other in others)
        else [each.get(key) for each in spec["configs"]]
        for key, value in first.items()
    }
    return {**shared, "seeds": _seeds(spec)}


def _seeds(spec: Mapping[str, Any]) -> list[int]:
    return list(dict.fromkeys(seed for _, seed in spec["members"]))


def _plain(value: Any) -> bool | float | str:
    """Return a value that TensorBoard can show as a hyperparameter."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def figures(result: dict[str, Any]) -> dict[str, float]:
    """Return the values of a report that describe the run, without those that Tune adds."""
    return {
        name: float(value)
        for name, value in result.items()
        if name in ("accuracy", "val_accuracy", "trial_seconds") or name.startswith(PARTS)
    }


LOGGERS: dict[str, tuple[str, Callable[[Store, RunNames, Console], tune.Callback]]] = {
    "tensorboard": ("tensorboardX", _tensorboard),
    "mlflow": ("mlflow", _mlflow),
    "wandb": ("wandb", _wandb),
}


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers whose package is missing or cannot be imported."""
    for name in names:
        package = LOGGERS[name][0]
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--log {name} needs the package {package}: pip install {package}.")
        try:
            importlib.import_module(package)
        except ImportError as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--log {name}: cannot import the package {package}: {reason}") from None


def make_loggers(loggers: Sequence[str], store: Store, name: Namer, console: Console) -> list[tune.Callback]:
    """Create loggers, which name runs by `name`, and print where to find their results."""
    names = RunNames(name)
    return [LOGGERS[logger][1](store, names, console) for logger in dict.fromkeys(loggers)]
