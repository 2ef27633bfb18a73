"""A module that does not fit in one reading is two modules."""

from tests.conftest import ROOT

MOST_LINES = 300


def test_no_module_is_too_long_to_read():
    lengths = {
        file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in (ROOT / "ddpnb").rglob("*.py")
    }

    assert {file: lines for file, lines in lengths.items() if lines > MOST_LINES} == {}
