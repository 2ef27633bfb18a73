"""The live view as an anywidget: what it is told, and what its buttons and fields ask for.

One message a tick for all ranks, sent by the watching thread. What a browser asks arrives on the
kernel's main thread (or a subshell's) and is answered from a thread of its own where it takes time.
Messages go to every browser that shows the view; one that is an answer names whom it is for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget

from ddpnb.errors import DdpnbError
from ddpnb.job import Job
from ddpnb.json_files import read_json
from ddpnb.lines import plain_text
from ddpnb.log_search import Search, around
from ddpnb.notebook import status, summary
from ddpnb.notebook.feed import LAUNCHER, Feed
from ddpnb.notebook.points import Points
from ddpnb.notebook.watch import Snapshot
from ddpnb.records import Event, LogLine
from ddpnb.usage import Usage

__all__ = ["LiveView"]

_USAGE_SECONDS = 2.0
_RANKS_A_SECOND = 32  # that may be looked at, when there are very many
_CHUNK_BYTES = 1 << 20
_MOST_DOWNLOAD_BYTES = 64 << 20
_HERE = Path(__file__).parent
_KINDS = ("stdout", "stderr")

logger = logging.getLogger(__name__)


class LiveView(anywidget.AnyWidget):
    """Shows one run; `draw` may be called from any thread.

    Args:
        rerun: launches the same again, and returns the new job.
    """

    # One module: a widget's script cannot import files that lie beside it.
    _esm = "\n".join((_HERE / f"live_{part}.js").read_text() for part in ("rows", "curves", "view"))
    _css = (_HERE / "live_view.css").read_text()

    def __init__(self, job: Job, snapshot: Snapshot, rerun: Callable[[], Any]) -> None:
        super().__init__()
        self.greeted = threading.Event()
        """Set when a browser has shown the view."""
        self._lock = threading.Lock()
        self._number = 0  # of the newest message to all; a browser that misses one asks again
        self._search_on_its_way: Search | None = None
        self._relaunch = threading.Lock()
        self._follow(job, snapshot, rerun)
        self.on_msg(self._on_message)

    def follow(self, job: Job, snapshot: Snapshot, rerun: Callable[[], Any]) -> None:
        """Show another run from here on."""
        with self._lock:
            self._follow(job, snapshot, rerun)
            self._number += 1
            state = self._state(time.time())
            more = {"all": True, "all_points": True, "points": []}
            self._tick(**more, **state)

    def _follow(self, job: Job, snapshot: Snapshot, rerun: Callable[[], Any]) -> None:
        self._job = job
        self._rerun = rerun
        self._feed, self._points, self._usage = Feed(), Points(), Usage()
        self._used: dict[str, Any] = {"ranks": {}, "gpus": []}
        self._used_at = 0.0
        self._snapshot = snapshot
        self._told: dict[str, Any] = {}

    def bundle(self) -> dict[str, Any]:
        """Return the view by mime type, for `display(..., raw=True)`."""
        plain = f"(the live view of {self._job.run_id}; it needs the running notebook)"
        bundle: Any = self._repr_mimebundle_()
        data: dict[str, Any] = bundle[0] if isinstance(bundle, tuple) else bundle
        return data | {"text/plain": plain}

    def draw(self, snapshot: Snapshot) -> None:
        """Tell every browser what is new."""
        now = time.time()
        self._look_at_use(snapshot)
        with self._lock:
            self._snapshot = snapshot
            lines = self._feed.add(
                [record for record in snapshot.records if isinstance(record, LogLine)], now
            )
            points = self._points.add(r for r in snapshot.records if isinstance(r, Event))
            state = self._state(now)
            changed = {key: value for key, value in state.items() if self._told.get(key) != value}
            if "ranks" in changed and self._told:
                pairs = zip(state["ranks"], self._told["ranks"], strict=True)
                changed["ranks"] = [rank for rank, before in pairs if rank != before]
            self._told = state
            if lines:
                changed["lines"] = lines
            if points:
                changed["points"] = points
            if changed:
                self._number += 1
                self._tick(**changed)

    def _tick(self, **told: Any) -> None:
        """Send what every browser, or the one that is named by `to`, shall know of this run."""
        name = summary.css_class(self._job.folder)  # a re-run is another run in the same view
        self.send({"type": "tick", "number": self._number, "of": name, **told})

    def _state(self, now: float) -> dict[str, Any]:
        snapshot = self._snapshot
        return {
            "run": status.run(snapshot, self._job.run_id, detached=self._is_detached()),
            "ranks": status.ranks(snapshot, self._used["ranks"], now=now),
            "gpus": self._used["gpus"],
            "failure": status.failure(snapshot, self._job.run.script),
            "open": {
                LAUNCHER if line.rank is None else str(line.rank): line.text[-2000:]
                for line in snapshot.unfinished
            },
        }

    def _look_at_use(self, snapshot: Snapshot) -> None:
        if snapshot.done:
            self._used = {"ranks": {}, "gpus": []}
            return
        many = len(snapshot.view.ranks) / _RANKS_A_SECOND
        if time.monotonic() < self._used_at + max(_USAGE_SECONDS, many):
            return
        self._used_at = time.monotonic()
        pids = {rank: one.pid for rank, one in snapshot.view.ranks.items() if one.pid is not None}
        used = self._usage.of(pids.values())
        by_pid = {pid: rank for rank, pid in pids.items()}
        self._used = {
            "ranks": {rank: used[pid] for rank, pid in pids.items() if pid in used},
            "gpus": [status.gpu(use, by_pid) for use in self._usage.gpus()],
        }

    def _is_detached(self) -> bool:
        return bool((read_json(self._job.run.processes) or {}).get("detached"))

    def _on_message(self, _: Any, content: Mapping[str, Any], __: Any) -> None:
        asked = {
            "hello": self._hello,
            "lack": self._hello,
            "search": self._search,
            "window": self._window,
            "download": self._download,
            "order": self._order,
        }.get(str(content.get("type")))
        try:
            if asked is not None:
                asked(content)
        except (LookupError, TypeError, ValueError, OverflowError):
            # Only what no browser of ours sends; a traceback would land below an innocent cell.
            logger.debug("the view of %s was asked nonsense", self._job.run_id, exc_info=True)

    def _hello(self, content: Mapping[str, Any]) -> None:
        """Send a browser all that it has not got."""
        self.greeted.set()
        have = {str(name): int(number) for name, number in dict(content.get("have") or {}).items()}
        with self._lock:
            message = self._state(time.time())
            message["lines"] = self._feed.since(have)
            if content.get("missed"):
                message["points"], message["all_points"] = self._points.all(), True
            if content["type"] == "hello":
                message["all"] = True
            self._tick(to=content.get("view"), **message)

    def _search(self, content: Mapping[str, Any]) -> None:
        writers = content.get("writers")
        ranks = None if writers is None else [_rank(writer) for writer in writers]

        text, regex, case = str(content["text"]), content.get("regex"), content.get("case")

        def answer() -> dict[str, Any] | None:
            found = self._replace_search(text, bool(regex), bool(case), ranks).result()
            if found is None:  # a newer one has taken its place
                return None
            hits = [
                [_writer(hit.rank), int(hit.stream == "stderr"), hit.offset, hit.text]
                for hit in found.hits
            ]
            return {"type": "found", "total": found.total, "hits": hits, "trouble": found.trouble}

        self._answer(content, answer)

    def _replace_search(
        self, text: str, regex: bool, case: bool, ranks: list[int | None] | None
    ) -> Search:
        """Begin a search, in place of the one that may be on its way."""
        with self._lock:
            if self._search_on_its_way is not None:
                self._search_on_its_way.cancel()
            search = Search(self._job.run, text, regex=regex, case=case, ranks=ranks)
            self._search_on_its_way = search
        return search

    def _window(self, content: Mapping[str, Any]) -> None:
        rank, offset = _rank(content["writer"]), int(content["offset"])
        stream: Any = "launcher" if rank is None else _KINDS[int(content["kind"])]

        def answer() -> dict[str, Any]:
            lines = around(self._job.run, rank, stream, offset)
            rows = [[int(stream == "stderr"), line.text, None, line.offset] for line in lines]
            return {"type": "window", "writer": content["writer"], "offset": offset, "rows": rows}

        self._answer(content, answer)

    def _download(self, content: Mapping[str, Any]) -> None:
        rank = _rank(content["writer"])
        run = self._job.run
        paths = (
            [run.launcher_log] if rank is None else [run.rank(rank).stdout, run.rank(rank).stderr]
        )

        def answer() -> dict[str, Any] | None:
            name = f"{run.run_id}-{'launcher' if rank is None else f'rank-{rank}'}"
            for path in (path for path in paths if path.exists() and path.stat().st_size):
                size = path.stat().st_size
                if size > _MOST_DOWNLOAD_BYTES:
                    return {"type": "said", "text": f"too long to send; the file is {path}"}
                parts = -(-size // _CHUNK_BYTES)
                with path.open("rb") as file:
                    for part in range(parts):
                        self.send(
                            {
                                "type": "file",
                                "to": content.get("view"),
                                "name": f"{name}-{path.name}",
                                "part": part,
                                "parts": parts,
                            },
                            [file.read(_CHUNK_BYTES)],
                        )
            return None

        self._answer(content, answer)

    def _order(self, content: Mapping[str, Any]) -> None:
        what = content.get("what")

        def answer() -> dict[str, Any] | None:
            if what == "stop":
                self._job.stop(wait=False)
            elif what == "kill":
                self._job.kill()
            elif what == "detach":
                self._job.detach()
            elif what == "rerun":
                with self._relaunch:  # of two clicks the second finds the run on its way
                    if not self._snapshot.done:
                        return {"type": "said", "text": "it runs already"}
                    new = self._rerun()
                return {"type": "said", "text": f"launched again: {new.run_id}"}
            return None

        self._answer(content, answer)

    def _answer(
        self, content: Mapping[str, Any], answer: Callable[[], dict[str, Any] | None]
    ) -> None:
        """Answer in a thread: the kernel has cells to run."""

        def work() -> None:
            try:
                message = answer()
            except (DdpnbError, OSError, LookupError) as error:
                message = {"type": "said", "text": plain_text(str(error))}
            except Exception:
                logger.exception("the view of %s could not answer", self._job.run_id)
                message = {"type": "said", "text": "this went wrong; the notebook's log says how"}
            if message is not None:
                self.send(message | {"to": content.get("view"), "id": content.get("id")})

        threading.Thread(target=work, name="ddpnb answer", daemon=True).start()


def _rank(writer: Any) -> int | None:
    return None if writer == LAUNCHER else int(writer)


def _writer(rank: int | None) -> str:
    return LAUNCHER if rank is None else str(rank)
