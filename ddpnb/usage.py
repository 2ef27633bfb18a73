"""What ranks and GPUs use at this moment, asked of the system: CUDA is never touched."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from ddpnb.process import children_table

__all__ = ["GpuUse", "ProcessUse", "Usage"]


@dataclass(frozen=True, kw_only=True)
class ProcessUse:
    """What one rank's process uses, its helpers included."""

    cpu_percent: float
    """Of one core, since the last look."""
    rss_bytes: int


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """What is going on on one GPU."""

    index: int
    name: str
    percent: float
    used_bytes: int
    total_bytes: int
    watts: float | None = None
    celsius: float | None = None
    pids: tuple[int, ...] = ()
    """Processes that hold memory of it."""


class Usage:
    """Looks at processes and GPUs; owns what a rate needs from the look before."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, float]] = {}  # pid: when, CPU seconds
        self._nvml: Any = _nvml()

    def of(self, pids: Iterable[int]) -> dict[int, ProcessUse]:
        """Return what each process and all below it use, by pid; without those that are gone."""
        table = children_table()  # once for all: it reads every process of the machine
        used = {pid: self._of_family(pid, table) for pid in pids}
        return {pid: use for pid, use in used.items() if use is not None}

    def _of_family(self, pid: int, children: Mapping[int, Sequence[int]]) -> ProcessUse | None:
        family = [pid]
        for one in family:  # it grows meanwhile
            family += children.get(one, ())
        seconds, rss, gone = 0.0, 0, True
        for one in family:
            try:
                process = psutil.Process(one)
                times, memory = process.cpu_times(), process.memory_info()
            except (psutil.Error, ValueError):  # it has just ended; no pid at all
                continue
            gone = gone and one != pid
            seconds += times.user + times.system
            rss += memory.rss
        if gone:
            return None
        now = time.monotonic()
        then, before = self._before.get(pid, (now, seconds))
        self._before[pid] = now, seconds
        passed = now - then
        percent = 100 * max(0.0, seconds - before) / passed if passed > 0 else 0.0
        return ProcessUse(cpu_percent=percent, rss_bytes=rss)

    def gpus(self) -> list[GpuUse]:
        """Return what goes on on each GPU; none without nvidia-ml-py or a driver."""
        if self._nvml is None:
            return []
        try:
            count = self._nvml.nvmlDeviceGetCount()
            return [self._gpu(index) for index in range(count)]
        except self._nvml.NVMLError:
            return []  # the driver has gone, e.g. in a reset; the next look may find it

    def _gpu(self, index: int) -> GpuUse:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        name = nvml.nvmlDeviceGetName(handle)
        return GpuUse(
            index=index,
            name=name.decode() if isinstance(name, bytes) else str(name),
            percent=float(self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu) or 0),
            used_bytes=int(memory.used),
            total_bytes=int(memory.total),
            watts=self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            celsius=self._ask(lambda: float(nvml.nvmlDeviceGetTemperature(handle, 0))),
            pids=tuple(
                int(one.pid)
                for one in self._ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
                or ()
            ),
        )

    def _ask(self, question: Any) -> Any:
        """Return an answer, or None where this GPU, or a MIG slice of it, does not give it."""
        try:
            return question()
        except self._nvml.NVMLError:
            return None


def _nvml() -> Any:
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None  # no driver here
    return pynvml
