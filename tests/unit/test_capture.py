"""A function of a notebook, written as a script: what is taken along, and what is refused.

Each notebook is written as its cells, parted by `# %%`; the first is cell [1]. Scripts are really
run, by plain Python: what they print is what counts.
"""

import enum
import functools
import math
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy
import pytest

from ddpnb.capture import HEADER_PREFIX, cells_of, name_of, script_from_cells
from ddpnb.errors import CaptureError


def cells(text: str) -> list[str]:
    """Return a notebook's inputs as a kernel keeps them: number 0 is empty."""
    return ["", *(cell.strip("\n") for cell in text.split("# %%\n"))]


def script(text: str, /, **arguments: object) -> str:
    return script_from_cells(cells(text), "train", arguments)


def printed(text: str, tmp_path: Path, /, **arguments: object) -> str:
    """Return what the script for `train` prints."""
    file = tmp_path / "train.py"
    file.write_text(script(text, **arguments), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refusal(text: str, /, **arguments: object) -> str:
    with pytest.raises(CaptureError) as caught:
        script(text, **arguments)
    return str(caught.value)


def test_script_reads_as_the_user_wrote_it():
    text = '''
%matplotlib inline
import os, sys
from math import (floor, sqrt)
# %%
# How wide and how fast.

WIDTH = 4  # neurons
RATES = {
    "slow": 0.1,  # safe
}
OTHER = 7
# %%
class Net:
    """A net."""

    # Its size.
    def size(self):
        return sqrt(WIDTH)
        # and no more
# %%
unrelated = open("/dev/null")
def plot(): ...
# %%
# Prints.
def train(lr=RATES["slow"]):
    print(Net().size(), os.sep, lr)
job = ddpnb.launch(train, lr=0.5)
'''

    assert (
        script(text, lr=0.5)
        == '''\
# Written by ddpnb from the notebook's cells 1-3, 5. Run it: torchrun --nproc-per-node 2 train.py

import os
from math import sqrt

# How wide and how fast.

WIDTH = 4  # neurons
RATES = {
    "slow": 0.1,  # safe
}


class Net:
    """A net."""

    # Its size.
    def size(self):
        return sqrt(WIDTH)
        # and no more


# Prints.
def train(lr=RATES["slow"]):
    print(Net().size(), os.sep, lr)


if __name__ == "__main__":
    train(lr=0.5)
'''
    )


KEPT = {
    "a helper of a helper": (
        """
def low(x): return x + 1
# %%
def high(x): return low(x) * 2
# %%
def train(): print(high(1))
""",
        "4",
    ),
    "the newest definition wins": (
        """
def helper(): return "old"
LR = 1
# %%
def train(): print(helper(), LR)
# %%
def helper(): return "new"
# %%
LR = 2
""",
        "new 2",
    ),
    "a value made from a name that changed afterwards": (
        "BASE = 2\n# %%\nBATCH = 2 * BASE\n# %%\nBASE = 10\ndef train(): print(BASE, BATCH)",
        "10 4",
    ),
    "an import that hides a definition, and the definition still in use": (
        """
def sqrt(x): return "mine"
class Keeps: f = staticmethod(sqrt)
# %%
from math import sqrt
def train(): print(Keeps.f(4), sqrt(4))
""",
        "mine 2.0",
    ),
    "a function called while the script is read": (
        """
SCALE = 3
def helper(): return SCALE
class A: x = helper()
# %%
SCALE = 5
def train(): print(A.x, helper())
""",
        "3 5",
    ),
    "a cell that ran twice, around a class that derives from it": (
        """
class Net: ...
# %%
class Wide(Net): ...
# %%
class Net: ...
# %%
def train(): print(isinstance(Wide(), Net))
""",
        "True",
    ),
    "tuples, annotated and augmented assignments": (
        """
A, (B, *C) = 1, (2, 3, 4)
D: int = -A
# %%
D += 10
# %%
def train(): print(A, B, C, D)
""",
        "1 2 [3, 4] 9",
    ),
    "a try that imports": (
        """
try:
    import no_such_module
except ImportError:
    print("without")
    no_such_module = None
def train(): print(no_such_module)
""",
        "without\nNone",
    ),
    "an if that defines, over an older definition": (
        """
FAST = False
def step(): return "slow"
# %%
if FAST:
    def step(): return "fast"
def train(): print(step())
""",
        "slow",
    ),
    "names for type checkers only": (
        """
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Thing
# %%
def train(x: Thing = None, y: Unheard = None) -> "Of": print(x)
""",
        "None",
    ),
    "records, paths, loggers and patterns": (
        """
import logging, re
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
# %%
@dataclass(frozen=True)
class Config:
    lr: float = 0.1
Point = namedtuple("Point", "x y")
# %%
config, point = Config(lr=0.5), Point(1, 2)
FILE = Path("data") / "x.txt"; FILE.parent.mkdir(exist_ok=True)
WORD = re.compile(r"\\w+")
log = logging.getLogger("train")
log.setLevel(logging.INFO)
# %%
def train(): print(config.lr, point.y, FILE.name, WORD.pattern, log.name)
""",
        "0.5 2 x.txt \\w+ train",
    ),
    "containers built by comprehension": (
        """
LETTERS = sorted(set("abba"))
INDEX = {letter: i for i, letter in enumerate(LETTERS)}
SIZES = [2**i for i in range(3)]
# %%
def train(): print(INDEX, SIZES)
""",
        "{'a': 0, 'b': 1} [1, 2, 4]",
    ),
    "a lambda with a name": ("K = 2\n# %%\ntrain = lambda: print(K)", "2"),
    "a global that a function makes": (
        """
def setup():
    global MODEL
    MODEL = 1
def train():
    setup()
    print(MODEL)
""",
        "1",
    ),
    "a counter that a function moves": (
        """
COUNT = 5
def train():
    global COUNT
    COUNT += 1
    print(COUNT)
""",
        "6",
    ),
    "a star import": (
        "from math import *\n# %%\nR = sqrt(4)\ndef train(): print(R, floor(pi))",
        "2.0 3",
    ),
    "several imports of one package": (
        """
import xml.dom
# %%
import xml.etree.ElementTree
# %%
def train(): print(xml.dom.__name__, xml.etree.ElementTree.fromstring("<a/>").tag)
""",
        "xml.dom a",
    ),
    "magics around it": (
        """
%load_ext autoreload
!pip install \\
    something
files = !ls
range?
TEXT = '''
!not a magic
'''
def train(): print(TEXT.strip())
""",
        "!not a magic",
    ),
    "the kernel's own translation": (
        """
get_ipython().run_line_magic('pip', 'install x')
N = 1
# %%
get_ipython().run_cell_magic('time', '', 'N = 2\\n')
# %%
get_ipython().run_cell_magic('bash', '', 'N=3\\n')
# %%
def train(): print(N)
""",
        "2",
    ),
    "a cell that was no Python, and one that awaits": (
        """
N = = 2
# %%
import asyncio
await asyncio.sleep(0)
N = 1
# %%
def train(): print(N)
""",
        "1",
    ),
    "Python's scopes": (
        """
a, b = 1, 2
live = open("/dev/null")
class C:
    a = a
    both = [a for _ in range(b)]
    live = 0
    alive = live
# %%
def train(live=0, **others):
    match {"k": 1}:
        case {"k": value, **rest}: print(value, rest)
    try: 1 / 0
    except ZeroDivisionError as error: print(error)
    def inner():
        nonlocal live
        live += b
        return live
    found = [last := i for i in range(2)]
    print(inner(), found, last, f"{a:>{b}}", C.both, C.alive, (lambda live: live)(3))
""",
        "1 {}\ndivision by zero\n2 [0, 1] 1  1 [1, 1] 0 3",
    ),
    "a change that came before the definition": (
        "X = []\nX.append(1)\n# %%\nX = [2]\ndef train(): print(X)",
        "[2]",
    ),
    "functions that enter themselves into a table": (
        """
from functools import singledispatch
TABLE = {}
def entered(f):
    TABLE[f.__name__] = f
    return f
@singledispatch
def show(x): print("any", x)
# %%
@entered
def small(): ...
@show.register
def _(x: int): print("int", x)
# %%
def train():
    show(1)
    print(list(TABLE))
""",
        "int 1\n['small']",
    ),
    "a trial run in the notebook": (
        "SEEN = []\ndef train():\n    SEEN.append(1)\n    print(SEEN)\n# %%\ntrain()",
        "[1]",
    ),
    "a copy that was changed": (
        "X = {'a': 1}\nY = {**X}\nY['a'] = 2\n# %%\ndef train(): print(X)",
        "{'a': 1}",
    ),
    "calls that only look": (
        """
X, DAY = {"a": 1}, "day"
# %%
X.items()
DAY.upper()
X["a"]
len(X)
# %%
def train(): print(X, DAY)
""",
        "{'a': 1} day",
    ),
    "statements on one line": (
        "A = 1; B = '; #'; C = 3  # c\ndef train(): print(A, B, C)",
        "1 ; # 3",
    ),
    "other alphabets": ("größe = 'ü'; b = '数'\ndef train(): print(größe, b)", "ü 数"),
}


@pytest.mark.parametrize(("text", "output"), KEPT.values(), ids=KEPT)
def test_script_gives_what_the_notebook_has_with(text: str, output: str, tmp_path: Path):
    assert printed(text, tmp_path) == output


REFUSED = {
    "a model": (
        "import torch\n# %%\nmodel = torch.nn.Linear(1, 1)\n# %%\ndef train(): model()",
        "train (cell [3], line 1) uses model; cell [2], line 1; inside train",
    ),
    "an open file of a with block": (
        "with open('x') as f: text = f.read()\n# %%\ndef train(): print(text)",
        "uses text; a `with` block; cell [1]",
    ),
    "a loop's variable": (
        "for i in range(3): pass\n# %%\ndef train(): print(i)",
        "uses i; a `for` loop; cell [1]",
    ),
    "a default that is live": (
        "net = make()\ndef train(x=net): ...",
        "train (cell [1], line 2) uses net; net = make()",
    ),
    "an awaited value": ("data = await fetch()\ndef train(): data", "uses data; cell [1], line 1"),
    "a shell's output": ("files = !ls\ndef train(): files", "uses files; files = !ls"),
    "a value counted up from a live one": (
        "n = count()\n# %%\nn += 1\ndef train(): n",
        "uses n; cell [1], line 1: n = count()",
    ),
    "a try block that installs": (
        "try:\n    import x\nexcept ImportError:\n    !pip install x\n    import x\ndef train(): x",
        "uses x; `try` block; line 4: !pip install x",
    ),
    "a name that nothing binds": (
        "def helper():\n    return tokens\n# %%\ndef train(): helper()",
        "helper (cell [1], line 2) uses tokens; no executed cell",
    ),
    "a name in a cell magic": (
        "%%ddp other.py\ntokens = 3\n# %%\ndef train(): tokens",
        "tokens; Cell [1] mentions it; %%ddp cell",
    ),
    "a name in a broken cell": (
        "tokens = = 3\n# %%\ndef train(): tokens",
        "tokens; Cell [1] mentions it; no Python (line 1",
    ),
    "a deleted name": ("N = 1\n# %%\ndel N\ndef train(): N", "uses N; cell [2], line 1 deletes"),
    "a notebook's own name": ("def train(): display(1)", "uses display; only in a notebook"),
    "a magic in the body": (
        "def train():\n    !nvidia-smi",
        "magic or shell line: !nvidia-smi; subprocess",
    ),
    "a magic in the body, translated": (
        "def train():\n    get_ipython().system('ls')",
        "magic or shell line: get_ipython()",
    ),
    "a relative import": ("from .m import x\ndef train(): x", "uses x; relative import; full name"),
    "an async function": ("async def train(): ...", "launch was given train; `async def`"),
    "a generator": ("def train():\n    yield 1", "launch was given train; generator"),
    "a class": ("class train: ...", "launch was given train; a class"),
    "a value": ("train = 3", "launch was given train; bound to a value"),
    "an inner function": (
        "def make():\n    def train(): ...\n    return train",
        "launch was given train; inside make",
    ),
    "a patched class": (
        "class Net: ...\n# %%\nNet.forward = print\n# %%\ndef train(): Net()",
        "uses Net; cell [2], line 1: Net.forward = print; into the definition of Net",
    ),
    "a patched class, by setattr": (
        "class Net: ...\n# %%\nsetattr(Net, 'x', 1)\n# %%\ndef train(): Net()",
        "uses Net; cell [2], line 1: setattr",
    ),
    "a record whose method may change it": (
        """
from types import SimpleNamespace
args = SimpleNamespace(lr=1)
# %%
args.tune()
def train(): args
""",
        "uses args; cell [2], line 1: args.tune()",
    ),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_capture_refuses(text: str, words: str):
    message = refusal(text)

    assert [word for word in words.split("; ") if word not in message] == []


@pytest.mark.parametrize(
    "change",
    [
        "X[0] = 9",
        "X[0] += 9",
        "del X[0]",
        "X.append(9)",
        "last = X.pop()",
        "for i in range(2):\n    X[i] = 9",
        "if True:\n    X.clear()",
        "import random\nrandom.shuffle(X)",
        "Y = X\nY.append(9)",
        "Y = {'x': X}\nY['x'].append(9)",
        "for row in X: row['a'] = 9",
        "first, X[0] = 1, 2",
        "with open('/dev/null'): X.sort()",
        "def setup(): X.append(9)\nsetup()",
    ],
)
def test_capture_refuses_a_constant_that_was_changed_by(change: str):
    message = refusal(f"X = [3, 2, 1]\n# %%\n{change}\n# %%\ndef train(): print(X)")

    assert "train (cell [3], line 1) uses X" in message
    assert "cell [2], line" in message
    assert "one literal" in message


def test_script_names_the_settings_it_leaves_out():
    text = """
import torch
import matplotlib.pyplot as plt
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
plt.rcParams["font.size"] = 8
torch.cuda.is_available()
# %%
def train(): torch.ones(1)
"""

    head = script(text).split("\n\n")[0]

    assert "torch.manual_seed(0)  (cell [1], line 3)" in head
    assert "torch.backends.cudnn.benchmark = True" in head
    assert "rcParams" not in head and "is_available" not in head


def test_script_begins_with_the_mark_and_future_imports_before_others():
    text = "import os\n# %%\nfrom __future__ import annotations\ndef train(): os"

    lines = [line for line in script(text).splitlines() if line]

    assert lines[0].startswith(HEADER_PREFIX)
    assert lines[1:3] == ["from __future__ import annotations", "import os"]


def test_script_leaves_out_what_runs_after_the_launch():
    text = cells("N = 1\ndef train(): print(N)\nlaunch(train)\nN = 2")

    assert "N = 1" in script_from_cells(text, "train", {}, before_line=3)
    assert "N = 2" in script_from_cells(text, "train", {})


def test_script_has_no_call_without_guard():
    text = script_from_cells(
        cells("def train(rank): ..."), "train", {}, filled=["rank"], guard=False
    )

    assert "__main__" not in text
    assert text.endswith("def train(rank): ...\n")


def test_script_names_the_command_for_its_own_file():
    text = script_from_cells(cells("def train(): ..."), "train", {}, file_name="train_ddp.py")

    assert text.splitlines()[0].endswith("torchrun --nproc-per-node 2 train_ddp.py")


DATA = {
    "none": None,
    "truth": True,
    "numbers": [1, -2.5, 1e300, math.inf, -math.inf, 10**5000],
    "complex": complex(-0.0, math.inf),
    "text": 'it\'s "é"\n\\ \ud800',
    "bytes": b"\x00\xff'",
    "nested": {"a": [(1,), (), {2, 1}, frozenset({3}), set(), frozenset()], ("k", 1): {}},
    "rest": ...,
    "long": list(range(300)),
    "rows": [{"name": "x" * 60, "sizes": [1, 2]}, {"name": "y" * 60, "sizes": []}],
    "path": Path("/tmp/a b'c"),
}


def test_call_gives_every_plain_value_back():
    text = script("def train(**values): ...", **DATA)

    given: dict[str, object] = {}
    call = text.replace("def train(**values): ...", "def train(**values): given.update(values)")
    exec(compile(call, "train.py", "exec"), {"__name__": "__main__", "given": given})

    assert given == DATA
    assert repr(given["complex"]) == repr(DATA["complex"])
    assert max(map(len, text.replace(hex(10**5000), "").splitlines())) <= 100


def test_call_gives_nan_and_minus_zero_back():
    text = script("def train(*, a, b): ...", a=math.nan, b=-0.0)

    assert 'train(a=float("nan"), b=-0.0)' in text


def test_call_puts_one_argument_on_a_line_when_it_is_long():
    text = script("def train(name, other): ...", name="x" * 60, other="y" * 60)

    assert text.endswith(
        f'    train(\n        name="{"x" * 60}",\n        other="{"y" * 60}",\n    )\n'
    )


def test_call_finds_its_way_to_path_when_the_script_has_another_one(tmp_path: Path):
    text = "class Path: ...\n# %%\ndef train(file): print(Path.__name__, file.name)"

    assert printed(text, tmp_path, file=Path("a/b.txt")) == "Path b.txt"


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Colour.RED, "Colour; its value, 1"),
        (numpy.float64(1), "numpy.float64; value.item()"),
        (numpy.ones(3), "numpy.ndarray; value.tolist()"),
        (print, "Name it inside the function"),
        (object(), "object; plain data"),
        (namedtuple("P", "x")(1), "P; tuple(value)"),
        ({"opt": [1, object()]}, "lr['opt'][1]"),
    ],
)
def test_call_refuses_a_value_that_is_no_plain_data(value: object, words: str):
    message = refusal("def train(lr): ...", lr=value)

    assert "lr" in message
    assert [word for word in words.split("; ") if word not in message] == []


