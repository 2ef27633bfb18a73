"""A JupyterLab of its own, and a Chromium that drives it.

Both live for the session; each test opens a notebook of its own. The machine's Chromium is used
(CHROMIUM names another one), because Playwright's own download is not needed for it.
"""

import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.conftest import require, wait_until

SCREENSHOTS = Path(__file__).parent / "screenshots"
SECONDS = int(
    os.environ.get("DDPNB_BROWSER_SECONDS", "120")
)  # for what takes one on a quiet machine


def chromium() -> str | None:
    """Return the browser to drive, or None."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


class Lab:
    """A JupyterLab server; owns its process."""

    def __init__(self, root: Path, without: tuple[str, ...] = ()) -> None:
        """Start it without some extensions of the page."""
        self.work = root / "work"
        self.token = secrets.token_hex(16)
        self.log = root / "lab.log"
        home = root / "home"
        for folder in (self.work, home):
            folder.mkdir(parents=True)
        # Without this a "Would you like to get Jupyter news?" lies over the page.
        quiet = home / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
        quiet.parent.mkdir(parents=True)
        quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
        disabled = home / "config/labconfig/page_config.json"
        disabled.parent.mkdir(parents=True)
        disabled.write_text(json.dumps({"disabledExtensions": dict.fromkeys(without, True)}))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command(), env=self._environment(home), stdout=log, stderr=log
            )
        self.url = wait_until(self._address, SECONDS, "JupyterLab answers")

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", "--port=0", f"--IdentityProvider.token={self.token}"),
            *(f"--ServerApp.root_dir={self.work}", "--LabApp.extension_manager=readonly"),
        ]

    def _environment(self, home: Path) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
        self.runtime = home / "runtime"
        return inherited | {
            "HOME": str(home),
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        }

    def _address(self) -> str | None:
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        for file in self.runtime.glob("jpserver-*.json"):
            try:
                self.url = json.loads(file.read_text())["url"]
                self.call("api/status")
            except (ValueError, urllib.error.URLError):  # not written whole, not listening yet
                return None
            return self.url
        return None

    def call(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Return what the server's own interface answers."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            text = response.read()
        return json.loads(text) if text else None

    def set_theme(self, name: str) -> None:
        """Choose "JupyterLab Light" or "JupyterLab Dark" for the pages opened from now on."""
        body = {"raw": json.dumps({"theme": name})}
        self.call("lab/api/settings/@jupyterlab/apputils-extension:themes", "PUT", body)

    def close(self) -> None:
        for kernel in self.call("api/kernels"):
            self.call(f"api/kernels/{kernel['id']}", "DELETE")
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class NotebookPage:
    """One notebook, open in the browser."""

    def __init__(self, lab: Lab, page: Any, name: str) -> None:
        self.lab = lab
        self.page = page
        self.name = name

    def open(self, *cells: str) -> None:
        """Write the notebook, open it, and return when its kernel is there."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        self.file.parent.mkdir()
        nbformat.write(notebook, self.file)
        self.open_again()

    @property
    def file(self) -> Path:
        """The notebook on disk."""
        return self.lab.work / self.name / f"{self.name}.ipynb"

    def open_again(self) -> None:
        """Open the notebook as it is on disk, and return when its kernel is there."""
        path = self.file.relative_to(self.lab.work)
        self.page.goto(f"{self.lab.url}lab/tree/{path}?reset&token={self.lab.token}")
        # Before a kernel is attached the page already reads "idle", and Run All would ask for one.
        bar = self.page.locator("#jp-main-statusbar", has_text="(ipykernel) | Idle")
        bar.wait_for(timeout=SECONDS * 1000)

    def run_all(self) -> None:
        """Choose Run > Run All Cells in the menu."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
        self.page.locator(".lm-Menu-item[data-command='runmenu:run-all']").click()

    def run_cell(self, number: int) -> None:
        """Run one cell, counted from 0."""
        self.page.locator(".jp-CodeCell .cm-content").nth(number).click()
        self.page.keyboard.press("Shift+Enter")

    def save(self, text: str) -> None:
        """Save the notebook, and return when the file holds this text."""

        def is_saved() -> bool:
            self.page.keyboard.press("Control+s")
            self.page.wait_for_timeout(200)  # lets the page work on it
            return text in self.file.read_text()

        wait_until(is_saved, SECONDS, f"{text} is saved")

    def restart_kernel(self) -> None:
        """Choose Kernel > Restart Kernel in the menu, and return when the new one is idle."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Kernel").first.click()
        self.page.locator(".lm-Menu-item[data-command='kernelmenu:restart']").click()
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        # The old one is idle still, and the new one is not at once.
        bar = "document.querySelector('#jp-main-statusbar').innerText"
        for there in ("!", ""):
            self.page.wait_for_function(f"{there}{bar}.includes('(ipykernel) | Idle')")

    def wait_for(self, selector: str, text: str) -> Any:
        """Return the first element with this text, once it is there."""
        found = self.page.locator(selector, has_text=text).first
        found.wait_for(timeout=SECONDS * 1000)
        return found

    def screenshot(self, name: str) -> None:
        """Keep a picture of the page for people."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@pytest.fixture(scope="package")
def lab(session_place: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    require("browser", importlib.util.find_spec("jupyterlab"), "jupyterlab is not installed")
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()


@pytest.fixture(scope="package")
def browser(session_place: None) -> Iterator[Any]:
    program = chromium()
    require("browser", program, "there is no Chromium on PATH, and CHROMIUM names none")
    require("browser", importlib.util.find_spec("playwright"), "playwright is not installed")
    from playwright.sync_api import sync_playwright

    # No sandbox: containers and root, where these tests mostly run, cannot make one.
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()


@pytest.fixture
def notebook(lab: Lab, browser: Any, request: pytest.FixtureRequest) -> Iterator[NotebookPage]:
    """Give a page; a test opens its own notebook in it."""
    context = browser.new_context(viewport={"width": 1300, "height": 1100})
    page = context.new_page()
    page.set_default_timeout(SECONDS * 1000)
    yield NotebookPage(lab, page, request.node.name.partition("[")[0])
    context.close()
    for session in lab.call("api/sessions"):
        lab.call(f"api/sessions/{session['id']}", "DELETE")
