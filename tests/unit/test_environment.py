"""pyproject.toml says what ddpnb needs; environment.yml and constraints.txt repeat it."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

CONDA_NAMES = {"torch": "pytorch"}  # every other name is the same

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEPENDENCIES = [Requirement(line) for line in PYPROJECT["project"]["dependencies"]]
BUILD = PYPROJECT["build-system"]["requires"]
TEST = PYPROJECT["project"]["optional-dependencies"]["test"]
ALL = DEPENDENCIES + [Requirement(line) for line in BUILD + TEST]


def pins() -> dict[str, str]:
    """Return the version that constraints.txt gives each package."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if line.count("==") != 1] == []
    return {canonicalize_name(name): version for name, version in (x.split("==") for x in lines)}


def test_conda_environment_has_the_same_names_and_bounds():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    listed = [Requirement(line) for line in re.findall(r"^  - ([^:\s]+)$", text, re.MULTILINE)]
    conda = {need.name: str(need.specifier) for need in listed}

    expected = {CONDA_NAMES.get(n.name, n.name): str(n.specifier) for n in DEPENDENCIES}
    expected["python"] = PYPROJECT["project"]["requires-python"]
    del conda["conda-forge"], conda["pip"]  # the channel, and what installs ddpnb itself

    assert conda == expected


@pytest.mark.parametrize("need", ALL, ids=lambda need: need.name)
def test_constraints_pin_a_version_within_the_bounds(need: Requirement):
    assert need.specifier.contains(pins()[canonicalize_name(need.name)])
