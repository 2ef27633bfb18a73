"""The notebook's side of ddpnb: the magics, and a live view of each launch.

The only room that imports IPython and ipywidgets. `ddpnb` calls `load` and `show_launches`, and
nothing else here is imported before they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpnb.job import Job

__all__ = ["load", "show", "show_launches"]


def load(shell: Any) -> None:
    """Add %%ddp, %ddp and %%ddp_script to a shell, and a view below each launch."""
    from ddpnb.notebook.magics import DdpMagics

    shell.register_magics(DdpMagics(shell))
    show_launches()


def show_launches() -> None:
    """Have each launch of this process show itself: a view in a notebook, text in a terminal."""
    from IPython.core.getipython import get_ipython

    from ddpnb.api import on_job

    shell = get_ipython()
    if shell is None:
        return
    from ddpnb.notebook.messages import show_short_tracebacks

    show_short_tracebacks()
    if not hasattr(shell, "kernel"):
        on_job(_tell)
        return
    from ddpnb.notebook import dashboard

    on_job(dashboard.show)
    if dashboard.settle not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", dashboard.settle)


def show(job: Job) -> None:
    """Show a live view of a job, e.g. of one that `attach` has found."""
    from ddpnb.notebook import dashboard

    dashboard.show(job)


def _tell(job: Job) -> None:
    print(
        f"{job!r}\njob.wait() waits for it, job.logs() has its lines; all of it is in {job.folder}"
    )
