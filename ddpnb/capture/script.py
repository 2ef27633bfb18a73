"""Write a notebook's function, and all that it needs, as a script that plain Python runs.

Called by ``api`` for ``launch(train, lr=0.1)``. Pure: from the cells' text to the script's text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from ddpnb.capture.calls import call_text, check_arguments
from ddpnb.capture.cells import parse
from ddpnb.capture.history import History
from ddpnb.capture.layout import Layout, header
from ddpnb.capture.selection import Selection, select
from ddpnb.capture.values import called_path
from ddpnb.errors import CaptureError

__all__ = ["script_from_cells"]
