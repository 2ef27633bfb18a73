"""Myth cards: something that is often said, whether it is so, and where to read that."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.exercises.cards import Card, Shown

__all__ = ["Myth", "myth"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Myth(Shown):
    """A claim beside the fact."""

    claim: str
    verdict: str
    """In a word or two: "False", "Half true"."""
    fact: str
    source: str
    """Where the fact can be read or measured; an https address becomes a link."""

    def card(self) -> Card:
        """Return the claim first, as people meet it."""
        rows = (("Fact", self.fact), ("Source", self.source))
        return Card(tone="fact", mark="!", title=f"“{self.claim}” {self.verdict}.", rows=rows)


def myth(claim: str, verdict: str, fact: str, source: str) -> Myth:
    """Return a card that sets a claim right and names its source."""
    return Myth(claim=claim, verdict=verdict, fact=fact, source=source)
