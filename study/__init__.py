"""Run studies on Ray Tune."""

import os

# Set before Ray is imported, because it reads some of them on import.
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # its console tables would disturb ours
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # trials stay in the working folder
    "RAY_prestart_worker_first_driver": "0",  # one per CPU, none of which Tune can use
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run`, workers use the environment of the launch
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV and JSON files: --log chooses the loggers
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # study/running/signals.py handles signals
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # 57 lines each; we print one
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # no saved state of Tune: a study continues from our records
}
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
