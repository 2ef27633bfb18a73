"""What a spec refuses, and that it survives JSON."""

from pathlib import Path

import pytest

from ddpnb.errors import SpecError
from ddpnb.spec import LaunchSpec


def spec(**changes):
    return LaunchSpec(**({"name": "train", "script": Path("/a b/train.py")} | changes))


def test_spec_survives_json():
    original = spec(
        args=("--lr", "0.1", "ü"), nproc_per_node=4, env={"A": "b"}, timeout=3.5, gpus=("0",)
    )

    assert LaunchSpec.from_json(original.to_json()) == original


def test_spec_from_json_passes_over_fields_of_a_newer_version():
    assert LaunchSpec.from_json(spec().to_json() | {"colour": "red"}) == spec()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nproc_per_node": 0}, "nproc_per_node is 0"),
        ({"nproc_per_node": True}, "nproc_per_node is True"),
        ({"nproc_per_node": 1.5}, "nproc_per_node is 1.5"),
        ({"threads": 0}, "threads is 0"),
        ({"grace": -1}, "grace is -1"),
        ({"grace": float("nan")}, "grace is nan"),
        ({"timeout": "60"}, "timeout is '60'"),
        ({"args": ("a\0b",)}, "NUL"),
        ({"env": {"A=B": "c"}}, "A=B"),
        ({"env": {"A": 1}}, "must be strings"),
        ({"module": "pkg.train"}, "either a script or a module"),
        ({"script": None}, "either a script or a module"),
        ({"script": None, "module": "pkg/train.py"}, "no dotted name"),
    ],
)
def test_spec_refuses_and_names_the_field(changes, message):
    with pytest.raises(SpecError, match=message):
        spec(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nproc_per_node": 100_000}, "nproc_per_node is 100000, which is more than"),
        ({"nnodes": 2}, "one machine"),
    ],
)
def test_a_spec_too_wide_for_this_machine_can_be_read_but_not_launched(changes, message):
    wide = LaunchSpec.from_json(spec(**changes).to_json())

    with pytest.raises(SpecError, match=message):
        wide.check_machine()
