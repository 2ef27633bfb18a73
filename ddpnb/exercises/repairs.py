"""The eight faults of the guide's script: how each is read in the text, and seen in a run.

A hint says where to look, never what to write.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from ddpnb.exercises.readings import Reading, argument, keyword
from ddpnb.exercises.script_runs import ScriptRun

__all__ = ["FAULTS", "Fault", "Seen"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run shows of one fault; neither: it did not get so far."""

    hint: str = ""
    """The fault is there, and what to look at next."""
    fact: str = ""
    """What was seen."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, by the name of its check."""

    name: str
    read: Callable[[Reading], str]
    """Return a hint when the text has the fault, else ""."""
    see: Callable[[ScriptRun], Seen]
    """Return what the run shows; asked only when the text reads well."""


def _read_guard(reading: Reading) -> str:
    if reading.is_guarded():
        return ""
    return (
        "Python sets a variable that tells whether a file was started or imported. The last `if`"
        " asks for neither its name nor its value quite as they are spelled."
    )


def _see_guard(run: ScriptRun) -> Seen:
    if "bootstrapping phase" in run.error:
        hint = "Each rank imports the script, and starts ranks again: what starts them stands"
        return Seen(hint=f"{hint} outside of the last `if`.")
    if run.started:
        return Seen(fact=f"{run.started} processes were started, each only once.")
    if run.ended_well:
        return Seen(hint="The script ended at once and started nothing. Is the call still there?")
    return Seen()


def _read_import(reading: Reading) -> str:
    calls = reading.calls("spawn")
    if not calls:
        return "This exercise keeps `mp.spawn`: the script starts its own ranks with it."
    if all(reading.full_name(call.func) == "torch.multiprocessing.spawn" for call in calls):
        return ""
    return "The last line calls a module by one name. Which name did the import give it?"


def _see_import(run: ScriptRun) -> Seen:
    if run.started:
        return Seen(fact=f"`mp.spawn` was found and started {run.started} processes.")
    return Seen()


def _read_address(reading: Reading) -> str:
    calls = reading.calls("init_process_group")
    if any(keyword(call, "init_method") or keyword(call, "store") for call in calls):
        return ""
    if all(reading.has_text(name) for name in ("MASTER_ADDR", "MASTER_PORT")):
        return ""
    return (
        "`init_process_group` asks the environment where rank 0 can be met. torchrun would have"
        " put two variables there; `mp.spawn` puts none. Read their names in the error."
    )


def _see_address(run: ScriptRun) -> Seen:
    if "EADDRINUSE" in run.error or "address already in use" in run.error.lower():
        hint = "Another program has that port. The operating system knows one that is free."
        return Seen(hint=hint)
    if "MASTER_ADDR" in run.error or "MASTER_PORT" in run.error:
        hint = "The ranks do not find the variables. They inherit what was set before they started."
        return Seen(hint=hint)
    if len(run.ranks) >= 2:
        return Seen(fact=f"Ranks {sorted(run.ranks.values())} met.")
    if run.ended_well:
        hint = "The script ended, but no two ranks met: how many does `mp.spawn` start?"
        return Seen(hint=hint)
    return Seen()


def _read_backend(reading: Reading) -> str:
    for call in reading.calls("init_process_group"):
        match argument(call, 0, "backend"):
            case ast.Constant(value="nccl"):
                return (
                    "nccl moves data between GPUs, and a machine may have none. torch can be asked;"
                    " the end of lesson 00 names the other backend."
                )
            case ast.Constant(value="gloo"):
                return "gloo runs everywhere, but on GPUs it is slow. Let the script choose."
    return ""


def _see_backend(run: ScriptRun) -> Seen:
    if "nccl" in run.error.lower():
        return Seen(hint="It still asks for nccl here. What did the script find out about GPUs?")
    backends = {call["backend"] for calls in run.of("init").values() for call in calls}
    if backends:
        return Seen(fact=f"On {run.device} the ranks talked through {', '.join(backends)}.")
    return Seen()


def _read_device(reading: Reading) -> str:
    wraps = reading.calls("DistributedDataParallel")
    if any(isinstance(keyword(call, "device_ids"), ast.List) for call in wraps):
        return (
            "`device_ids` names a GPU, also where there is none. What do the documents of DDP want"
            " there for a model on the CPU?"
        )
    if len(reading.calls("to") + reading.calls("cuda")) < 2:
        return (
            "On a machine with GPUs, model and batches would stay on the CPU. Both must be moved,"
            " the model before DDP gets it."
        )
    bound = any(keyword(call, "device_id") for call in reading.calls("init_process_group"))
    if bound or reading.calls("set_device"):
        return ""
    return (
        "Nothing ties a rank to its own GPU before the group is made: nccl would have to guess."
        " Which function of `torch.cuda` does that? Where there is no GPU, it must not be called."
    )


