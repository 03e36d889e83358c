"""Draw docs/session.svg: a terminal session over the sample files, with marked words and a cited
answer.

    python tools/make_picture.py

The commands run for real, in a terminal of their own. The chat model is that of
cookbook/15_cited_answer.py; here it quotes one sentence of its sources.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "session.svg"
sys.path[:0] = [str(ROOT), str(ROOT / "cookbook")]

import quoting_model  # noqa: E402

from lazyrag.cli.terminal import cells  # noqa: E402

COLUMNS = 80
COMMANDS = (
    ("index",),
    ("search", "mixing petrol and oil", "-k", "1"),
    ("search", "被毒蛇咬伤以后多久能送到医院？", "-k", "1"),
    ("ask", "How often is the chimney of the dryer swept?"),
)
WIDTH, HEIGHT, LEFT, TOP = 8.4, 21, 20, 58
COLOURS = {"": "#c9d1d9", "1": "#ffffff", "2": "#8b949e", "33": "#f2cc60", "1;33": "#f2cc60"}
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', monospace"
_CODE = re.compile(r"\033\[([\d;]*)m")


def run(arguments: tuple[str, ...], folder: Path, url: str) -> list[str]:
    """Run a command on a terminal with colours; return the lines that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "TERM": "xterm",
        "COLUMNS": str(COLUMNS),
    }
    environment |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "LAZYRAG_MODEL": "quoting"}
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lazyrag", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=theirs, stdin=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                printed += os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"lazyrag {' '.join(arguments)} ended with {process.returncode}")
    lines, style = [], ""
    # a word that is cut keeps its style on the next line
    for line in printed.decode("utf-8").splitlines():
        lines.append(style + line)
        style = next(
            (match[0] for match in reversed([*_CODE.finditer(style + line)]) if match[1]), ""
        )
        style = "" if style == "\033[0m" else style
    return lines


def shown(arguments: tuple[str, ...]) -> str:
    """A command as a person types it."""
    return " ".join(["lazyrag", *(f'"{one}"' if " " in one else one for one in arguments)])


def drawn(line: str, top: float) -> str:
    """A line with colours, as SVG: each run of equal colour begins at its own column."""
    found, column = [], 0
    style = ""
    for number, piece in enumerate(_CODE.split(line)):
        if number % 2:
            style = "" if piece in ("", "0") else piece
        elif piece:
            found += spans(piece, column, style, top)
            column += cells(piece)
    return "".join(found)


def spans(text: str, column: int, style: str, top: float) -> list[str]:
    """A text in one colour: wide characters and others apart, each stretched to the columns that it
    takes.
    """
    found = []
    weight = ' font-weight="bold"' if style.startswith("1") else ""
    for match in re.finditer(r"[^\u1100-\uffff]+|[\u1100-\uffff]+", text):
        size = cells(match[0])
        if match[0].strip():
            blank = len(match[0]) - len(match[0].lstrip(" "))
            kept = match[0].strip(" ")
            left, wide = LEFT + (column + blank) * WIDTH, cells(kept) * WIDTH
            # two columns, not one and two thirds
            larger = ' font-size="15.8"' if wide > len(kept) * WIDTH else ""
            found.append(
                f'<text x="{left:.1f}" y="{top:g}" textLength="{wide:.1f}" fill="{COLOURS[style]}"{weight}{larger}>'
                f"{escape(kept, quote=False)}</text>\n"
            )
        column += size
    return found


def picture(lines: list[str]) -> str:
    """The lines in a window of a terminal."""
    width, height = 2 * LEFT + COLUMNS * WIDTH, TOP + HEIGHT * len(lines)
    box = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" xml:space="preserve"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="{FONTS}" font-size="14">\n',
        "<title>lazyrag index, search and ask in a terminal, in English and Chinese</title>\n",
        f'<rect width="{width:g}" height="{height:g}" rx="10" fill="#0d1117"/>\n',
        *(
            f'<circle cx="{24 + 20 * number}" cy="20" r="6" fill="{colour}"/>\n'
            for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
    ]
    return "".join(
        [
            *head,
            *(drawn(line, TOP + HEIGHT * number) for number, line in enumerate(lines)),
            "</svg>\n",
        ]
    )


def main() -> None:
    """Run the commands in a copy of the sample files, and draw what they print."""
    lines: list[str] = []
    quoting_model.SENTENCES = 1
    with tempfile.TemporaryDirectory() as folder, quoting_model.served() as url:
        corpus = Path(shutil.copytree(ROOT / "cookbook" / "corpus", Path(folder) / "tea"))
        for arguments in COMMANDS:
            lines += [
                f"\033[2m$\033[0m \033[1m{shown(arguments)}\033[0m",
                *run(arguments, corpus, url),
                "",
            ]
    PICTURE.write_text(picture(lines[:-1]), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(lines) - 1} lines, {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
