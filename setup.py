"""Keep the git commit in what is built, because an installation has no history."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
COMMIT = Path("hagmeta", "packs", "COMMIT")  # read by `hagmeta.packs.environment.commit`


class BuildWithCommit(build_py):
    """Copies the packages, and writes the commit."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            _write(_commit(), Path(self.build_lib))


class SourcesWithCommit(sdist):
    """Makes the archive of sources, from which a wheel may be built, with the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        commit = _commit()  # before the tree appears in the checkout, as a change
        super().make_release_tree(base_dir, files)
        _write(commit, Path(base_dir))


def _commit() -> str | None:
    """Return the commit of this checkout, or of the checkout from which this archive was made."""
    try:
        _, head, changed = (
            subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout
            for words in (
                ["ls-files", "--error-unmatch", "setup.py"],
                ["rev-parse", "HEAD"],
                ["status", "--porcelain"],
            )
        )
        return head.strip() + "+" * bool(changed.strip())
    except (OSError, subprocess.CalledProcessError):  # not a checkout
        return (HERE / COMMIT).read_text() if (HERE / COMMIT).is_file() else None


def _write(commit: str | None, folder: Path) -> None:
    if commit is not None:
        (folder / COMMIT).write_text(commit)


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SourcesWithCommit})
