"""Look after ranks that are in trouble: ask where they are, end those that cannot end, say so.

What is said goes to launcher.log, which every view shows.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from ddpnb.launchers.tree import TERM_SECONDS
from ddpnb.launchers.watch import RankProcess, Watch
from ddpnb.lines import LineReader
from ddpnb.rundir import RunDir

__all__ = ["Trouble"]

QUIET_SECONDS = 120.0
"""A run whose ranks have said nothing for so long is worth a word."""
ALONE_SECONDS = 10.0
"""A rank that has left this long before the others may be the one that they wait for."""
RAISED_SECONDS = 15.0
"""What a rank gets to leave by itself after an error; a thread of its own can keep it for ever."""

_MOST_NAMED = 8


@dataclass
class Trouble:
    """Sees the same as `watch`; called at every tick while nobody has asked the run to stop.

    Args:
        say: writes a line to launcher.log.
    """

    run: RunDir
    watch: Watch
    say: Callable[[str], None]
    _raised: dict[tuple[int, int], float] = field(default_factory=dict)
    """Ranks that have recorded an error: since when, or infinity once they have been killed."""
    _asked: dict[int, int] = field(default_factory=dict)
    """Ranks that were asked for their stacks: how long stacks.log was at the last look."""
    _told_alone: set[tuple[int, int]] = field(default_factory=set)
    _quiet_from: float = QUIET_SECONDS

    def look(self, now: float) -> None:
        """Do what is due.

        Args:
            now: seconds of a monotonic clock, the one that `watch` uses.
        """
        alive = self.watch.alive()
        self._ask_where_the_others_are(alive, now)
        self._end_who_cannot_end(alive, now)
        self._tell_who_left_alone(alive, now)
        self._tell_who_is_quiet(alive, now)

    def _ask_where_the_others_are(self, alive: list[RankProcess], now: float) -> None:
        """At the first error: the launcher ends the others at once, and their stacks with them."""
        failed = self.watch.with_error()
        new = [r for r in failed if (r.rank, r.attempt) not in self._raised]
        for rank in new:
            self._raised[rank.rank, rank.attempt] = now
        if not new or len(failed) > len(new):
            return
        for rank in alive:
            if rank.stacks_signal is not None and rank not in failed:
                self._asked[rank.rank] = 0
                rank.process.send(rank.stacks_signal)

    def waits_for_stacks(self) -> bool:
        """Return whether a rank that was asked for its stacks may still be writing them."""
        alive = {rank.rank for rank in self.watch.alive()}
        waits = False
        for rank, known in self._asked.items():
            stacks = self.run.rank(rank).stacks
            size = stacks.stat().st_size if stacks.exists() else 0
            waits = waits or (rank in alive and (size == 0 or size != known))
            self._asked[rank] = size
        return waits

    def _end_who_cannot_end(self, alive: list[RankProcess], now: float) -> None:
        for rank in alive:
            since = self._raised.get((rank.rank, rank.attempt))
            if since is None or now < since + RAISED_SECONDS:
                continue
            if not rank.terminated:
                rank.terminated = True
                waited = f"{RAISED_SECONDS:g} s later"
                self.say(f"rank {rank.rank} has failed, but has not left {waited}: it is ended")
                rank.process.send(signal.SIGTERM)
            elif now > since + RAISED_SECONDS + TERM_SECONDS:
                self._raised[rank.rank, rank.attempt] = float("inf")
                rank.process.send(signal.SIGKILL)

    def _tell_who_left_alone(self, alive: list[RankProcess], now: float) -> None:
        for rank in self.watch.ranks.values() if alive else ():
            key = (rank.rank, rank.attempt)
            if rank.ended_at is None or key in self._told_alone:
                continue
            if now > rank.ended_at + ALONE_SECONDS:
                self._told_alone.add(key)
                others = _names([other.rank for other in alive])
                verb = "runs" if len(alive) == 1 else "run"
                ago = f"{ALONE_SECONDS:g} s ago"
                self.say(f"rank {rank.rank} left {ago}, while {others} still {verb}")

    def _tell_who_is_quiet(self, alive: list[RankProcess], now: float) -> None:
        silence = {r.rank: now - self.watch.last_sign[r.rank] for r in alive}
        quiet = sorted(rank for rank, seconds in silence.items() if seconds >= QUIET_SECONDS)
        longest = max(silence.values(), default=0.0)
        if not quiet:
            if self._quiet_from > QUIET_SECONDS:
                self.say("there is new output")
            self._quiet_from = QUIET_SECONDS
        elif longest >= self._quiet_from:
            self._quiet_from = 2 * longest
            said = f"no output from {_names(quiet)} for {longest:.0f} s"
            self.say(f"{said}; a stop shows where in the script each rank is")
            for rank in quiet[:_MOST_NAMED]:
                if line := self._last_line(rank):
                    self.say(f"  the last line of rank {rank}: {line}")

    def _last_line(self, rank: int) -> str:
        reader = LineReader(self.run.rank(rank).stdout, rank, "stdout", lambda: None)
        reader.start_at_the_last(1)
        lines = reader.read() or [line for line in [reader.unfinished()] if line is not None]
        return lines[-1].text[:200] if lines else ""


def _names(ranks: list[int]) -> str:
    named = ", ".join(str(rank) for rank in ranks[:_MOST_NAMED])
    more = len(ranks) - _MOST_NAMED
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {named}" + (f" and {more} more" if more > 0 else "")
