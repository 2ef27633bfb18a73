"""The doors are light, and open on exactly the names that users were promised."""

import json
import subprocess
import sys

import pytest

import ddpnb
from tests.conftest import ROOT

PUBLIC_NAMES = """
    Cold DdpnbError Job JobState LaunchSpec Python RunResult Spawn Torchrun Warm WorkerFailedError
    attach doctor dryrun launch load_ipython_extension runs
""".split()

HEAVY = {"torch", "numpy", "IPython", "ipywidgets", "anywidget", "matplotlib", "rich", "click"}


@pytest.mark.parametrize("door", ["ddpnb", "ddpnb.worker", "ddpnb.worker.bootstrap"])
def test_import_loads_nothing_heavy(door: str):
    code = f"import json, sys, {door}; print(json.dumps(sorted(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert HEAVY & set(json.loads(done.stdout)) == set()


def test_public_names_are_exactly_those_promised():
    assert list(ddpnb.__all__) == sorted(PUBLIC_NAMES)


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_is_there_and_says_what_it_is(name: str):
    assert getattr(ddpnb, name).__doc__


def test_dir_lists_the_public_names():
    assert set(PUBLIC_NAMES) <= set(dir(ddpnb))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ddpnb.no_such_name
