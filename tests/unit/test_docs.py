"""What the documents promise is there: linked files and headings, commands, make's targets."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
COMMANDS = {"make", "ddpnb", "pip", "torchrun", "python", "git", "cd", "conda"}

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def fences(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the body of each fenced block."""
    fence = r"^(?P<mark>`{3,}|~{3,})[ \t]*(\w*).*\n(?P<body>(?:.*\n)*?)(?P=mark)[ \t]*$"
    for found in re.finditer(fence, text, re.MULTILINE):
        yield found[2], found["body"]


def prose(text: str) -> str:
    """Return the text without its fenced blocks."""
    for _, body in fences(text):
        text = text.replace(body, "", 1)
    return text


def links(text: str) -> list[str]:
    """Return the targets of the links and pictures that lead to files or headings."""
    without_code = re.sub(r"`[^`\n]*`", "", prose(text))
    targets = re.findall(r"\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)", without_code)
    targets += re.findall(r"^\[[^\]]+\]:\s+(\S+)", without_code, re.MULTILINE)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings get: lower case, no punctuation, dashes."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def command_lines(text: str) -> list[list[str]]:
    """Return the words of each command in the fenced shell blocks."""
    bodies = [body for language, body in fences(text) if language in {"bash", "sh", "console"}]
    lines = "\n".join(bodies).replace("\\\n", " ").splitlines()
    commands = [part for line in lines for part in re.split(r"&&|\|\||[;|]", line)]
    words = [shlex.split(command.removeprefix("$ "), comments=True) for command in commands]
    return [line for line in words if line]


def make_targets_mentioned(text: str) -> set[str]:
    """Return the targets of the `make` commands in fences and between backticks."""
    spans = [shlex.split(span) for span in re.findall(r"`(make [^`\n]+)`", prose(text))]
    calls = [words[1:] for words in spans + command_lines(text) if words[0] == "make"]
    return {word for words in calls for word in words if re.fullmatch(r"[a-z-]+", word)}


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


@every_page
def test_links_lead_somewhere(page: Path):
    broken = []
    for target in links(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)

    assert broken == []


@every_page
def test_fenced_commands_are_known(page: Path):
    commands = command_lines(page.read_text(encoding="utf-8"))
    programs = [
        next((word for word in words if not re.match(r"\w+=", word)), "") for words in commands
    ]

    assert set(programs) <= COMMANDS


@every_page
def test_make_targets_mentioned_are_targets(page: Path):
    assert make_targets_mentioned(page.read_text(encoding="utf-8")) <= make_targets()


def test_every_make_target_is_explained_and_phony():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    explained = set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE))
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split())

    assert explained == phony == make_targets()


def test_a_page_is_read_as_it_is_meant():
    text = (
        "# A `b` c!\n\nSee [this](docs/a.md#x), `[not](this.md)` and [that](https://example.org).\n"
        "Run `make demo`, to make sure.\n\n"
        "```bash\n# a remark\nCUDA_VISIBLE_DEVICES='' torchrun \\\n  x.py\n"
        "cd a && make test ARGS=-q\n```\n"
    )

    assert links(text) == ["docs/a.md#x"]
    assert [words[0] for words in command_lines(text)] == ["CUDA_VISIBLE_DEVICES=", "cd", "make"]
    assert make_targets_mentioned(text) == {"demo", "test"}
