"""Make a readable script of a function that lives in a notebook.

Called by ``api`` for ``launch(train, lr=0.1)``. Stdlib only; no notebook object is pickled, and no
user code is run. The way of a cell's text through the modules:

    functions   the live function: its name, and the cells that ran
    cells       each cell parsed, magics or not           statements  cut into top-level statements
    names       what a statement binds and reads          bindings    Python's scoping rules
    values      plain values and live objects             changes     objects changed in place
    history     who binds a name at which point           selection   what the function needs
    needs       one needed name, and how it is refused    calls       arguments against the `def`
    literals    values as source                          layout      order and empty lines
    script      the whole: ``script_from_cells``
"""

from ddpnb.capture.functions import cells_of, name_of
from ddpnb.capture.script import HEADER_PREFIX, script_from_cells

__all__ = ["HEADER_PREFIX", "cells_of", "name_of", "script_from_cells"]
