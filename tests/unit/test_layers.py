"""The house's floors: a module imports from its own line of the table or from lines below it."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

# A room is a module of ddpnb, or a sub-package with all that is in it.
TABLE = {
    5: "notebook cli cli_runs demo lab terminal execution __main__",
    4: "compare profile checkup diagnose exercises options usage",
    3: "job api plan sources run_list capture warm",
    2: "launchers worker",
    1: "rundir rank_dir machine_lock lines timeline tail monitor process failures missing"
    " json_files hints tracebacks log_search",
    0: "words errors spec records call contract",
}
LINE = {room: line for line, rooms in TABLE.items() for room in rooms.split()}
STRANGERS = {("launchers", "worker"), ("worker", "launchers")}  # side by side, joined only by files
STDLIB_ONLY = {room for room, line in LINE.items() if line <= 1} | {"launchers"}
ONLY_IN_NOTEBOOK = {"IPython", "ipywidgets", "anywidget"}

DOOR = ""  # ddpnb/__init__.py
DOOR_LINE = 4  # it offers what `api` (3) makes, so only what stands above that may enter by it


@dataclass(frozen=True)
class Import:
    """One import: from which file and line, of what, and whether importing the file runs it."""

    file: str
    line: int
    name: str
    at_import: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"

    @property
    def room(self) -> str:
        return room_of(self.file.removesuffix(".py").replace("/", "."))

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def room_of(module: str) -> str:
    """Return `launchers` for `ddpnb.launchers.base`, and the door for `ddpnb` itself."""
    inside = module.split(".")[1:]
    return DOOR if not inside or inside == ["__init__"] else inside[0]


def imports_in(file: Path, root: Path) -> Iterator[Import]:
    """Yield every import of a file, those inside functions and of `import_module("...")` too."""
    path = file.relative_to(root)

    def visit(node: ast.AST, at_import: bool) -> Iterator[Import]:
        for name in names_of(node, path):
            yield Import(path.as_posix(), node.lineno, name, at_import)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            at_import = False
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            at_import = False
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_import)

    yield from visit(ast.parse(file.read_text(encoding="utf-8")), True)


def names_of(node: ast.AST, path: Path) -> list[str]:
    """Return the full names of the modules that one statement imports, none for other nodes."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            package = ".".join(path.parent.parts[: len(path.parent.parts) - level + 1])
            start = ".".join(filter(None, [package if level else "", module]))
            # `from ddpnb import job` is an import of ddpnb.job
            return [f"{start}.{alias.name}" for alias in names] if start == "ddpnb" else [start]
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def faults(found: Import) -> str | None:
    """Return what is wrong with one import, or None."""
    room = found.room
    if room == DOOR:
        light = found.top in sys.stdlib_module_names or LINE.get(room_of(found.name), 9) <= 1
        return None if light or not found.at_import else "the door may import this only lazily"
    if room not in LINE:
        return "stands in no line of the table"
    if found.top == "ddpnb":
        return faults_inside(room, found.name)
    if found.top in ONLY_IN_NOTEBOOK and room != "notebook":
        return "only notebook/ may import this"
    if room in STDLIB_ONLY and found.top not in {*sys.stdlib_module_names, "__future__"}:
        return f"{room} has the standard library only"
    return None


def faults_inside(room: str, name: str) -> str | None:
    other = room_of(name)
    if name == "ddpnb.__version__" or other == room:
        return None
    if other not in LINE:  # the door, a public name by way of it, or a module yet to be entered
        below = LINE[room] < DOOR_LINE
        return "enters by the door from below it, or is in no line of the table" if below else None
    if (room, other) in STRANGERS:
        return "launchers and worker know each other only by files"
    if LINE[other] > LINE[room]:
        return f"{room} is line {LINE[room]}, {other} is line {LINE[other]}"
    return None


def modules(root: Path) -> list[Path]:
    return sorted((root / "ddpnb").rglob("*.py"))


def faults_under(root: Path) -> list[str]:
    return [
        f"{found}: {fault}"
        for file in modules(root)
        for found in imports_in(file, root)
        if (fault := faults(found))
    ]


def test_every_import_goes_to_its_own_line_or_below():
    assert faults_under(ROOT) == []


def test_every_module_stands_in_the_table():
    rooms = {room_of(".".join(m.relative_to(ROOT).with_suffix("").parts)) for m in modules(ROOT)}

    assert rooms - set(LINE) - {DOOR} == set()


def test_bootstrap_starts_with_the_standard_library_alone():
    found = imports_in(ROOT / "ddpnb/worker/bootstrap.py", ROOT)
    outside = [f for f in found if f.top not in {*sys.stdlib_module_names, "ddpnb"}]

    assert [str(f) for f in outside if f.at_import] == []


@pytest.mark.parametrize(
    ("file", "code", "fault"),
    [
        ("rundir.py", "from ddpnb.job import Job", "rundir is line 1, job is line 3"),
        ("rundir.py", "from ddpnb import job", "rundir is line 1, job is line 3"),
        ("rundir.py", "def f():\n    from . import api", "rundir is line 1, api is line 3"),
        ("tail.py", "import numpy", "tail has the standard library only"),
        ("job.py", "import importlib\nimportlib.import_module('ddpnb.cli')", "cli is line 5"),
        ("job.py", "from ddpnb import launch", "enters by the door"),
        ("api.py", "from IPython import get_ipython", "only notebook/"),
        ("launchers/spawn.py", "from ..worker import spawn_host", "only by files"),
        ("launchers/spawn.py", "import torch", "launchers has the standard library only"),
        ("worker/data.py", "from ddpnb.launchers.base import Command", "only by files"),
        ("utils.py", "import os", "no line of the table"),
        ("__init__.py", "from ddpnb.api import launch", "only lazily"),
        ("__init__.py", "import torch", "only lazily"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, code: str, fault: str):
    write(tmp_path, file, code)

    assert len(faults_under(tmp_path)) == 1
    assert fault in faults_under(tmp_path)[0]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("__init__.py", "def __getattr__(name):\n    from ddpnb import api\n    return api"),
        ("__init__.py", "if TYPE_CHECKING:\n    from ddpnb.api import launch"),
        ("__init__.py", "from ddpnb.errors import DdpnbError"),
        ("worker/data.py", "from ddpnb.rundir import RunDir\nimport torch"),
        ("launchers/spawn.py", "from .base import Command\nfrom ..spec import LaunchSpec"),
        ("notebook/charts.py", "import ipywidgets\nfrom ddpnb import launch"),
        ("api.py", "from ddpnb import __version__"),
    ],
)
def test_a_right_import_is_let_through(tmp_path: Path, file: str, code: str):
    write(tmp_path, file, code)

    assert faults_under(tmp_path) == []


def write(root: Path, file: str, code: str) -> None:
    path = root / "ddpnb" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")


def test_the_document_shows_the_same_table():
    text = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    shown = {}
    for line in text.partition("## The house")[2].partition("## One launch")[0].splitlines():
        if line[:1].isdigit():
            rooms = line[1:].partition("      ")[0].split()
            shown[int(line[0])] = {room.strip("/") for room in rooms}

    there = {path.stem for path in (ROOT / "ddpnb").iterdir()} - {"__main__"}
    assert shown == {line: set(rooms.split()) & there for line, rooms in TABLE.items()}
