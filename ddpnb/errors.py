"""The errors that a caller may catch.

DdpnbError
├── SpecError               what was asked for cannot be run as asked
│   ├── CellError           a notebook cell is no script
│   ├── CaptureError        a notebook's function cannot be written as a script
│   └── DeviceError         the GPUs asked for are not there
├── RunDirError             a run folder cannot be made or read
├── LaunchError             nothing was started
└── WorkerFailedError       a run ended and a rank is to blame
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpnb.records import RunResult

__all__ = [
    "CaptureError",
    "CellError",
    "DdpnbError",
    "DeviceError",
    "LaunchError",
    "RunDirError",
    "SpecError",
    "WorkerFailedError",
]


class DdpnbError(Exception):
    """Whatever ddpnb refuses or reports, in words meant for the person at the keyboard."""


class SpecError(DdpnbError):
    """What was asked for cannot be run as asked; nothing was written or started."""


class CellError(SpecError):
    """A cell cannot become a script: wrong syntax, a notebook magic, `await` at top level."""


class CaptureError(SpecError):
    """A function of the notebook cannot be written as a script of its own."""


class DeviceError(SpecError):
    """The GPUs that were asked for are not there, or are too few."""


class RunDirError(DdpnbError):
    """A run folder cannot be created, or what lies in it cannot be read."""


class LaunchError(DdpnbError):
    """The launch failed before any rank was started."""


class WorkerFailedError(DdpnbError):
    """A run did not succeed; the message leads with the rank that failed first."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result
        """Everything that is known of the run: state, failures, results, metrics."""
