"""Who may import whom: every package and every room knows what stands below it, and nothing above."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from hagmeta.methods import METHODS
from hagmeta.scenarios import PROTOCOLS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("benchmarks", "study", "analysis", "hagmeta")  # from the top down
ROOMS = (  # of hagmeta, from the top down; those in one row know nothing of each other
    ("__init__", "__main__", "testing"),
    ("learner",),
    ("api",),
    ("engine",),
    ("config",),
    ("methods",),
    ("layers",),
    ("scenarios", "sparse"),
    ("packs", "datasets"),
    ("common",),
)
# Of study, from the top down. They import no file outside them, except that a search runs its own samples.
STUDY = ("search", "running", "space", "terminal", "planning", "store")
STUDY_TOP = {"search": {"execution", "options"}}
NOT_INSTALLED = {"tools", "tests"}  # no wheel has them
STRANGERS = {  # what a package must not know of the world outside
    "hagmeta": {"ray", "pandas", "matplotlib", "seaborn", "optuna", *NOT_INSTALLED},
    "analysis": {"ray", "torch", "torch_geometric", *NOT_INSTALLED},
    "study": {"matplotlib", "seaborn", *NOT_INSTALLED},
}
ROOMS_STRANGERS = {"scenarios": {"torch"}, "common": {"torch"}}
NEVER = {("methods", "scenarios"), ("layers", "scenarios"), ("sparse", "scenarios"), ("packs", "datasets")}
# The public layer: inside functions, and for types, it may import what stands above hagmeta.
FACE = {"hagmeta.__init__", "hagmeta.learner.learner"}
FACE |= {f"hagmeta.api.{name}" for name in ("calls", "comparison", "programs", "result", "studies")}
ABOVE = {"analysis", "study", "pandas", "matplotlib"}
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[-1] != "__init__" or len(parts) == 2 else parts[:-1])


FILES = {module_name(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text())


@cache
def imported(module: str) -> tuple[str, ...]:
    """The modules that a file imports, wherever in it; of ours, the files that they are."""
    return tuple(_imports(module, ast.walk(tree_of(module))))


def imported_at_once(module: str) -> Iterator[str]:
    """Those that are imported when the file is: not inside functions, and not for types alone."""
    yield from _imports(module, _run_at_once(tree_of(module)))


def _run_at_once(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not typing and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _run_at_once(node)


def _imports(module: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{module} imports by a relative name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (_file(name) for name in names)


def _file(name: str) -> str:
    """``a.b.C`` is the file ``a.b``; benchmarks import each other without their folder's name."""
    if f"benchmarks.{name.split('.')[0]}" in FILES:
        return f"benchmarks.{name.split('.')[0]}"
    while name not in FILES and f"{name}.__init__" not in FILES and "." in name:
        name = name.rpartition(".")[0]
    return name if name in FILES else f"{name}.__init__" if f"{name}.__init__" in FILES else name


def room(module: str) -> str:
    return module.split(".")[1]


def test_every_room_has_a_floor() -> None:
    rooms = {room(module) for module in FILES if module.startswith("hagmeta.")}
    assert rooms == FLOOR.keys()
    assert {path.parent.name for path in (ROOT / "study").glob("*/*.py")} == set(STUDY)
    for folder in (ROOT / "study", *(ROOT / "study" / name for name in STUDY)):
        assert sum(1 for path in folder.iterdir() if path.name != "__pycache__") <= 14


def test_imports_run_downward() -> None:
    assert not [f"{module} imports {other}" for module in FILES for other in wrong_imports(module)]


def wrong_imports(module: str) -> Iterator[str]:
    """Yield what a file imports and must not."""
    package, at_once = module.split(".")[0], set(imported_at_once(module))
    for other in imported(module):
        if module in FACE and other.split(".")[0] in ABOVE and other not in at_once:
            continue
        if other not in FILES:
            strangers = set(STRANGERS.get(package, ()))
            strangers |= set(ROOMS_STRANGERS.get(room(module), ()) if package == "hagmeta" else ())
            is_wrong = other.split(".")[0] in strangers
        else:
            is_wrong = (
                PACKAGES.index(package) > PACKAGES.index(other.split(".")[0]) or other == "study.launch"
            )
            if package == "hagmeta" and room(module) != room(other):
                is_wrong |= FLOOR[room(module)] >= FLOOR[room(other)] or (room(module), room(other)) in NEVER
            if package == "study" and room(module) in STUDY and other.startswith("study."):
                below = room(other) in STUDY and STUDY.index(room(module)) <= STUDY.index(room(other))
                is_wrong |= not below and room(other) not in STUDY_TOP.get(room(module), ())
        if is_wrong:
            yield other


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {module: [other for other in imported(module) if other in FILES] for module in FILES}
    TopologicalSorter(graph).prepare()  # raises where there is one


def test_only_the_face_of_hagmeta_knows_run_config() -> None:
    knowing = {module for module in FILES if "hagmeta.config.run_config" in imported(module)}
    assert {room(module) for module in knowing if module.startswith("hagmeta.")} == {
        *("__init__", "__main__", "testing", "learner", "api", "engine", "config")
    }
    assert [m for m in knowing if room(m) == "engine"] == ["hagmeta.engine.run"]


def test_analysis_knows_of_hagmeta_what_is_common_alone() -> None:
    for module in FILES:
        if module.startswith("analysis"):
            ours = {other for other in imported(module) if other.startswith(("hagmeta", "study"))}
            assert all(other.startswith("hagmeta.common") for other in ours), (module, ours)


def test_nobody_asks_for_a_protocol_or_a_method_by_name() -> None:
    """Names stand where the thing is declared and registered, and where a setting has its default."""
    names = {*METHODS, *PROTOCOLS}
    for module in FILES:
        if not module.startswith(("hagmeta", "study")) or module in ("hagmeta.methods", "hagmeta.scenarios"):
            continue  # the last two are the registries
        asked = {
            word.value
            for node in ast.walk(tree_of(module))
            if isinstance(node, ast.Compare | ast.MatchValue | ast.Subscript | ast.Dict | ast.Set)
            for word in ast.walk(node)
            if isinstance(word, ast.Constant) and isinstance(word.value, str)
        }
        assert not asked & names, module


def test_analysis_names_no_method() -> None:
    """Titles, roles and the rest come from records. Docstrings may use the words."""
    for module in FILES:
        if module.startswith("analysis"):
            assert not words_of(tree_of(module)) & METHODS.keys(), module


def words_of(tree: ast.Module) -> set[str]:
    """Return the words of all texts but docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    return {word for text in texts for word in re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text.casefold())}
