"""What others may do who are not root, for tests of rights."""

from __future__ import annotations

import os
from contextlib import contextmanager


@contextmanager
def without_privileges():
    """Root may look and write everywhere; in this block it is nobody."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
