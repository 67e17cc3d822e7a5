"""Loggers that watch trials, by name."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hagmeta.common.errors import UserError
from study.store import Store

if TYPE_CHECKING:
    from ray import tune


PARTS = ("pre-train/", "meta-train/", "test/", "session/")  # with which what trials report begins


def _tensorboard(store: Store, console: Console) -> tune.Callback:
    from ray.tune.logger import TBXLoggerCallback

    folder = store.folder.resolve() / "tensorboard"

    class Live(TBXLoggerCallback):
        """Into our folder at once: Ray's own keeps its files in a temporary one until a trial has ended."""

        def log_trial_start(self, trial: Any) -> None:
            if trial in self._trial_writer:  # it is tried again
                self._trial_writer[trial].close()
            self._trial_writer[trial] = self._summary_writer_cls(str(folder / str(trial)), flush_secs=5)
            self._trial_result[trial] = {}

    console.print(f"watch it: tensorboard --logdir {store.folder / 'tensorboard'}", soft_wrap=True)
    return Live()


def _mlflow(store: Store, console: Console) -> tune.Callback:
    from mlflow import MlflowClient, MlflowException
    from mlflow.entities import Metric, Param
    from ray.tune.logger import LoggerCallback

    where = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{store.folder.resolve() / 'mlflow.db'}")
    try:
        client = MlflowClient(where)
        found = client.get_experiment_by_name(store.folder.name)
        experiment = found.experiment_id if found else client.create_experiment(store.folder.name)
    except MlflowException as error:
        raise UserError(f"--log mlflow, to {where}: {str(error).splitlines()[0]}") from None

    class InBatches(LoggerCallback):
        """Ray's own writes number by number, and all settings with every report, as numbers again."""

        def __init__(self) -> None:
            self._runs: dict[Any, str] = {}

        def __getstate__(self) -> dict[str, Any]:
            """Tune pickles its callbacks to restore from; our files restore instead."""
            return {}

        def log_trial_start(self, trial: Any) -> None:
            if trial in self._runs:  # it is tried again
                return
            self._runs[trial] = client.create_run(experiment, run_name=str(trial)).info.run_id
            params = [Param(name, str(value)) for name, value in settings(trial).items()]
            client.log_batch(self._runs[trial], params=params)

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            step, now = result["training_iteration"], int(1000 * time.time())
            metrics = [Metric(name, value, now, step) for name, value in figures(result).items()]
            client.log_batch(self._runs[trial], metrics=metrics)

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            failed = failed or "failed" in trial.last_result
            if trial in self._runs:  # not if its worker never started
                client.set_terminated(self._runs[trial], "FAILED" if failed else "FINISHED")

    console.print(f"watch it: mlflow ui --backend-store-uri {where}", soft_wrap=True)
    return InBatches()


def _wandb(store: Store, console: Console) -> tune.Callback:
    from ray.air.integrations.wandb import WandbLoggerCallback, _WandbLoggingActor

    class Whole(_WandbLoggingActor):
        """Ends when all is written: Ray kills it then, and what is not written with it."""

        def run(self) -> None:
            super().run()
            self._wandb.teardown()

    class Brief(WandbLoggerCallback):
        """With settings by their names, and without what Tune adds to reports."""

        _logger_actor_cls = Whole

        def log_trial_start(self, trial: Any) -> None:
            self.kwargs["config"] = settings(trial)
            super().log_trial_start(trial)

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            step = {"training_iteration": result["training_iteration"]}
            super().log_trial_result(iteration, trial, figures(result) | step)

    folder = store.folder.resolve()
    # Where Ray has it by default, it copies the files when a trial has ended, and they have not.
    callback = Brief(project=folder.name, dir=str(folder))
    try:
        callback.setup()
    except ValueError:
        raise UserError(
            "--log wandb needs your account: WANDB_API_KEY, or wandb login. "
            "WANDB_MODE=offline writes to the study's folder instead."
        ) from None
    if os.environ.get("WANDB_MODE") == "offline":
        written = store.folder / "wandb" / "offline-run-*"
        console.print(f"when it has ended: wandb sync {written}", soft_wrap=True)
    return callback


def settings(trial: Any) -> dict[str, Any]:
    """Of Tune's trial, by their names."""
    spec = trial.config["spec"]
    return {**spec["config"], "seeds": spec["seeds"]}


def figures(result: dict[str, Any]) -> dict[str, float]:
    """The numbers of a report that tell of the run; Tune adds others."""
    return {
        name: float(value)
        for name, value in result.items()
        if name in ("accuracy", "val_accuracy", "trial_seconds") or name.startswith(PARTS)
    }


LOGGERS: dict[str, tuple[str, Callable[[Store, Console], tune.Callback]]] = {
    "tensorboard": ("tensorboardX", _tensorboard),
    "mlflow": ("mlflow", _mlflow),
    "wandb": ("wandb", _wandb),
}


def check_loggers(names: Sequence[str]) -> None:
    """Refuse those whose package is not there, or broken."""
    for name in names:
        package = LOGGERS[name][0]
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--log {name} needs the package {package}: pip install {package}.")
        try:
            importlib.import_module(package)
        except ImportError as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--log {name}: the package {package} cannot be imported: {reason}") from None


def make_loggers(names: Sequence[str], store: Store, console: Console) -> list[tune.Callback]:
    """Those that are asked for, and where to look."""
    return [LOGGERS[name][1](store, console) for name in dict.fromkeys(names)]
