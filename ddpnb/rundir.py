"""RunDir: the folder that is a run. Only this module and rank_dir spell its file names.

Every file has one writer; json files appear whole, by rename. The folder outlives the browser, the
kernel and the launcher; a `Job` is only a view of it. Host side and ranks both use this module, so
it is stdlib only.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpnb.errors import RunDirError, SpecError
from ddpnb.json_files import read_json, write_json, write_private
from ddpnb.process import ProcessId
from ddpnb.rank_dir import RankDir, StreamFile
from ddpnb.records import JobState
from ddpnb.spec import LaunchSpec

__all__ = [
    "REASONS_OF_FAILURE",
    "RunDir",
    "runs_folder",
]

SCHEMA = 1

SIGN_SECONDS = 180.0
"""How old a sign of life on a shared file system may be: NFS shows changes up to a minute late."""

# `reason` in exit.json: with one of these prefixes the run FAILED, with any other it was STOPPED.
REASONS_OF_FAILURE = ("time limit", "supervisor died", "could not start")


def runs_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where runs of this process go: $DDPNB_RUNS, or .ddpnb/runs in the working folder."""
    chosen = environ.get("DDPNB_RUNS")
    return Path(chosen).expanduser().absolute() if chosen else Path.cwd() / ".ddpnb" / "runs"


