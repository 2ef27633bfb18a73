"""All runs of a runs folder: list them, find one, remove old ones."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from ddpnb.errors import RunDirError
from ddpnb.job import Job
from ddpnb.lines import plain_text
from ddpnb.rundir import RunDir
from ddpnb.words import duration, size

__all__ = ["RunList", "find", "old_runs", "readable_runs", "remove"]

logger = logging.getLogger(__name__)

COLUMNS = ("run", "state", "script", "ranks", "age", "size")
_NUMBERS = ("ranks", "age", "size")
_STYLE = "text-align: {}; padding: 1px 12px 1px 0"


class RunList(list[Job]):
    """Jobs, oldest first, that show themselves as a table."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield a row of texts for each job, by `COLUMNS`."""
        now = time.time()
        for job in self:
            try:
                state, reason = job.run.state()
                created = float(job.run.read_run()["created"])
            except RunDirError as error:  # removed, or spoilt, since it was found
                yield (plain_text(job.run_id), plain_text(f"? ({error})"), "", "", "", "")
                continue
            why = f" ({reason})" if reason and reason != state.value else ""
            yield (
                plain_text(job.run_id),
                plain_text(f"{state.value}{why}"),
                plain_text(job.spec.target),
                str(job.spec.world_size),
                duration(now - created),
                size(size_on_disk(job.folder)),
            )

    def __repr__(self) -> str:
        if not self:
            return "no runs"
        rows = [COLUMNS, *self.rows()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
        lines = []
        for row in rows:
            cells = [
                text.rjust(width) if name in _NUMBERS else text.ljust(width)
                for name, text, width in zip(COLUMNS, row, widths, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self:
            return "no runs"
        head = "".join(f"<th style='{_align(name)}'>{name}</th>" for name in COLUMNS)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td style='{_align(name)}'>{escape(text)}</td>"
                for name, text in zip(COLUMNS, row, strict=True)
            )
            + "</tr>"
            for row in self.rows()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def readable_runs(folder: Path) -> list[RunDir]:
    """Return the runs in a runs folder, oldest first, without those of another version."""
    found: list[tuple[float, RunDir]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            run = RunDir.open(path)
            run.read_spec()
            found.append((float(run.read_run()["created"]), run))
        except RunDirError as error:
            if os.path.lexists(RunDir(path).run) or not os.access(path, os.R_OK | os.X_OK):
                logger.warning("passing over %s: %s", plain_text(path.name), error)
    return [run for _, run in sorted(found, key=lambda item: (item[0], item[1].run_id))]


def find(name: str | Path | None, folder: Path) -> RunDir:
    """Return one run.

    Args:
        name: its id, a part of an id that only one run has, or only one that is not over, or its
            folder; None: the newest run.
        folder: the runs folder.
    """
    if name is None:
        newest = readable_runs(folder)[-1:]
        if not newest:
            raise RunDirError(f"there are no runs in {folder}")
        return newest[0]
    for path in (folder / name, Path(name)):  # a folder of the same name may be no run
        if os.path.lexists(RunDir(path).run):
            return RunDir.open(path)
    alike = [run for run in readable_runs(folder) if str(name) in run.run_id]
    live = [run for run in alike if not run.is_over()]
    if len(alike) == 1 or len(live) == 1:
        return (live or alike)[0]
    if not alike:
        raise RunDirError(f"there is no run {str(name)!r} in {folder}; `ddpnb ps` lists them")
    names = ", ".join(run.run_id for run in alike[-5:])
    raise RunDirError(f"{len(alike)} runs have {str(name)!r} in their id; say more: {names}")


def old_runs(
    runs: Sequence[RunDir], *, keep: int | None = None, older_than: float | None = None
) -> list[RunDir]:
    """Return the runs that have ended and may go; never one that may be alive.

    Args:
        runs: oldest first.
        keep: so many ended runs stay, the newest.
        older_than: seconds; only runs that were launched longer ago may go.
    """
    ended = [run for run in runs if run.is_over()]
    if keep is not None:
        ended = ended[: max(0, len(ended) - keep)]
    if older_than is not None:
        limit = time.time() - older_than
        ended = [run for run in ended if float(run.read_run()["created"]) < limit]
    return ended


def remove(runs: Iterable[RunDir]) -> tuple[int, int]:
    """Remove the folders of runs; return how many went, and the bytes that they took on the disk.

    One that cannot be removed is told by a warning, and the others go.
    """
    count = freed = 0
    for run in runs:
        taken = size_on_disk(run.path)
        try:
            shutil.rmtree(run.path)
        except OSError as error:
            logger.warning("cannot remove %s: %s", plain_text(run.run_id), error)
            continue
        count, freed = count + 1, freed + taken
    return count, freed


def size_on_disk(folder: Path) -> int:
    """Return the bytes that a folder takes; links are not followed."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(path, name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue  # a live run renames its files
    return total


def _align(name: str) -> str:
    return _STYLE.format("right" if name in _NUMBERS else "left")
