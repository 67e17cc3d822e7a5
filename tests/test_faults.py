"""The list of faults that `make faults` tries fits the code and the tests of today."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.faults.__main__ import main
from tests.faults.fault import ROOT, Fault, FaultError, problems, read_faults

FAULTS = read_faults()
SOURCE = "def one():\n    return 1 + 1\n\n\ndef two():\n    return 2\n"


def test_every_fault_can_be_put_into_the_code() -> None:
    assert not list(problems(FAULTS))


def test_names_are_unique_and_reasons_are_given() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.why and fault.tests for fault in FAULTS)


@cache
def functions(file: str) -> set[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_named_test_is_there() -> None:
    for fault in FAULTS:
        for test in fault.tests:
            file, _, name = test.partition("::")
            assert not name or name.partition("[")[0] in functions(file), f"{fault.name}: {test}"


def test_only_the_function_is_changed() -> None:
    fault = Fault("f", "why", "module:two", "return 2", "return 3", ())
    assert fault.put_into(SOURCE) == SOURCE.replace("return 2", "return 3")


@pytest.mark.parametrize(
    ("where", "old", "new", "reason"),
    [
        ("module:three", "2", "3", "f: module.py has no three"),
        ("module:one", "2", "3", "f: module:one holds its old text 0 times"),
        ("module:one", "1", "3", "f: module:one holds its old text 2 times"),
        ("module:two", "2", "2  # two", "f: its new text changes nothing in module:two"),
        ("module:two", "2", "(", "f: module:two does not compile"),
    ],
)
def test_a_fault_that_does_not_fit_is_an_error(where: str, old: str, new: str, reason: str) -> None:
    with pytest.raises(FaultError, match=reason.replace("(", r"\(")):
        Fault("f", "why", where, old, new, ()).put_into(SOURCE)


def test_an_unknown_name_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["wrong-sing"])
    assert error.value.code == 2
    assert "there is no fault 'wrong-sing'; expected one such as wrong-sign" in capsys.readouterr().err
