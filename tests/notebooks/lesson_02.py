"""Lesson 02 solved: for each fault of the guide's script, what a learner would write instead."""

REPAIRS = {
    "guard": {'if name == "main":': 'if __name__ == "__main__":'},
    "import": {"import torch.multiprocessing as m\n": "import torch.multiprocessing as mp\n"},
    "address": {
        "import torch\nimport torch.distributed": (
            "import os\nimport socket\n\nimport torch\nimport torch.distributed"
        ),
        "    world_size = 2\n": (
            "    world_size = 2\n"
            "    with socket.socket() as free:\n"
            '        free.bind(("127.0.0.1", 0))\n'
            '        os.environ["MASTER_PORT"] = str(free.getsockname()[1])\n'
            '    os.environ["MASTER_ADDR"] = "127.0.0.1"\n'
        ),
    },
    "backend": {'"nccl", rank': '"nccl" if torch.cuda.is_available() else "gloo", rank'},
    "device": {
        "def train(rank, world_size):\n": (
            "def train(rank, world_size):\n"
            '    device = torch.device("cpu")\n'
            "    if torch.cuda.is_available():\n"
            '        device = torch.device("cuda", rank)\n'
            "        torch.cuda.set_device(device)\n"
        ),
        "nn.Linear(20, 5))": "nn.Linear(20, 5)).to(device)",
        "device_ids=[rank]": 'device_ids=[rank] if device.type == "cuda" else None',
        "            loss = ": (
            "            inputs, targets = inputs.to(device), targets.to(device)\n"
            "            loss = "
        ),
    },
    "data": {
        "import DataLoader, TensorDataset": "import DataLoader, DistributedSampler, TensorDataset",
        "    loader = DataLoader(dataset, batch_size=8, shuffle=True)": (
            "    sampler = DistributedSampler(dataset)\n"
            "    loader = DataLoader(dataset, batch_size=8, sampler=sampler)"
        ),
        "    for epoch in range(2):\n": (
            "    for epoch in range(2):\n        sampler.set_epoch(epoch)\n"
        ),
    },
    "save": {"    torch.save(": "    if rank == 0:\n        torch.save("},
    "destroy": {'"model.pt")': '"model.pt")\n    dist.destroy_process_group()'},
}

# What the hint of a fault is known by.
HINTS = {
    "guard": "started or imported",
    "import": "Which name did the import give",
    "address": "Read their names in the error",
    "backend": "a machine may have none",
    "device": "`device_ids` names a GPU",
    "data": "the same work twice",
    "save": "Two ranks write one file",
    "destroy": "the opposite of the first call",
}

# What the run itself says of those faults that stop it; the others let it come to its end.
ERRORS = {
    "guard": ["name 'name' is not defined"],
    "import": ["name 'mp' is not defined"],
    "address": ["MASTER_ADDR expected"],
    "backend": ["NCCL"],
    "device": ["device_ids"],
    # gloo's threads, still there while Python takes itself down, abort some of the runs.
    "destroy": ["came to its end", "SIGABRT"],
}

SOLUTIONS = {stub: text for repair in REPAIRS.values() for stub, text in repair.items()} | {
    "machine_1 = [(None, None), (None, None)]": "machine_1 = [(0, 0), (1, 1)]",
    "machine_2 = [(None, None), (None, None)]": "machine_2 = [(0, 2), (1, 3)]",
    "command = None": (
        'command = "torchrun --standalone --nproc_per_node=4 experiment.py hyperparams.yaml"'
    ),
}


def mended(broken: str, *, but: str) -> str:
    """Return the guide's script with every fault mended but one."""
    for fault, repair in REPAIRS.items():
        for stub, text in repair.items() if fault != but else ():
            assert broken.count(stub) == 1, f"{fault}: {stub!r}"
            broken = broken.replace(stub, text)
    return broken
