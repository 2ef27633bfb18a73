"""Ask the kernel whether its out-of-memory killer was at work."""

from __future__ import annotations

from pathlib import Path

__all__ = ["oom_kills"]


def oom_kills(root: Path = Path("/")) -> int | None:
    """Return how many processes of this cgroup it has killed so far; None: nobody counts here.

    Args:
        root: where /proc and /sys are; for tests.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files = [
                root / f"sys/fs/cgroup{path}/memory.events",
                root / "sys/fs/cgroup/memory.events",
            ]
        elif "memory" in controllers.split(","):
            # In a container the path is the host's, and its own group is mounted as the root.
            folder = root / "sys/fs/cgroup/memory"
            files = [Path(f"{folder}{path}/memory.oom_control"), folder / "memory.oom_control"]
        else:
            continue
        for file in files:
            for name, _, value in (entry.partition(" ") for entry in _lines(file)):
                if name == "oom_kill":
                    return int(value)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
