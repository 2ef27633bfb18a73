"""What lessons are made of: predictions, checks, myth cards, and a device that is there.

Imported by the notebooks. Standard library and ddpnb only: the objects draw themselves by
`_repr_html_`, and print as plain text where nothing draws.
"""

from ddpnb.exercises.checks import Verdict, check, exercise
from ddpnb.exercises.devices import device_for
from ddpnb.exercises.myths import myth
from ddpnb.exercises.predictions import compare, predict
from ddpnb.exercises.processes import process_tree
from ddpnb.exercises.timelines import launch_timeline

__all__ = [
    "Verdict",
    "check",
    "compare",
    "device_for",
    "exercise",
    "launch_timeline",
    "myth",
    "predict",
    "process_tree",
]
