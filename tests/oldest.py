"""Print constraints for the oldest versions that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"  # pinned: other versions take gigabytes

for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
    name, version = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", each).groups()
    print(TORCH if name == "torch" else f"{name}=={version}")