def _see_device(run: ScriptRun) -> Seen:
    if "device_ids" in run.error:
        return Seen(hint="DDP refuses `device_ids` for a model that is on the CPU.")
    if "same device" in run.error:
        return Seen(hint="Something was left on another device: the model, the inputs, or targets.")
    devices = {rank: calls[0]["device"] for rank, calls in run.of("wrap").items()}
    if not devices:
        return Seen()
    if run.device == "cpu":
        fact = "DDP took the model on the CPU. No GPU is here: that part is judged by reading."
        return Seen(fact=fact)
    if len(set(devices.values())) < len(devices) or "cpu" in devices.values():
        return Seen(hint="Each rank needs a GPU of its own.", fact=f"The models: {devices}.")
    return Seen(fact=f"The models: {devices}.")


def _read_data(reading: Reading) -> str:
    if not reading.calls("DistributedSampler"):
        return (
            "Both ranks go through all samples, in the same order: the same work twice. Who deals"
            " the samples out to the ranks?"
        )
    if not reading.calls("set_epoch"):
        return (
            "The sampler shuffles by its seed and the number of the epoch, and nobody tells it the"
            " number: every epoch has the same order."
        )
    return ""


def _see_data(run: ScriptRun) -> Seen:
    items = {rank: [c["index"] for c in calls] for rank, calls in run.of("item").items()}
    if not run.ended_well or len(items) < 2:
        return Seen()
    # Two epochs, so each rank's first half is the first epoch.
    halves = {rank: (row[: len(row) // 2], row[len(row) // 2 :]) for rank, row in items.items()}
    for epoch in (0, 1):
        dealt = [index for half in halves.values() for index in half[epoch]]
        if len(set(dealt)) < len(dealt):
            fact = f"{len(dealt)} samples were fetched in an epoch, {len(set(dealt))} of them once."
            return Seen(hint="The sampler is there. Does the loader use it?", fact=fact)
    if any(first == second for first, second in halves.values()):
        hint = (
            "Both epochs had the same order: is the sampler told its epoch before the loop starts?"
        )
        return Seen(hint=hint)
    count = ", ".join(f"rank {rank} {len(half[0])}" for rank, half in sorted(halves.items()))
    return Seen(fact=f"An epoch: {count} samples, none twice, in a new order each time.")


def _read_save(reading: Reading) -> str:
    if not reading.calls("save"):
        return "Nobody saves the model now. One rank should."
    if reading.under_if("save"):
        return ""
    return (
        "Two ranks write one file at the same time. All of them hold the same weights: how many"
        " need to write?"
    )


def _see_save(run: ScriptRun) -> Seen:
    if not run.ended_well:
        return Seen()
    who = sorted(run.of("save"))
    if len(who) == 1:
        return Seen(fact=f"Only rank {who[0]} wrote the file.")
    return Seen(hint="Look at the condition: exactly one rank writes.", fact=f"It was {who}.")


def _read_destroy(reading: Reading) -> str:
    if reading.calls("destroy_process_group"):
        return ""
    return (
        "The ranks make a process group and never take it down, so that connections, and with nccl"
        " threads and GPU memory, are left to chance. What is the opposite of the first call?"
    )


def _see_destroy(run: ScriptRun) -> Seen:
    if not run.ended_well or not run.ranks:
        return Seen()
    down = sorted(run.of("destroy"))
    if down == sorted(run.ranks.values()):
        return Seen(fact=f"Ranks {down} took the group down.")
    hint = "Every rank takes its own part of the group down, rank 0 alone is not enough."
    return Seen(hint=hint, fact=f"Only ranks {down} did.")


FAULTS = (
    Fault(name="guard", read=_read_guard, see=_see_guard),
    Fault(name="import", read=_read_import, see=_see_import),
    Fault(name="address", read=_read_address, see=_see_address),
    Fault(name="backend", read=_read_backend, see=_see_backend),
    Fault(name="device", read=_read_device, see=_see_device),
    Fault(name="data", read=_read_data, see=_see_data),
    Fault(name="save", read=_read_save, see=_see_save),
    Fault(name="destroy", read=_read_destroy, see=_see_destroy),
)
"""What stops the script comes first, what no error tells comes last."""
