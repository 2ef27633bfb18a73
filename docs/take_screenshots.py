"""Take the pictures of README.md and docs/: `python docs/take_screenshots.py`.

Runs a real training on two ranks in a JupyterLab of its own, in Chromium, and writes
docs/images/*.png. Nothing in them is drawn by hand.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser.conftest import Lab, NotebookPage, chromium
from tests.conftest import ROOT

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 300_000

TRAINING = """%%ddp --nproc-per-node 2 train.py
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from ddpnb.worker import ddp, log, progress

with ddp(seed=0) as worker:
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth = torch.linspace(-1, 1, 16).unsqueeze(1)
    data = torch.Generator().manual_seed(worker.rank)
    for step in progress(range(600), name="steps"):
        x = torch.randn(32, 16, generator=data)
        loss = torch.nn.functional.mse_loss(model(x), x @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(step, loss=loss.item())
        if step % 20 == 0:
            print(f"step {step:3d}: this rank's loss is {loss.item():.4f}")
        time.sleep(0.03)  # so that there is something to see
"""
FAILING = """%%ddp --nproc-per-node 2 broken.py
import torch
import torch.distributed as dist
from ddpnb.worker import ddp

with ddp() as worker:
    batches = [torch.ones(4) for _ in range(3 - worker.rank)]
    for step in range(3):
        total = batches[step].sum()
        dist.all_reduce(total)
        print(f"step {step}: the sum over all ranks is {total.item():.0f}")
"""


def main() -> None:
    """Take them all."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DDPNB_RUNS"] = f"{folder}/runs"
        lab = Lab(Path(folder) / "lab")
        try:
            with sync_playwright() as playwright:
                options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
                browser = playwright.chromium.launch(executable_path=chromium(), args=options)
                take(lab, browser, "training", TRAINING, light_and_curves)
                take(lab, browser, "failure", FAILING, cause)
                browser.close()
        finally:
            lab.close()


def take(lab: Lab, browser: Any, name: str, cell: str, steps: Any) -> None:
    """Run a cell in a notebook of its own, and take the pictures on the way."""
    lab.set_theme("JupyterLab Light")
    context = browser.new_context(viewport={"width": 1000, "height": 1000}, device_scale_factor=1.5)
    page = context.new_page()
    page.set_default_timeout(120_000)
    notebook = NotebookPage(lab, page, name)
    notebook.open("%load_ext ddpnb", cell)
    page.keyboard.press("Control+b")  # without the list of files
    notebook.run_all()
    steps(notebook)
    context.close()


def light_and_curves(notebook: NotebookPage) -> None:
    """The log and the curves of a training on its way."""
    notebook.wait_for(".ddpnb-rows", "step 160")
    picture(notebook, "log")
    notebook.page.locator(".ddpnb-page-curves").click()
    notebook.page.locator("canvas").first.wait_for()
    notebook.page.wait_for_timeout(3000)  # so that they have some length
    picture(notebook, "curves")
    notebook.wait_for(".ddpnb-title", "succeeded")


def cause(notebook: NotebookPage) -> None:
    """What a rank failed of."""
    notebook.wait_for(".ddpnb-trouble", "IndexError")
    notebook.page.locator(".ddpnb-tab", has_text="rank 1").click()
    notebook.wait_for(".ddpnb-rows", "IndexError")
    picture(notebook, "cause")


def picture(notebook: NotebookPage, name: str) -> None:
    """Write the live view as it is now."""
    path = IMAGES / f"{name}.png"
    notebook.page.locator(".ddpnb-view").first.screenshot(path=path)
    size = path.stat().st_size
    assert size <= MOST_BYTES, f"{path} has {size:,} bytes"
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")


if __name__ == "__main__":
    main()
