"""Public names of a package, imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], *, packages: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The functions `__getattr__` and `__dir__`, and the list `__all__`, of a package with lazy
    names.

    Args:
        package: Dotted name of the package.
        homes: Dotted names of modules, each with the names that it defines, separated by blanks.
        packages: Subpackages that are attributes too, separated by blanks.
    """
    modules = {name: home for home, names in homes.items() for name in names.split()}
    public = sorted(modules, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    subpackages = packages.split()

    def get(name: str) -> Any:
        if name in subpackages:
            return importlib.import_module(f"{package}.{name}")
        if name not in modules:
            import difflib

            for subpackage in [] if name.startswith("_") else subpackages:
                home = f"{package}.{subpackage}"
                if name in getattr(importlib.import_module(home), "__all__", ()):
                    msg = f"{name!r} is not in {package!r}. Write: from {home} import {name}"
                    raise AttributeError(msg)
            by_folded = {public_name.casefold(): public_name for public_name in public}
            near = difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.5)
            hint = f"See dir({package})."
            if near:
                hint = f"Did you mean {' or '.join(map(by_folded.__getitem__, near))}?"
            raise AttributeError(f"module {package!r} has no attribute {name!r}. {hint}")
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(importlib.import_module(package), name, value)
        return value

    def names() -> list[str]:
        return sorted([*public, *subpackages])

    return get, names, public
