"""Tell plain values, which a script can make again, from live objects, which it cannot.

Called by ``selection``. A plain value is a literal, or is built from other names by operators,
containers and the few calls below. All other calls make live objects: models, tensors, open files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Lookup", "Origin", "called_path", "is_record_class", "live_part", "live_statement"]

# Each gives the same value in every process and touches nothing: names for plain data, facts about
# the machine or its environment, and markers that exist once per process anyway (loggers, TypeVar).
HARMLESS_CALLS = frozenset(
    """
    builtins.abs builtins.all builtins.any builtins.bool builtins.bytes builtins.chr
    builtins.complex builtins.dict builtins.divmod builtins.enumerate builtins.filter
    builtins.float builtins.frozenset builtins.hasattr builtins.int builtins.isinstance
    builtins.len builtins.list builtins.map builtins.max builtins.min builtins.object builtins.ord
    builtins.pow builtins.range builtins.repr builtins.reversed builtins.round builtins.set
    builtins.slice builtins.sorted builtins.str builtins.sum builtins.tuple builtins.type
    builtins.zip
    argparse.Namespace collections.Counter collections.OrderedDict collections.defaultdict
    collections.deque collections.namedtuple dataclasses.field dataclasses.make_dataclass
    datetime.date datetime.timedelta decimal.Decimal enum.Enum enum.IntEnum fractions.Fraction
    functools.partial importlib.util.find_spec logging.getLogger operator.attrgetter
    operator.itemgetter os.cpu_count os.environ.get os.getcwd os.getenv pathlib.Path
    pathlib.Path.cwd pathlib.Path.home pathlib.PurePath pathlib.PurePosixPath platform.machine
    platform.python_version platform.system re.compile re.escape string.Template
    sys.platform.startswith types.MappingProxyType types.SimpleNamespace
    torch.Size torch.backends.mps.is_available torch.cuda.device_count torch.cuda.is_available
    torch.cuda.is_bf16_supported torch.device
    """.split()
)
HARMLESS_MODULES = frozenset({"math", "os.path", "typing", "typing_extensions"})
# Methods of strings, dicts and paths that make a new value; receivers are plain values themselves.
HARMLESS_METHODS = frozenset(
    """
    absolute as_posix casefold copy count decode encode endswith exists expanduser format get hex
    index is_dir is_file items join joinpath keys lower lstrip partition relative_to removeprefix
    removesuffix replace resolve rpartition rsplit rstrip split splitlines startswith strip title
    union upper values with_name with_suffix zfill
    """.split()
)
HARMLESS_REPORTS = frozenset({"builtins.print", "warnings.warn"})
"""May stand in an ``except ImportError`` branch beside the definitions."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a name comes from at some point of the notebook."""

    kind: str
    """import, builtin, record (a dataclass or named tuple), code (def, class), value, unknown."""
    path: str = ""
    """Dotted path, for imports and builtins."""


Lookup: TypeAlias = Callable[[str], Origin]


def live_statement(node: ast.stmt, lookup: Lookup) -> ast.AST | None:
    """Return the part of a statement that only the notebook can have, or None if it is plain."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.ClassDef() | ast.Pass() | ast.Raise():
            return None
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return None
        case ast.Assign(targets=targets, value=value):
            plain = all(_is_plain_target(target) for target in targets)
            return live_part(value, lookup) if plain else node
        case ast.AnnAssign(target=target, value=annotated):
            plain = _is_plain_target(target)
            return node if not plain else live_part(annotated, lookup) if annotated else None
        case ast.AugAssign(target=ast.Name(), value=value):
            return live_part(value, lookup)
        case ast.If(test=test, body=body, orelse=orelse):
            return live_part(test, lookup) or _live_block([*body, *orelse], lookup)
        case ast.Try() | ast.TryStar():
            handled = [line for handler in node.handlers for line in handler.body]
            body = [*node.body, *handled, *node.orelse, *node.finalbody]
            return _live_block(body, lookup)
        case _:
            return None if type(node).__name__ == "TypeAlias" else node


def _live_block(body: Sequence[ast.stmt], lookup: Lookup) -> ast.AST | None:
    for node in body:
        if isinstance(node, ast.Expr) and _is_report(node.value, lookup):
            continue
        part = live_statement(node, lookup)
        if part is not None:
            return part
    return None


def _is_report(node: ast.expr, lookup: Lookup) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if not isinstance(node, ast.Call) or called_path(node.func, lookup) not in HARMLESS_REPORTS:
        return False
    return all(live_part(part, lookup) is None for part in _arguments(node))


def live_part(node: ast.AST, lookup: Lookup) -> ast.AST | None:
    """Return the first part of an expression that makes a live object, or None."""
    parts: list[ast.AST]
    match node:
        case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr():
            return node
        case ast.Lambda(args=arguments):
            parts = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        case ast.Call():
            if not _is_harmless_call(node.func, lookup):
                return node
            parts = _arguments(node)
            if isinstance(node.func, ast.Attribute):
                parts = [node.func.value, *parts]
        case _:
            parts = list(ast.iter_child_nodes(node))
    return next((found for part in parts if (found := live_part(part, lookup))), None)


def called_path(function: ast.expr, lookup: Lookup) -> str:
    """Return the dotted path of what is called, as ``pathlib.Path``; empty if it is not known."""
    if isinstance(function, ast.Attribute):
        base = called_path(function.value, lookup)
        return f"{base}.{function.attr}" if base else ""
    if isinstance(function, ast.Name):
        return lookup(function.id).path
    return ""


def is_record_class(node: ast.stmt, lookup: Lookup) -> bool:
    """Whether calling this class only stores its arguments: a dataclass or a named tuple."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        path = called_path(node.value.func, lookup)
        return path in {"collections.namedtuple", "typing.NamedTuple", "dataclasses.make_dataclass"}
    if not isinstance(node, ast.ClassDef):
        return False
    makers = [part.func if isinstance(part, ast.Call) else part for part in node.decorator_list]
    paths = {called_path(part, lookup) for part in [*makers, *node.bases]}
    own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    is_record = bool(paths & {"dataclasses.dataclass", "typing.NamedTuple"})
    return is_record and not own & {"__init__", "__new__", "__post_init__"}


def _arguments(call: ast.Call) -> list[ast.AST]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_harmless_call(function: ast.expr, lookup: Lookup) -> bool:
    path = called_path(function, lookup)
    if path:
        return path in HARMLESS_CALLS or path.rpartition(".")[0] in HARMLESS_MODULES
    if isinstance(function, ast.Name):
        return lookup(function.id).kind == "record"
    if not isinstance(function, ast.Attribute) or function.attr not in HARMLESS_METHODS:
        return False
    owner = function.value
    return not isinstance(owner, ast.Name) or lookup(owner.id).kind not in ("code", "record")


def _is_plain_target(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(_is_plain_target(part) for part in target.elts)
    if isinstance(target, ast.Starred):
        return _is_plain_target(target.value)
    return isinstance(target, ast.Name)
