"""What kind of place this is: somebody's laptop, a class server, a hosted notebook, a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import Here, ask

__all__ = ["judge_profile", "profile", "slurm"]

_SECONDS = 15.0
_CONTAINERS = (".dockerenv", "run/.containerenv", "singularity.d", ".singularity.d")


def profile(here: Here) -> Check:
    """Say what kind of place this is, by what it calls itself."""
    container = any((here.root / mark).exists() for mark in _CONTAINERS)
    container = container or "KUBERNETES_SERVICE_HOST" in here.environ
    return judge_profile(here.environ, slurm=here.which("sbatch") is not None, container=container)


def judge_profile(environ: Mapping[str, str], *, slurm: bool, container: bool) -> Check:
    """Return the place's name, with what matters in such a place."""
    inside = ", in a container" if container else ""
    if "KAGGLE_KERNEL_RUN_TYPE" in environ:
        found = "Kaggle notebook"
        fix = "for more than one GPU, choose such an accelerator in the notebook's settings"
        return Check("profile", "note", found, fix)
    if "COLAB_RELEASE_TAG" in environ or "COLAB_GPU" in environ:
        found = "Colab notebook: what it writes is gone when the session ends"
        return Check("profile", "note", found, "set DDPNB_RUNS to a folder of a mounted drive")
    hub = "JUPYTERHUB_USER" in environ or "JUPYTERHUB_API_URL" in environ
    if slurm or "SLURM_JOB_ID" in environ:
        through = ", through JupyterHub" if hub else ""
        return Check("profile", "ok", f"cluster: Slurm is here{through}{inside}")
    if hub:
        found = f"class server (JupyterHub){inside}: others compute here too"
        return Check("profile", "ok", found)
    return Check("profile", "ok", f"laptop or workstation: no JupyterHub, no Slurm{inside}")


def slurm(here: Here) -> Check:
    """Check Slurm's commands, and whether we are inside an allocation."""
    job = here.environ.get("SLURM_JOB_ID")
    sbatch, srun = here.which("sbatch"), here.which("srun")
    if sbatch is None and srun is None:
        if job is None:
            return Check("Slurm", "skip", "no sbatch on PATH")
        fix = "in a container, mount Slurm's commands, its configuration and munge's socket"
        return Check("Slurm", "note", f"inside job {job}, without srun and sbatch on PATH", fix)
    answer = ask([str(sbatch or srun), "--version"], _SECONDS, here.environ)
    if answer.code != 0:
        fix = "`sinfo` says how the cluster is; is slurm.conf readable here?"
        return Check("Slurm", "warn", f"{sbatch or srun} does not answer: {answer.words}", fix)
    found = answer.out.strip() or "sbatch is here"
    if job is not None:
        nodes = here.environ.get("SLURM_JOB_NUM_NODES", "1")
        found = f"{found}; inside job {job} on {nodes} node(s)"
        fix = "ranks launched from here run on this node alone" if nodes != "1" else ""
        return Check("Slurm", "note" if fix else "ok", found, fix)
    fix = "long trainings belong into a job: salloc or srun first, then Jupyter inside it"
    return Check("Slurm", "note", f"{found}; outside of any job, so perhaps on a login node", fix)
