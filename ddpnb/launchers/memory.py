"""Ask the kernel whether its out-of-memory killer was at work."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_memory", "oom_kills"]


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


def available_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes new processes may still take; None: nobody says.

    Args:
        root: where /proc and /sys are; for tests.
    """
    found = []
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            found.append(int(value.split()[0]) << 10)
    group = next((p for p in (root / "sys/fs/cgroup", *_own_groups(root)) if _limit(p)), None)
    if group is not None and (limit := _limit(group)) is not None:
        used = int(next(iter(_lines(group / "memory.current")), "0"))
        # Files that were read and can be dropped count as used there.
        cached = sum(
            int(value)
            for name, _, value in (e.partition(" ") for e in _lines(group / "memory.stat"))
            if name == "inactive_file"
        )
        found.append(limit - used + cached)
    return max(0, min(found)) if found else None


def _own_groups(root: Path) -> list[Path]:
    lines = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]
    return [root / f"sys/fs/cgroup{path}" for _, controllers, path in lines if not controllers]


def _limit(group: Path) -> int | None:
    text = next(iter(_lines(group / "memory.max")), "max")
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
