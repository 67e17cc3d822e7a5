"""Loggers that watch trials: Ray's own callbacks, by name."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hagmeta.common.errors import UserError
from study.store import Store

if TYPE_CHECKING:
    from ray import tune


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
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    where = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{store.folder.resolve() / 'mlflow.db'}")
    console.print(f"watch it: mlflow ui --backend-store-uri {where}", soft_wrap=True)
    return MLflowLoggerCallback(tracking_uri=where, experiment_name=store.folder.name)


def _wandb(store: Store, console: Console) -> tune.Callback:
    from ray.air.integrations.wandb import WandbLoggerCallback

    return WandbLoggerCallback(project=store.folder.name)


LOGGERS: dict[str, tuple[str, Callable[[Store, Console], tune.Callback]]] = {
    "tensorboard": ("tensorboardX", _tensorboard),
    "mlflow": ("mlflow", _mlflow),
    "wandb": ("wandb", _wandb),
}


def check_loggers(names: Sequence[str]) -> None:
    """Refuse those whose package is not installed."""
    for name in names:
        package = LOGGERS[name][0]
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--log {name} needs the package {package}: pip install {package}.")


def make_loggers(names: Sequence[str], store: Store, console: Console) -> list[tune.Callback]:
    """Those that are asked for, and where to look."""
    return [LOGGERS[name][1](store, console) for name in dict.fromkeys(names)]
