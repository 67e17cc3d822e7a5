"""Import all that a trial needs: workers import this module when they start, before a trial asks for them."""

from __future__ import annotations

import os

from study.early import collector_paused
from study.worker import import_packages

BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"

# Torch must not look for GPUs by CUDA yet: that would fix the GPUs of this process before Ray chooses one.
_before = os.environ.get(BY_NVML)
os.environ[BY_NVML] = "1"
with collector_paused():
    import_packages()
    import study.trial  # noqa: F401
if _before is None:
    del os.environ[BY_NVML]
else:
    os.environ[BY_NVML] = _before
