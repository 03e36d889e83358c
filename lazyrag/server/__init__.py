"""The service: Documents over HTTP. Needs the extra ``server``; nothing else of the package imports
it.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from lazyrag.errors import missing_package


def load(module: str, feature: str) -> Any:
    """Import a module of this package.

    Args:
        module: Its name in the package.
        feature: What needs it, for the error message.

    Raises:
        MissingDependencyError: If a package of the extra ``server``, or ``mcp``, is not installed.
    """
    # Some are imported later, in other processes.
    for package in ("fastapi", "httptools", "jinja2", "multipart", "pydantic", "uvicorn", "mcp"):
        if find_spec(package) is None and (package != "mcp" or module == "mcp"):
            raise missing_package(feature, package, "mcp" if module == "mcp" else "server")
    return importlib.import_module(f"lazyrag.server.{module}")