def test_call_refuses_a_list_that_holds_itself():
    loop: list[object] = []
    loop.append(loop)

    assert "holds itself" in refusal("def train(lr): ...", lr=loop)


@pytest.mark.parametrize(
    ("parameters", "positional", "arguments", "words"),
    [
        ("lr, epochs", [], {"lr": 1}, "needs a value for epochs"),
        ("*, lr", [], {}, "needs a value for lr"),
        ("lr, epochs=1", [], {"lr": 1, "epoch": 2}, "no parameter epoch; Did you mean epochs?"),
        ("lr", [1, 2], {}, "at most 1; 2 were given"),
        ("lr", [1], {"lr": 2}, "lr twice"),
        ("lr, /", [], {"lr": 2}, "takes lr only without its name"),
        ("rank, lr", [], {"lr": 1}, "needs a value for rank"),
        ("**all", [], {"a-b": 1}, "'a-b' cannot be the name"),
    ],
)
def test_call_refuses_arguments_that_do_not_fit(
    parameters: str, positional: list[object], arguments: dict[str, object], words: str
):
    notebook = cells(f"def train({parameters}): ...")

    with pytest.raises(CaptureError) as caught:
        script_from_cells(notebook, "train", arguments, positional=positional)

    assert [word for word in words.split("; ") if word not in str(caught.value)] == []


