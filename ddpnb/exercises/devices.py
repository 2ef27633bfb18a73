"""What the ranks of a lesson can compute on here, and why."""

from __future__ import annotations

from ddpnb.exercises.cards import Card
from ddpnb.launchers.devices import visible_gpus

__all__ = ["DeviceChoice", "device_for"]


class DeviceChoice(str):
    """A device for whoever asks for one, "cpu" or "cuda", with the reason on its card."""

    why: str

    def __new__(cls, device: str, why: str) -> DeviceChoice:
        """Make the string that also knows its reason."""
        choice = super().__new__(cls, device)
        choice.why = why
        return choice

    def card(self) -> Card:
        """Return the device and the reason."""
        return Card(tone="ask", mark="→", title=f"device: {self}", rows=(("", self.why),))

    def _repr_html_(self) -> str:
        return self.card().html()


def device_for(nproc: int) -> DeviceChoice:
    """Return "cuda" when there is a GPU for each of `nproc` ranks, else "cpu", and why."""
    gpus = len(visible_gpus())
    if gpus >= nproc:
        why = f"{gpus} GPU(s) for {nproc} rank(s): each gets its own, and they talk through nccl."
        return DeviceChoice("cuda", why)
    if gpus:
        why = (
            f"{gpus} GPU(s) are too few for {nproc} ranks: nccl wants a GPU of its own for each."
            " All ranks compute on the CPU and talk through gloo."
        )
    else:
        why = "No GPU is visible here. All ranks compute on the CPU and talk through gloo."
    return DeviceChoice("cpu", why)
