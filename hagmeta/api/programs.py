"""Start the installed programs, after a look at packages of the user that hide ours."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from hagmeta.common.errors import UserError

PARTS = {"study": "store/store.py", "analysis": "page/write.py"}  # a file that only our package has


def check_packages() -> None:
    """Raise a UserError if Python finds another package under the name of one of ours."""
    for name, part in PARTS.items():
        spec = find_spec(name)
        folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
        if spec and not any((folder / part).is_file() for folder in folders):
            found = folders[0] if folders else spec.origin
            raise UserError(
                f"{found} hides the package `{name}` of hagmeta. Rename it, or run from another folder and "
                "without it on PYTHONPATH."
            )


def study() -> int:
    """Run `hagmeta-study` and return the exit status."""
    if _is_hidden():
        return 2
    from study.launch import main

    return main()


def report() -> int:
    """Run `hagmeta-report` and return the exit status."""
    if _is_hidden():
        return 2
    from analysis.__main__ import main

    return main()


def _is_hidden() -> bool:
    try:
        check_packages()
    except UserError as error:
        from hagmeta.common.command import show_error

        show_error(error)
        return True
    return False
