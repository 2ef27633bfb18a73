"""The variables that torchrun gives each rank: what a script may count on, whoever starts it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["rank_variables"]


def rank_variables(
    local_rank: int, nproc: int, run_id: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return what torchrun sets for one of `nproc` ranks on one machine, all but MASTER_PORT.

    As of torch 2.13: torch.distributed.run and torch.distributed.elastic.agent.server. The store is
    rank 0's, for there is no agent that could keep it.

    Args:
        environ: what the rank has besides; torchrun respects one variable in it.
    """
    return {
        "RANK": str(local_rank),
        "LOCAL_RANK": str(local_rank),
        "ROLE_RANK": str(local_rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "ROLE_WORLD_SIZE": str(nproc),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
