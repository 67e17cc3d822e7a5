from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hagmeta.config import RunConfig, resolve
from study import trial

SPEC = {
    "configs": [
        resolve(
            RunConfig(
                dataset="synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1",
                method="frozen",
                classes=(4, 5, 5),
                n_way=2,
                k_shot=3,
                hidden=16,
                embedding=8,
                pretrain_epochs=2,
            )
        ).canonical()
    ],
    "members": [(0, 0)],
    "threads": 1,
    "gpu_share": 0,
    "snapshot": None,
    "eager": False,
    "metrics": [],
}


def test_a_trial_is_done_with_the_report_of_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise Tune would run it again if its worker dies between that report and the end of the function.
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path))
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(trial.tune, "report", reports.append)
    trial.run_trial(SPEC | {"checkpoints": str(tmp_path / "checkpoints")})
    told = [bool(report.get("records")) for report in reports]
    assert told[-1] and told == [bool(report.get("done")) for report in reports]
