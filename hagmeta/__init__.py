"""Graph few-shot class-incremental learning in Python.

Example::

    import hagmeta

    data = hagmeta.Dataset.from_pyg(pyg_data, name="mine")
    result = hagmeta.run("posterior-means", data, classes=(12, 12, 27), n_way=3, k_shot=5, seeds=10)
    result                              # a small table
    result.frame()                      # pandas: one row per seed and session
    result.plot()                       # matplotlib: session curves with intervals
    result.save("results/mine")         # a folder that `python -m analysis` reads
    hagmeta.compare(result, other)      # paired differences and verdicts

`import hagmeta` is fast: it loads torch and pandas only when you first use a name that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hagmeta.common.version import __version__

if TYPE_CHECKING:
    from hagmeta.api.calls import load_dataset, run
    from hagmeta.api.calls import load_dataset as load
    from hagmeta.api.comparison import Comparison, compare
    from hagmeta.api.result import Result
    from hagmeta.api.studies import open_study, report, study
    from hagmeta.common.errors import Diverged, UserError
    from hagmeta.common.settings.domains import Choice, Number, Whole
    from hagmeta.common.settings.setting import setting
    from hagmeta.common.traits import MethodTraits
    from hagmeta.config.run_config import RunConfig, resolve
    from hagmeta.datasets.base import Dataset
    from hagmeta.layers.encoders.base import Encoder
    from hagmeta.learner import Learner
    from hagmeta.methods.base import Method, MethodSettings
    from hagmeta.scenarios.metrics import Metric

__all__ = [
    "Choice",
    "Comparison",
    "Dataset",
    "Diverged",
    "Encoder",
    "Learner",
    "Method",
    "MethodSettings",
    "MethodTraits",
    "Metric",
    "Number",
    "Result",
    "RunConfig",
    "UserError",
    "Whole",
    "__version__",
    "compare",
    "load",
    "load_dataset",
    "open_study",
    "report",
    "resolve",
    "run",
    "setting",
    "study",
]
_HOMES = {
    "hagmeta.api.calls": ("load_dataset", "run"),
    "hagmeta.api.comparison": ("Comparison", "compare"),
    "hagmeta.api.result": ("Result",),
    "hagmeta.api.studies": ("open_study", "report", "study"),
    "hagmeta.common.settings.domains": ("Choice", "Number", "Whole"),
    "hagmeta.common.errors": ("Diverged", "UserError"),
    "hagmeta.common.settings.setting": ("setting",),
    "hagmeta.common.traits": ("MethodTraits",),
    "hagmeta.config.run_config": ("RunConfig", "resolve"),
    "hagmeta.datasets.base": ("Dataset",),
    "hagmeta.learner": ("Learner",),
    "hagmeta.methods.base": ("Method", "MethodSettings"),
    "hagmeta.layers.encoders.base": ("Encoder",),
    "hagmeta.scenarios.metrics": ("Metric",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ALIASES = {"load": "load_dataset"}


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__"])


def __getattr__(name: str) -> Any:
    own = _ALIASES.get(name, name)
    if own not in _HOME_OF:
        raise AttributeError(f"module 'hagmeta' has no attribute {name!r}")
    if _HOME_OF[own].startswith("hagmeta.api."):  # these use `study` and `analysis`, some after long runs
        from hagmeta.api.programs import check_packages

        check_packages()
    return getattr(import_module(_HOME_OF[own]), own)
