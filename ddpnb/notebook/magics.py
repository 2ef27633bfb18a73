"""The magics: %%ddp writes its cell to a script and launches it, %ddp launches a file.

%%ddp_script only writes. Registered by `ddpnb.notebook.load`; `ddpnb.options` has the grammar.
"""

from __future__ import annotations

import keyword
import numbers
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import (
    Magics,
    cell_magic,
    line_cell_magic,
    magics_class,
    no_var_expand,
)

from ddpnb import options
from ddpnb.api import launch
from ddpnb.errors import SpecError
from ddpnb.job import Job
from ddpnb.launchers.python import Python
from ddpnb.launchers.torchrun import Torchrun
from ddpnb.notebook.cells import check_cell, check_target, script_text, write_cell
from ddpnb.plan import plan

__all__ = ["DdpMagics", "expand"]

_Method = TypeVar("_Method", bound=Callable[..., Any])
_NAME = re.compile(r"(?<!\{)\{([^\W\d]\w*)\}(?!\})")

_HELP = """Run a script on several ranks, from a notebook.

    %%ddp [OPTIONS] FILE [ARGS]       write this cell to FILE, then run it
    %ddp  [OPTIONS] FILE [ARGS]       run a file that is there
    %ddp  [OPTIONS] -m MODULE [ARGS]  run a module, as `python -m` does

For example, this cell is written to hello.py and run by two processes at the same time:

    %%ddp -n 2 hello.py
    import os
    print("I am rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])

The cell returns at once, and a view below it shows what each rank prints. `job` stands for the run:

    await job        wait for it in another cell; an error here names the rank that failed first
    job.stop()       end it
    job.logs(0)      all that rank 0 printed
    job.folder       where all of it is kept

The file is a plain script: `torchrun --nproc-per-node 2 hello.py` in a terminal does the same. It
knows nothing of the notebook's variables; hand them over as arguments. `{lr}` on the magic's line
stands for the notebook's variable lr, when that is a text, a number or a path, and it stays one
word whatever it holds. Other braces and $ mean nothing here.

    lr = 0.1
    %ddp -n 2 train.py --lr {lr} --out "my results"

FILE ends in .py. It is overwritten when a cell wrote it before; any other file of that name is
first kept as FILE.bak. A folder in front of it is made when only that one is missing. Line numbers
in errors are those of the cell, whose first line is the magic's.

OPTIONS stand before FILE and are torchrun's words, with dashes or underscores. What follows FILE is
the script's own.

"""
_SCRIPT_HELP = """Write this cell to a script; run nothing.

    %%ddp_script FILE

The cell is checked as %%ddp checks it, and `%ddp -n 2 FILE` runs it. FILE ends in .py. It is
overwritten when a cell wrote it before; any other file of that name is first kept as FILE.bak.
`{name}` on the magic's line stands for the notebook's variable of that name.
"""