def test_call_leaves_to_the_launcher_what_it_fills():
    notebook = cells("def train(rank, world_size, lr): ...")
    filled = ["rank", "local_rank", "world_size"]

    text = script_from_cells(notebook, "train", {"lr": 1}, filled=filled, guard=False)

    assert "def train(rank, world_size, lr)" in text


def test_call_leaves_the_parameters_of_a_decorated_function_to_python():
    text = (
        "def give(f): return lambda **k: f(1, **k)\n@give\ndef train(worker, lr): print(worker, lr)"
    )

    assert "train(lr=2)" in script(text, lr=2)


def live(text: str) -> dict[str, object]:
    """Return a namespace like a kernel's, in which these cells ran."""
    inputs = cells(text)
    namespace: dict[str, object] = {"In": inputs}
    for number, cell in enumerate(inputs):
        exec(compile(cell, f"<cell {number}>", "exec"), namespace)
    return namespace


def test_cells_of_gives_the_kernels_inputs_also_behind_a_decorator():
    names = live("import functools\n# %%\n@functools.lru_cache\ndef train(): ...")

    assert cells_of(names["train"]) == names["In"]
    assert name_of(names["train"]) == "train"


def test_cells_of_gives_the_text_of_a_functions_file():
    (text,) = cells_of(cells)

    assert text == Path(__file__).read_text(encoding="utf-8")
    assert "print(N)" not in script_from_cells([text], name_of(cells), {"text": ""})


