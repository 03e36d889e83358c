"""The description of the package is the README without links that only a checkout has.

Everything else is in setup.cfg. With a `url` there, links lead to that repository at the tag of the
release; without one they become their text, so that a package index shows none that is broken.
"""

import re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parent
_RELATIVE_LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?![a-z]+:|#)([^()\s]+)\)")


def description(text: str, repository: str, version: str) -> str:
    """Return a README for a package index."""

    def replace(match: re.Match[str]) -> str:
        mark, label, path = match.groups()
        if not repository:
            return "" if mark else label
        kind = "raw" if mark else "blob"
        return f"{mark}[{label}]({repository}/{kind}/v{version}/{path})"

    return _RELATIVE_LINK.sub(replace, text)


if __name__ == "__main__":
    from setuptools import setup  # the tests of `description` run without it

    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    repository = settings.get("metadata", "url", fallback="").rstrip("/")
    source = (ROOT / "lazyrag" / "_version.py").read_text(encoding="utf-8")
    version = re.search(r'__version__ = "([^"]+)"', source)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(long_description=description(readme, repository, version[1] if version else ""))
