"""The metrics of a run as points for curves: numbered, thinned out, kept for latecomers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ddpnb.records import Event

__all__ = ["Points"]

MOST_POINTS = 2_000
"""Of one metric of one rank; beyond it every second one is dropped."""

MOST_SENT = 60_000
"""Of all curves together, in one message to a browser that comes late."""

Point = tuple[int, float, float | None]
"""Step, Unix time, value; None where the value is not finite, as JSON knows no such number."""


class _Curve:
    """One metric of one rank. Thinned out, it keeps every 2nd, 4th, 8th ... point it was given."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._stride = 1
        self._given = 0

    def add(self, point: Point) -> bool:
        """Take a point in; return whether it is kept."""
        kept = self._given % self._stride == 0
        self._given += 1
        if kept:
            self.points.append(point)
            if len(self.points) > MOST_POINTS:
                self.points = self.points[::2]
                self._stride *= 2
        return kept


class Points:
    """All curves of a run."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, int], _Curve] = {}

    def add(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """Take metric events in; return the new points, grouped by metric and rank."""
        new: dict[tuple[str, int], list[Point]] = {}
        for event in events:
            if event.kind != "metric" or event.step is None:
                continue
            for name, value in event.data.items():
                key = (name, event.rank)
                finite = isinstance(value, (int, float)) and math.isfinite(value)
                point = (event.step, round(event.time, 2), float(value) if finite else None)
                if self._curves.setdefault(key, _Curve()).add(point):
                    new.setdefault(key, []).append(point)
        return [_told(key, points[-MOST_POINTS:]) for key, points in new.items()]

    def all(self) -> list[dict[str, Any]]:
        """Return the points that are kept, grouped by metric and rank; of very many, every nth."""
        kept = sum(len(curve.points) for curve in self._curves.values())
        stride = max(1, -(-kept // MOST_SENT))
        return [_told(key, curve.points[::stride]) for key, curve in self._curves.items()]


def _told(key: tuple[str, int], points: list[Point]) -> dict[str, Any]:
    return {"metric": key[0], "rank": key[1], "points": points}
