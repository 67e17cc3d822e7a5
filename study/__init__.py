"""Studies on Ray Tune."""

import os

# Set here, since Ray reads some of it when it is imported.
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # its console tables would run over ours
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # trials stay in the working folder
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # its CSV and JSON files: --log says which loggers there are
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # study/signals.py has ours
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # 57 lines each; we say one
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # its own state, to restore from: our records restore instead
}
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
