"""Exercises and their checks: a check that fails is a value with a hint, never an exception.

A lesson adds its checks in ddpnb/exercises/lesson_NN.py, which is imported when `check("NN-...")`
first asks:

    @exercise("00-env")
    def check_env(job: Any) -> Verdict: ...
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ddpnb.exercises.cards import Card, Shown

__all__ = ["Verdict", "check", "exercise"]

_checks: dict[str, Callable[..., Verdict]] = {}

F = TypeVar("F", bound="Callable[..., Verdict]")


@dataclass(frozen=True, kw_only=True, repr=False)
class Verdict(Shown):
    """What a check found."""

    name: str = ""
    """Which exercise; filled in by `check`."""
    passed: bool
    hint: str = ""
    """What to look at next, when not passed."""
    detail: str = ""
    """What was seen."""

    def card(self) -> Card:
        """Return the verdict; one that is not passed is open, not wrong."""
        title = f"{self.name}: passed" if self.passed else f"{self.name}: not yet"
        rows = (("Seen", self.detail), ("Hint", "" if self.passed else self.hint))
        if self.passed:
            return Card(tone="right", mark="✓", title=title, rows=rows)
        return Card(tone="open", mark="○", title=title, rows=rows)


def exercise(check_id: str) -> Callable[[F], F]:
    """Register the decorated function, which gives a Verdict on an answer, as a check."""

    def register(function: F) -> F:
        _checks[check_id] = function
        return function

    return register


def check(check_id: str, answer: Any = None, **given: Any) -> Verdict:
    """Return what the check of an exercise says to an answer; None says that there is none yet.

    Args:
        check_id: lesson and exercise, such as "00-env".
        answer: what the exercise asks for.
        given: what else this check looks at, such as the jobs that the answer is about.
    """
    function = _find(check_id)
    if answer is None:
        hint = "No answer yet: put yours in place of `None`, then run this cell again."
        return Verdict(name=check_id, passed=False, hint=hint)
    return replace(function(answer, **given), name=check_id)


def _find(check_id: str) -> Callable[..., Verdict]:
    lesson = check_id.partition("-")[0]
    module = f"{__package__}.lesson_{lesson}"
    if lesson.isdigit() and importlib.util.find_spec(module):
        importlib.import_module(module)
    if check_id not in _checks:
        known = sorted(name for name in _checks if name.startswith(f"{lesson}-"))
        raise LookupError(f"there is no check {check_id!r}; lesson {lesson} has {known}")
    return _checks[check_id]