class RunDir:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path / "run.json"
        self.script = path / "script.py"
        self.command = path / "command.json"
        self.processes = path / "processes.json"
        self.launcher_log = path / "launcher.log"
        self.exit = path / "exit.json"
        self.timeline = path / "timeline.jsonl"
        self.agent = path / "agent.json"
        self.hole_file = path / "holes.json"
        self.elastic = path / "elastic"
        self.artifacts = path / "artifacts"
        self._ranks: dict[int, RankDir] = {}

    @property
    def run_id(self) -> str:
        """The folder's name: YYYYMMDD-HHMMSS-name-xxxx."""
        return self.path.name

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Return the run at `path`; raise RunDirError if it is no run, or of a newer version."""
        run = cls(path.absolute())
        data = read_json(run.run)
        if data is None:
            raise RunDirError(f"{path} is no run folder: it has no {run.run.name}")
        missing = [key for key in ("schema", "spec", "created") if key not in data]
        if missing:
            raise RunDirError(f"{run.run} has no {' and no '.join(missing)}; it is no run of ddpnb")
        for key, kinds in (("schema", int), ("created", (int, float))):
            if not isinstance(data[key], kinds):
                raise RunDirError(f"{run.run} is no run of ddpnb: {key} is {data[key]!r}")
        if data["schema"] > SCHEMA:
            raise RunDirError(
                f"{path} was written by a newer ddpnb (schema {data['schema']}, known: {SCHEMA});"
                " update ddpnb to read it"
            )
        return run

    @classmethod
    def propose(cls, folder: Path, name: str) -> RunDir:
        """Return a run folder that does not exist yet; nothing is written."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        short = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:32] or "run"
        while True:
            path = folder / f"{stamp}-{short}-{secrets.token_hex(2)}"
            if not os.path.lexists(path):
                return cls(path)

    def calls(self, pid: int) -> Path:
        """Return the file in which `worker.observer` notes what a process of the script calls."""
        return self.artifacts / f"calls-{pid}.jsonl"

    def all_calls(self) -> list[Path]:
        """Return the files of all processes that noted their calls."""
        return sorted(self.artifacts.glob(self.calls(0).name.replace("0", "*")))

    def create(
        self,
        spec: LaunchSpec,
        *,
        launcher: Mapping[str, Any],
        command: Mapping[str, Any],
        script: bytes | None,
        owner: ProcessId | None,
        after: Sequence[str] = (),
        gpus: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write what is known before anything starts.

        Args:
            owner: the process whose end stops the run; None for a detached run.
            after: ids of runs beside this one that must end first, because they hold the same GPUs.
            gpus: what is known of each GPU in `spec.gpus`, for people: index, name, uuid.
        """
        folder = self.path.parent
        me = ProcessId.of(os.getpid())
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder.parent.name == ".ddpnb":
                _ignore_in_git(folder.parent)
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise self._cannot_be_written(error) from error
        try:
            write_private(self.path / ".gitignore", b"*\n")
            (self.path / "ranks").mkdir(mode=0o700)
            self.artifacts.mkdir(mode=0o700)
            if script is not None:
                write_private(self.script, script)
            write_json(self.command, command)
            write_json(
                self.run,
                {
                    "schema": SCHEMA,
                    "run_id": self.run_id,
                    "created": time.time(),
                    "spec": spec.to_json(),
                    "launcher": dict(launcher),
                    "owner": None if owner is None else owner.to_json(),
                    "launched_by": None if me is None else me.to_json(),
                    "after": list(after),
                    "gpus": [dict(gpu) for gpu in gpus],
                },
            )
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise self._cannot_be_written(error) from error

    def _cannot_be_written(self, error: OSError) -> RunDirError:
        return RunDirError(
            f"cannot write the run folder {self.path}: {error.strerror};"
            " set DDPNB_RUNS to a folder that you can write"
        )

    def rank(self, rank: int) -> RankDir:
        """Return the files of one rank."""
        found = self._ranks.get(rank)  # with hundreds of ranks, putting paths together costs a core
        if found is None:
            found = self._ranks[rank] = RankDir(self.path / "ranks" / str(rank), rank)
        return found

    def ranks(self) -> list[int]:
        """Return the ranks that have begun to write."""
        try:
            names = [path.name for path in (self.path / "ranks").iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def streams(self) -> Iterator[StreamFile]:
        """Yield the streams that may exist now."""
        yield StreamFile("launcher", None, "launcher", self.launcher_log)
        for rank in self.ranks():
            yield from self.rank(rank).streams

    def holes(self) -> dict[str, tuple[int, int]]:
        """Return what was given back to the disk of each stream: where it begins and ends."""
        found = read_json(self.hole_file) or {}
        return {name: (int(begin), int(end)) for name, (begin, end) in found.items()}

    def read_run(self) -> dict[str, Any]:
        """Return run.json."""
        data = read_json(self.run)
        if data is None:
            raise RunDirError(f"{self.path} is no run folder (any more): it has no {self.run.name}")
        return data

    def read_spec(self) -> LaunchSpec:
        """Return what was asked for."""
        try:
            return LaunchSpec.from_json(self.read_run()["spec"])
        except (TypeError, KeyError, AttributeError, ValueError, SpecError) as error:
            raise RunDirError(f"{self.run} does not say what was launched: {error}") from error

    def state(self) -> tuple[JobState, str | None]:
        """Derive where the run stands, and why it was ended from outside (None: it was not)."""
        ended = read_json(self.exit)
        if ended is None:
            processes = read_json(self.processes)
            if processes is None:
                return self._state_before_the_supervisor()
            try:
                ours = [ProcessId.from_json(processes[name]) for name in ("keeper", "supervisor")]
            except (KeyError, TypeError, ValueError) as error:
                raise RunDirError(f"{self.processes} does not say whose it is") from error
            if any(self._is_alive(process, self.processes) for process in ours):
                return (JobState.RUNNING if processes.get("started") else JobState.PENDING), None
            ended = read_json(
                self.exit
            )  # it may have been written while we looked at the processes
            if ended is None:
                return JobState.LOST, "supervisor gone without a word"
        reason = ended.get("reason")
        if reason:
            failed = str(reason).startswith(REASONS_OF_FAILURE)
            return (JobState.FAILED if failed else JobState.STOPPED), reason
        return (JobState.SUCCEEDED if ended.get("returncode") == 0 else JobState.FAILED), None

    def is_over(self) -> bool:
        """Return whether nothing of the run can be alive: it has ended, or its folder is gone."""
        try:
            return self.state()[0].done
        except RunDirError:
            return not self.run.exists()

    def _is_alive(self, process: ProcessId, sign: Path) -> bool:
        """Tell whether a process lives; of one on another machine its file has to tell.

        Args:
            sign: a file whose time of change the process keeps fresh.
        """
        if process.is_alive():
            return True
        try:
            return process.is_elsewhere() and time.time() < sign.stat().st_mtime + SIGN_SECONDS
        except FileNotFoundError:
            return False

    def show_life(self) -> None:
        """Keep the time of processes.json fresh, for readers on other machines."""
        with contextlib.suppress(OSError):  # the folder may have been deleted
            os.utime(self.processes)

    def _state_before_the_supervisor(self) -> tuple[JobState, str | None]:
        """Tell a launch that is under way from one that was broken off."""
        launching = self.read_run().get("launched_by")
        if launching is None or self._is_alive(ProcessId.from_json(launching), self.run):
            return JobState.PENDING, None
        return JobState.LOST, "the launch was broken off"


def _ignore_in_git(folder: Path) -> None:
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
