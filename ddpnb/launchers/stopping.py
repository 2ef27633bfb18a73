"""How the processes of a run are ended: politely, in stages, and at once where that is asked."""

from __future__ import annotations

import os
import signal
import time
from typing import Literal

from ddpnb.launchers.children import Children
from ddpnb.launchers.tree import TERM_SECONDS, say
from ddpnb.launchers.trouble import Trouble
from ddpnb.launchers.watch import Watch
from ddpnb.process import descendants

__all__ = ["Stopping"]

STACKS_SECONDS = 0.5
"""How long it is waited at most for the stacks of the ranks beside one that has failed."""


class Stopping:
    """The stages of a stop: SIGINT, after `grace` seconds SIGTERM, then SIGKILL to all below us.

    Args:
        interrupt: who gets the SIGINT: the launched process, which passes it on, or each rank.
        grace: in seconds.
    """

    def __init__(
        self,
        watch: Watch,
        children: Children,
        trouble: Trouble,
        *,
        interrupt: Literal["launcher", "ranks"],
        grace: float,
    ) -> None:
        self._watch = watch
        self._children = children
        self._trouble = trouble
        self._interrupt = interrupt
        self._grace = grace
        self.stage: Literal["interrupt", "terminate", "kill"] | None = None
        self._next_at = 0.0
        self._failed_at: float | None = None

    @property
    def waits_for_stacks(self) -> bool:
        """Whether a rank has failed, and the others are still telling where they were."""
        return self._failed_at is not None and self.stage is None

    def begin(self, reason: str) -> None:
        """Begin the polite stop: SIGINT to the ranks, through the agent where there is one."""
        say(f"{reason}: SIGINT now, SIGTERM after {self._grace:g} s, then SIGKILL")
        self.stage, self._next_at = "interrupt", time.monotonic() + self._grace
        if self._interrupt == "launcher" or not self._watch.alive():
            self._children.signal(signal.SIGINT)
        else:
            self._interrupt_ranks()

    def _interrupt_ranks(self) -> None:
        """Send SIGINT once to each rank, also to one that begins after the order to stop."""
        for rank in self._watch.alive():
            if not rank.interrupted:
                rank.interrupted = True
                rank.process.send(signal.SIGINT)

    def end_the_others(self) -> None:
        """End the ranks beside one that has failed, as torchrun's agent does where there is one."""
        if self.stage is not None or not self._children.one_has_failed:
            return
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        if now < self._failed_at + STACKS_SECONDS and self._trouble.waits_for_stacks():
            return
        say("a rank has failed: SIGTERM to the others")
        self.stage, self._next_at = "terminate", now + self._grace + TERM_SECONDS
        self._children.signal(signal.SIGTERM)

    def go_on(self) -> None:
        """Take the next step of a stop that has begun, if it is due: call it at each tick."""
        if self.stage == "interrupt" and self._interrupt == "ranks":
            self._interrupt_ranks()
        if self.stage is None or time.monotonic() < self._next_at:
            return
        if self.stage == "interrupt":
            say("SIGTERM to the ranks that are left")
            self.stage, self._next_at = "terminate", time.monotonic() + TERM_SECONDS
            alive = self._watch.alive()
            for rank in alive:
                rank.process.send(signal.SIGTERM)
            if not alive:
                self._children.signal(signal.SIGTERM)
        else:
            self.kill()

    def kill(self) -> None:
        """Kill everything that is left of the run."""
        if self.stage != "kill":
            say("SIGKILL to everything that is left")
        self.stage = "kill"
        for process in descendants(os.getpid()):
            process.send(signal.SIGKILL)
