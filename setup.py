"""Keep the git commit in what is built, because an installation has no history."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithCommit(build_py):
    """Copies the packages, and writes the commit for `hagmeta.packs.environment.commit`."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        here = Path(__file__).parent
        try:
            _, head, changed = (
                subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout
                for words in (
                    ["ls-files", "--error-unmatch", "setup.py"],
                    ["rev-parse", "HEAD"],
                    ["status", "--porcelain"],
                )
            )
        except (OSError, subprocess.CalledProcessError):  # not a checkout
            return
        path = Path(self.build_lib) / "hagmeta" / "packs" / "COMMIT"
        path.write_text(head.strip() + "+" * bool(changed.strip()))


setup(cmdclass={"build_py": BuildWithCommit})