def expand(words: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """Replace each `{name}` in the words by the notebook's variable so named; other braces stay.

    The words are split before, so a value with spaces in it stays one word, or part of one.
    """
    return [_NAME.sub(lambda found: _text_of(found[1], names), word) for word in words]


def _text_of(name: str, names: Mapping[str, Any]) -> str:
    if name not in names:
        raise SpecError(
            f"{{{name}}} stands for the notebook's variable {name}, and there is none; run the"
            " cell that sets it"
        )
    value = names[name]
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return str(value)
    raise SpecError(
        f"{{{name}}} is a {type(value).__name__}; only texts, numbers and paths can stand on a"
        f" command line, so write {name} as a text first, e.g. {name}_text = str({name})"
    )


def _help(text: str, *, with_options: bool) -> Callable[[_Method], _Method]:
    def document(method: _Method) -> _Method:
        method.__doc__ = text + (_options_help() if with_options else "")
        return method

    return document


def _options_help() -> str:
    grammar = options.command("%%ddp", in_notebook=True)
    formatter = click.HelpFormatter(width=105)
    grammar.format_options(click.Context(grammar), formatter)
    return formatter.getvalue()


@magics_class
class DdpMagics(Magics):
    """The magics of ddpnb in one shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell: InteractiveShell = shell

    @no_var_expand
    @line_cell_magic
    @_help(_HELP, with_options=True)
    def ddp(self, line: str, cell: str | None = None) -> None:
        magic = "%ddp" if cell is None else "%%ddp"
        words = self._words(line)
        if not words and not (cell or "").strip():
            print(DdpMagics.ddp.__doc__)
            return
        try:
            asked = options.read(words, name=magic, in_notebook=True)
        except click.exceptions.Exit:  # --help, which click has shown
            return
        _check_job_name(asked.job_name)
        if cell is not None:
            file = _file(asked)
            script = self._script(cell, file, f"{magic} {line.strip()}", _also(asked))
            # Everything that can be refused is, before the file is touched.
            plan(asked.target, asked.args, script, **asked.options)
            _write(script, file)
        self._tell_of_the_old(asked.job_name)
        job = launch(asked.target, *asked.args, **asked.options)
        self._shell.push({asked.job_name: job})

    @no_var_expand
    @cell_magic
    @_help(_SCRIPT_HELP, with_options=False)
    def ddp_script(self, line: str, cell: str) -> None:
        words = self._words(line)
        if len(words) != 1 or words[0].startswith("-"):
            raise SpecError(f"%%ddp_script takes one word, the file to write, not {line.strip()!r}")
        file = Path(words[0]).expanduser()
        _write(self._script(cell, file, f"%%ddp_script {line.strip()}", ""), file)
        print(f"Wrote {file}")

    def _words(self, line: str) -> list[str]:
        if line.rstrip().endswith("\\"):
            raise SpecError(
                "the magic's words must stand on one line; take away the backslash at its end"
            )
        return expand(options.parse(line), self._shell.user_ns)

    def _script(self, cell: str, file: Path, magic: str, also: str) -> bytes:
        above = self._lines_above(magic)
        check_target(file)
        check_cell(cell, file=file, above=above)
        return script_text(cell, header=f"{magic}  (written by ddpnb{also})", above=above)

    def _tell_of_the_old(self, name: str) -> None:
        """Say so when the variable loses a job that still runs."""
        old = self._shell.user_ns.get(name)
        if isinstance(old, Job) and not old.done:
            print(f"{old.run_id} still runs; ddpnb.attach({old.run_id!r}).stop() ends it")

    def _lines_above(self, magic: str) -> int:
        """Return the magic's line in its cell; blank lines or a `%%time` may precede it."""
        history = self._shell.history_manager
        raw = history.input_hist_raw[-1] if history is not None else ""
        for number, line in enumerate(raw.split("\n"), start=1):
            if line.split() == magic.split():
                return number
        return 1  # called from a program


def _write(script: bytes, file: Path) -> None:
    if (kept := write_cell(script, file)) is not None:
        print(f"{file.name} was not written by a cell; what it held is kept in {kept.name}")


def _check_job_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise SpecError(f"--as {name!r} is no name of a variable; write e.g. --as job2")


def _file(asked: options.LaunchWords) -> Path:
    """Return the script's path, which is meant from the working folder of the ranks."""
    if asked.target is None:
        raise SpecError(
            "%%ddp writes its cell to a file and cannot write a module; name a file, or run the"
            f" module with %ddp -m {asked.options['module']}"
        )
    folder = Path(asked.options.get("cwd", "")).expanduser()
    if not folder.is_dir():
        raise SpecError(f"--cwd is {folder}, which is no folder")
    return folder / Path(asked.target).expanduser()


def _also(asked: options.LaunchWords) -> str:
    """Return the words of the header that say how to run the file without ddpnb."""
    launcher = asked.options["launcher"]
    if isinstance(launcher, Torchrun):
        width = asked.options["nproc_per_node"]
        return f"; torchrun --nproc-per-node {width} {asked.target} runs it too"
    return f"; python {asked.target} runs it too" if isinstance(launcher, Python) else ""
