"""The loopback interface, on which ranks of one machine meet, and those that the user names."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import Here
from ddpnb.launchers.ports import is_taken

__all__ = ["interfaces", "judge_interfaces", "loopback_trouble", "ports"]

USUAL_PORT = 29500  # torch's default MASTER_PORT, and most tutorials'
_SECONDS = 5.0
_FEW_PORTS = 1000


def ports(here: Here, usual: int = USUAL_PORT) -> Check:
    """Check that processes of this machine reach each other by TCP, and who has the usual port."""
    if trouble := loopback_trouble():
        fix = "a firewall or sandbox forbids 127.0.0.1, or `lo` is down: ip link set lo up"
        return Check("ports", "fail", f"no connection on 127.0.0.1: {trouble}", fix)
    found = "127.0.0.1 works; while a run lasts, torch's own stores listen on all interfaces"
    first, last = _range(here)
    if first is not None and last is not None and last - first < _FEW_PORTS:
        found = f"{found}; only {last - first + 1} free ports are given out ({first} to {last})"
        fix = "sysctl -w net.ipv4.ip_local_port_range='32768 60999', as an administrator"
        return Check("ports", "warn", found, fix)
    if is_taken(usual):
        found = f"{found}; the usual port {usual} is taken by {_holder(usual)}"
        fix = "leave the port out: ddpnb takes a free one; plain torchrun: --standalone"
        return Check("ports", "note", found, fix)
    return Check("ports", "ok", f"{found}; {usual} is free")


def loopback_trouble() -> str:
    """Return why no connection on 127.0.0.1 comes about; empty when it does."""
    try:
        with socket.socket() as server:
            server.settimeout(_SECONDS)
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            with socket.create_connection(server.getsockname(), _SECONDS):
                server.accept()[0].close()
    except OSError as error:
        return str(error)
    return ""


def interfaces(here: Here) -> Check:
    """Check that the interfaces which the user names for gloo and nccl are here."""
    return judge_interfaces(
        {name for _, name in socket.if_nameindex()},
        here.environ.get("GLOO_SOCKET_IFNAME"),
        here.environ.get("NCCL_SOCKET_IFNAME"),
    )


def judge_interfaces(there: Collection[str], gloo: str | None, nccl: str | None) -> Check:
    """Return whether the two variables name interfaces that are here."""
    told, wrong = [], []
    if gloo is not None:
        told.append(f"GLOO_SOCKET_IFNAME={gloo}")
        wrong += [word for word in _words(gloo) if word not in there]
    if nccl is not None:
        told.append(f"NCCL_SOCKET_IFNAME={nccl}")
        # nccl: "^a,b" all but these, "=a" exactly this one, "a" all that begin so
        exact = nccl.startswith(("=", "^="))
        wanted = [] if nccl.startswith("^") else _words(nccl.removeprefix("="))
        wrong += [
            word
            for word in wanted
            if not (word in there if exact else any(name.startswith(word) for name in there))
        ]
    if wrong:
        found = f"{', '.join(told)}, but here is no {', '.join(wrong)}; here are {_list(there)}"
        return Check("interfaces", "warn", found, "unset the variable, or name one that is here")
    if not told:
        return Check("interfaces", "ok", f"{_list(there)}; gloo uses lo (ddpnb says so)")
    return Check("interfaces", "ok", f"{', '.join(told)}; here are {_list(there)}")


def _words(text: str) -> list[str]:
    return [word.strip().partition(":")[0] for word in text.split(",") if word.strip()]


def _list(names: Collection[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")


def _range(here: Here) -> tuple[int | None, int | None]:
    numbers = (here.read("proc/sys/net/ipv4/ip_local_port_range") or "").split()
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        return int(numbers[0]), int(numbers[1])
    return None, None


def _holder(port: int) -> str:
    """Say who listens on a port; of other people's processes only an administrator is told."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for found in psutil.net_connections("tcp"):
            at_port = found.laddr and found.laddr.port == port
            if at_port and found.status == psutil.CONN_LISTEN and found.pid is not None:
                return f"pid {found.pid} ({psutil.Process(found.pid).name()})"
    return "a process that is not told to you"
