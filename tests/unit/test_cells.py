"""A cell that becomes a script: what is refused, and what the file looks like."""

import stat
import traceback

import pytest

from ddpnb.errors import CellError
from ddpnb.notebook.cells import check_cell, script_text, write_cell

HEADER = "%%ddp -n 2 train.py"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("x = 1\nx = = 2\n", 3, "no Python"),
        ("if x:\npass\n", 3, "on line 2"),
        ("def f(:\n", 2, "no Python"),
        ("%time train()\n", 2, "notebook magic"),
        ("x = 1\n%%bash\nls\n", 3, "notebook magic"),
        ("if True:\n    %time train()\n", 3, "notebook magic"),
        ("here = %pwd\n", 2, "notebook magic"),
        ("!ls\n", 2, "shell command"),
        ("files = !ls\n", 2, "shell command"),
        ("x = 1\n\n?x\n", 4, "help"),
        ("x = 1\nx?\n", 3, "help"),
        ("x??", 2, "help"),
        ("await job\n", 2, "`await`"),
        ("async with a as b:\n    pass\n", 2, "`async with`"),
        ("async for a in b:\n    pass\n", 2, "`async for`"),
        ("x = 1\nyield x\n", 3, "`yield`"),
        ("if True:\n    return\n", 3, "`return`"),
        ("class A:\n    await x\n", 3, "`await`"),
    ],
)
def test_check_refuses_with_the_cells_own_line(text, line, problem, file):
    with pytest.raises(CellError) as caught:
        check_cell(text, file=file)

    assert str(caught.value).startswith(f"line {line} of the cell")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a, b = 7, 2\nc = a \\\n  % b\n",
        "c = (7\n%time)\n",
        "text = '''\n%time\n!ls\nx?\n'''\n",
        '"""What is this?"""\nx = "100 %" + "!"\n',
        "# !ls\n# what?\n",
        "async def main():\n    async with a: await b\n",
        "def f():\n    yield 1\n    return 2\n",
        "from __future__ import annotations\n",
        "x = '\\d'\n",  # a warning is the ranks' to say
    ],
)
def test_check_lets_a_script_pass(text, file):
    check_cell(text, file=file)


def test_check_points_at_the_place(file):
    with pytest.raises(CellError) as caught:
        check_cell("é = 1; await x\n", file=file)

    assert "    2 | é = 1; await x\n      |        ^\n" in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_check_refuses_an_empty_cell_with_advice(text, file):
    with pytest.raises(CellError, match=r"%ddp train\.py"):
        check_cell(text, file=file)


@pytest.mark.parametrize("text", ["x = '\0'", "x = '\ud800'"])
def test_check_refuses_what_no_file_can_hold(text, file):
    with pytest.raises(CellError, match="no Python"):
        check_cell(text, file=file)


@pytest.mark.parametrize("above", [1, 3])
@pytest.mark.parametrize("first", ["", "#!/usr/bin/env python3\n", '"""Doc."""\n'])
def test_lines_of_the_file_are_those_of_the_cell(first, above, file):
    text = f"{first}from __future__ import annotations\nx = 1\nraise ValueError\n"
    line = above + text.count("\n")

    file.write_bytes(script_text(text, header=HEADER, above=above))

    with pytest.raises(ValueError) as caught:
        exec(compile(file.read_text(), str(file), "exec"), {})
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == line


def test_shebang_stays_the_very_first_line():
    script = script_text("#!/usr/bin/env python3\nx = 1\n", header=HEADER)

    assert script == b"#!/usr/bin/env python3\n# %%ddp -n 2 train.py\nx = 1\n"


def test_docstring_still_is_one(file):
    namespace = {}

    exec(script_text('"""Doc."""', header=HEADER), namespace)

    assert namespace["__doc__"] == "Doc."


def test_script_is_written_in_the_encoding_it_declares():
    script = script_text("# coding: latin-1\nx = 'é'\n", header=HEADER)

    assert b"\xe9" in script
    compile(script, "train.py", "exec")


def test_option_of_the_magic_is_not_taken_for_an_encoding():
    script = script_text("x = 'é'\n", header="%%ddp train.py --encoding=utf-16")

    compile(script, "train.py", "exec")


def test_header_stays_one_line_whatever_it_holds():
    script = script_text("x = 1\n", header="%%ddp train.py a\rimport os\x0c")

    assert script.decode().splitlines() == ["# %%ddp train.py a import os", "x = 1"]


def test_write_overwrites_what_came_from_a_cell(file):
    write_cell(script_text("x = 1", header=HEADER), file)

    kept = write_cell(script_text("x = 2", header=HEADER), file)

    assert kept is None
    assert "x = 2" in file.read_text()
    assert list(file.parent.iterdir()) == [file]


def test_write_keeps_a_file_that_came_from_elsewhere(file):
    file.write_text("precious = 1\n")
    file.with_name("train.py.bak").write_text("older\n")

    kept = write_cell(script_text("x = 1", header=HEADER), file)

    assert kept.name == "train.py.bak2"
    assert kept.read_text() == "precious = 1\n"
    assert "x = 1" in file.read_text()


def test_write_keeps_permissions_and_the_link(file, tmp_path):
    real = tmp_path / "real.py"
    real.write_bytes(script_text("x = 1", header=HEADER))
    real.chmod(0o750)
    file.symlink_to(real)

    write_cell(script_text("x = 2", header=HEADER), file)

    assert file.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o750
    assert "x = 2" in real.read_text()


def test_write_makes_one_missing_folder(tmp_path):
    write_cell(b"x = 1\n", tmp_path / "scripts" / "train.py")

    assert (tmp_path / "scripts" / "train.py").read_text() == "x = 1\n"


def test_write_refuses_when_more_folders_are_missing(tmp_path):
    with pytest.raises(CellError, match="there is no folder"):
        write_cell(b"x = 1\n", tmp_path / "a" / "b" / "train.py")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "advice"), [("train", "train.py"), ("a.ipynb", "a.py"), ("train.sh", "train.py")]
)
def test_write_refuses_what_is_no_script(name, advice, tmp_path):
    with pytest.raises(CellError, match=advice):
        write_cell(b"x = 1\n", tmp_path / name)


def test_write_refuses_a_folder(tmp_path):
    (tmp_path / "train.py").mkdir()

    with pytest.raises(CellError, match="is a folder"):
        write_cell(b"x = 1\n", tmp_path / "train.py")
