"""Give a learner the lessons as files of their own, and open them in JupyterLab.

A note beside the copies (`.lessons.json`) holds the digest of each lesson as it was copied: a copy
that still has it was not touched, and is brought up to date; any other is the learner's, and kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ddpnb.errors import DdpnbError
from ddpnb.json_files import read_json

__all__ = ["copy_lessons", "lessons_folder", "open_lab"]

_NOTE = ".lessons.json"


def lessons_folder(package: Path = Path(__file__).parent) -> Path:
    """Return where the lessons lie: inside an installed package, or beside it in a checkout."""
    for folder in (package / "lessons", package.parent / "notebooks"):
        if any(folder.glob("*.ipynb")):
            return folder
    raise DdpnbError(
        f"there are no lessons in {package / 'lessons'}; this installation of ddpnb is not whole,"
        " so install it again"
    )


def copy_lessons(folder: Path, lessons: Path | None = None) -> str:
    """Copy the lessons into the folder, changing no file that the learner has changed.

    Args:
        lessons: where to copy from; by default this installation's.

    Returns:
        What happened, for people.
    """
    source = lessons or lessons_folder()
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept = _copy(source, folder)
    except OSError as error:
        raise DdpnbError(
            f"cannot write the lessons to {folder}: {error.strerror}; name a folder that you can"
            " write: ddpnb lab DIR"
        ) from error
    said = f"The lessons are in {folder}"
    if kept:
        said += (
            f"\nKept as you have left them: {', '.join(kept)} (rename one, and the next `ddpnb lab`"
            " brings a fresh copy)"
        )
    return said


def open_lab(folder: Path, args: Sequence[str] = ()) -> None:
    """Become JupyterLab, with this interpreter, on the folder. Does not return."""
    # By chdir rather than by an option, so that an option of the user's wins.
    os.chdir(folder.expanduser())
    # This environment's kernel, whatever kernels the user has installed under the same name.
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *args])


def _copy(source: Path, folder: Path) -> list[str]:
    """Copy what is new, and what only we have written; return the names that were kept."""
    note = folder / _NOTE
    try:
        copied = read_json(note) or {}
    except DdpnbError:
        copied = {}  # somebody's editor was at it: then every lesson that differs counts as changed
    kept = []
    for lesson in sorted(source.glob("*.ipynb")):
        text, target = lesson.read_bytes(), folder / lesson.name
        there = target.read_bytes() if target.exists() else None
        if there is not None and there != text and _digest(there) != copied.get(lesson.name):
            kept.append(lesson.name)
            continue
        if there != text:
            target.write_bytes(text)
        copied[lesson.name] = _digest(text)
    note.write_text(json.dumps(copied, indent=1))
    return kept


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
