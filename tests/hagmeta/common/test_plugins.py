from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hagmeta.common.errors import UserError
from hagmeta.common.plugins.identity import DIGITS
from hagmeta.config.run_config import RunConfig, all_settings, resolve, typed
from hagmeta.methods import METHODS
from hagmeta.methods.prototypes.cec import Cec
from tests.plugin_files import METHOD


def written(folder: Path, text: str = METHOD, name: str = "my_method.py") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_file_is_found_and_named_by_its_class_and_source_wherever_it_is(tmp_path: Path) -> None:
    here, there = (METHODS.name_of(f"{written(tmp_path / folder)}:Mine") for folder in ("a", "b"))
    assert here == there and here.startswith("Mine@") and len(here) == len("Mine@") + DIGITS
    changed = METHODS.name_of(f"{written(tmp_path / 'a', METHOD + chr(10) + '# changed')}:Mine")
    assert changed != here and METHODS[here] is not METHODS[changed]
    windows = written(tmp_path / "c", METHOD.replace("\n", "\r\n"))
    assert METHODS.name_of(f"{windows}:Mine") == here


def test_a_changed_plug_in_has_another_hash(tmp_path: Path) -> None:
    first = RunConfig.of(method=f"{written(tmp_path)}:Mine").hash()
    assert RunConfig.of(method=f"{written(tmp_path)}:Mine").hash() == first
    assert RunConfig.of(method=f"{written(tmp_path, METHOD + chr(10))}:Mine").hash() != first


def test_the_settings_of_a_plug_in_are_like_ours(tmp_path: Path) -> None:
    config = RunConfig.of(method=f"{written(tmp_path)}:Mine", my_scale="2.5")
    assert resolve(config).given() == ["my_scale"] and config.canonical()["my_scale"] == 2.5
    assert config.replace(my_scale=3).my_scale == 3.0  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"my_scale is 0; expected a number above 0"):
        config.replace(my_scale=0)
    assert "my_scale" in all_settings() and typed("my_scale", "4") == 4.0
    # With another method it makes no difference, as any setting that is not the method's.
    other = config.replace(method="cec")
    assert other == RunConfig.of(method="cec") == RunConfig.of(method="cec", my_scale=7)


def test_a_class_of_ours_keeps_its_name_by_whatever_reference() -> None:
    assert METHODS.name_of("hagmeta.methods.prototypes.cec:Cec") == METHODS.name_of(Cec) == "cec"


def test_a_class_given_in_python_is_a_plug_in_of_its_module() -> None:
    class Local(Cec):
        """Written here."""

    name = METHODS.name_of(Local)
    assert name.startswith("Local@") and METHODS.find(Local) is METHODS[name] is Local


def test_a_package_is_named_by_all_of_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "their_package"
    written(package, "", "__init__.py")
    written(package, "FACTOR = 1\n", "helper.py")
    written(package, METHOD + "\nfrom their_package import helper\n", "systems.py")
    monkeypatch.syspath_prepend(tmp_path)
    first = METHODS.name_of("their_package.systems:Mine")
    for module in [name for name in sys.modules if name.startswith("their_package")]:
        monkeypatch.delitem(sys.modules, module)
    written(package, "FACTOR = 2\n", "helper.py")
    assert METHODS.name_of("their_package.systems:Mine") != first


def test_an_entry_point_of_an_installed_package_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, METHOD, "installed_method.py")
    info = tmp_path / "installed_method-1.0.dist-info"
    written(info, "Metadata-Version: 2.1\nName: installed-method\nVersion: 1.0\n", "METADATA")
    written(info, "[hagmeta.methods]\nmy-method = installed_method:Mine\n", "entry_points.txt")
    monkeypatch.syspath_prepend(tmp_path)
    assert "my-method" in METHODS.names()
    assert METHODS.name_of("my-method").startswith("Mine@")


BAD = {
    "no_such_module:Mine": r"there is no module 'no_such_module'",
    "no_such_file.py:Mine": r"no_such_file\.py:Mine: no such file; expected method as file\.py:Name",
    "json:loads": r"loads is not a class, so it is not a valid method; expected a subclass of hagmeta",
    "json:JSONDecoder": r"class JSONDecoder is not a valid method",
    "json:Nothing": r"json:Nothing: the module has no 'Nothing'",
    "nope": r"unknown method 'nope'",
    "my.py": r"method 'my.py' names a file; expected my.py:Name",
    "": r"unknown method ''",
    "a:b:c": r"unknown method 'a:b:c'",
}


@pytest.mark.parametrize("reference", BAD)
def test_a_bad_reference_is_refused_in_a_line(reference: str) -> None:
    with pytest.raises(UserError, match=BAD[reference]) as error:
        RunConfig.of(method=reference)
    assert "\n" not in str(error.value)


BROKEN = {
    "import no_such_thing": r"cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'",
    "class Mine(": r"cannot be imported: SyntaxError",
    "raise RuntimeError('two\\nlines')": r"cannot be imported: RuntimeError: two lines",
    "import hagmeta\nclass Mine(hagmeta.Method):\n    pass": r"method Mine does not define classify; see",
    METHOD.replace(
        "@dataclass(frozen=True, kw_only=True)", ""
    ): r"the setting my_scale of MineSettings is not decl",
    METHOD.replace(
        ', scope="method"', ""
    ): r"my_method\.py:Mine: .* my_scale of MineSettings is None; expected one of task, labels, method$",
    METHOD.replace(
        'scope="method"', 'scope="mine"'
    ): r"setting my_scale of MineSettings is 'mine'; expected one of task, labels, method$",
    METHOD.replace(
        "MineSettings(hagmeta.MethodSettings)", "MineSettings"
    ): r"expected a class that inherits from",
    METHOD.replace(
        "my_scale", "memory"
    ): r"the setting memory of MineSettings is already declared by MemorySettings",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_plug_in_is_refused_in_a_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=BROKEN[text]) as error:
        RunConfig.of(method=f"{written(tmp_path, text)}:Mine")
    assert "\n" not in str(error.value)
    all_settings()  # what was refused spoils nothing