def test_cells_of_refuses_a_function_without_source():
    names: dict[str, object] = {}
    exec("def train(): ...", names)

    with pytest.raises(CaptureError, match="neither a notebook nor a file"):
        cells_of(names["train"])


def test_name_of_finds_the_name_that_the_notebook_uses():
    names = live(
        """
def plain_wrapper(f):
    def wrapper(): return f()
    return wrapper
@plain_wrapper
def train(): ...
short = lambda: 1
"""
    )

    assert name_of(names["train"]) == "train"
    assert name_of(names["short"]) == "short"


def test_name_of_refuses_what_has_no_name_at_the_top_level():
    names = live("def make():\n    def inner(): ...\n    return inner, lambda: 1\npair = make()")
    inner, nameless = names["pair"]  # type: ignore[misc]

    with pytest.raises(CaptureError, match="defined inside make"):
        name_of(inner)
    with pytest.raises(CaptureError, match="lambda that has no name"):
        name_of(nameless)


def test_name_of_refuses_a_function_that_was_defined_anew():
    names = live("def train(): ...")
    old = names["train"]
    exec("def train(): ...", names)

    with pytest.raises(CaptureError, match="another object by now"):
        name_of(old)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (functools.partial(print, 1), "functools.partial"),
        (print, "built into Python"),
        (dict, "the class dict"),
        ([].append, "built into Python"),
        (Path().exists, "a method"),
        (object(), "an object of type object"),
        ("train.py", "an object of type str"),
    ],
)
def test_cells_of_refuses_what_is_no_function(function: object, words: str):
    with pytest.raises(CaptureError, match=words):
        cells_of(function)
