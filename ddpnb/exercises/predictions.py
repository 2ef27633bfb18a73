"""Predict before you run, compare afterwards. Never graded: a wrong prediction teaches most.

Answers lie in .ddpnb/answers.json beside the notebook, so that they outlive the kernel.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpnb.errors import DdpnbError
from ddpnb.exercises.cards import Card, Shown, plain
from ddpnb.json_files import read_json, write_json

__all__ = ["Comparison", "Prediction", "answers_file", "compare", "predict"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(Shown):
    """What a learner expects, or the invitation to expect something."""

    question_id: str
    question: str = ""
    answer: Any = None
    """None: no prediction yet."""

    def card(self) -> Card:
        """Return the question, and the answer once there is one."""
        if self.answer is None:
            invitation = (
                "Put your guess in place of `None` and run the cell again. Nobody grades it."
            )
            return Card(
                tone="ask", mark="?", title="Predict", rows=(("", self.question), ("", invitation))
            )
        rows = (("", self.question), ("You say", plain(self.answer)))
        return Card(tone="ask", mark="?", title="Your prediction is kept", rows=rows)


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Shown):
    """What a learner expected beside what happened."""

    question: str
    predicted: Any
    """None: there was no prediction."""
    actual: Any
    explain: str = ""

    @property
    def agrees(self) -> bool:
        """True when the prediction came true."""
        return self.predicted is not None and _same(self.predicted, self.actual)

    def card(self) -> Card:
        """Return both sides, in kind words."""
        if self.predicted is None:
            mark, title, said = (
                "?",
                "No prediction this time",
                "(nothing: try one before the next run)",
            )
        else:
            said = plain(self.predicted)
            mark, title = (
                ("=", "As you predicted") if self.agrees else ("≠", "Not what you predicted")
            )
        rows = (
            ("", self.question),
            ("You said", said),
            ("It was", plain(self.actual)),
            ("Why", self.explain),
        )
        return Card(tone="right" if self.agrees else "ask", mark=mark, title=title, rows=rows)


def predict(question_id: str, answer: Any, *, question: str = "") -> Prediction:
    """Keep what you expect to see; an answer of None asks, and leaves an earlier answer as it is.

    Args:
        question_id: name under which `compare` finds the answer.
        answer: anything that JSON can hold, or None.
        question: the question in words, shown on the card.
    """
    kept = _read()
    if answer is None:
        earlier = kept.get(question_id, {}).get("answer")
        return Prediction(question_id=question_id, question=question, answer=earlier)
    answer = _as_json(answer)
    kept[question_id] = {"question": question, "answer": answer, "time": time.time()}
    _write(kept)
    return Prediction(question_id=question_id, question=question, answer=answer)


def compare(question_id: str, actual: Any, *, explain: str = "") -> Comparison:
    """Show the prediction beside what happened."""
    kept = _read().get(question_id, {})
    return Comparison(
        question=kept.get("question", ""),
        predicted=kept.get("answer"),
        actual=_as_json(actual),
        explain=explain,
    )


def answers_file() -> Path:
    """Return where the predictions of the notebook in this folder are kept."""
    return Path.cwd() / ".ddpnb" / "answers.json"


def _read() -> dict[str, Any]:
    try:
        return read_json(answers_file()) or {}
    except OSError as error:
        raise _unusable(error) from error


def _write(answers: dict[str, Any]) -> None:
    path = answers_file()
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        ignore = path.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        write_json(path, answers)
    except OSError as error:
        raise _unusable(error) from error


def _unusable(error: OSError) -> DdpnbError:
    return DdpnbError(
        f"cannot keep predictions in {answers_file()}: {error.strerror}; copy the notebook to a"
        " folder that you can write"
    )


def _as_json(value: Any) -> Any:
    """Return the value as it comes back from the file: tuples as lists, no numpy numbers."""
    return json.loads(json.dumps(value, default=_plain))


def _plain(odd: Any) -> Any:
    if hasattr(odd, "tolist"):  # numpy and torch
        return odd.tolist()
    kind = type(odd).__name__
    raise TypeError(f"an answer cannot be a {kind}; write a number, a text, or a list of them")


def _same(predicted: Any, actual: Any) -> bool:
    if isinstance(predicted, str) and isinstance(actual, str):
        return predicted.strip().casefold() == actual.strip().casefold()
    if isinstance(predicted, (int, float)) and isinstance(actual, (int, float)):
        return math.isclose(predicted, actual, rel_tol=1e-3)
    return bool(predicted == actual)
