"""Build the documentation site: English in build/site, Chinese in build/site/zh. Offline, once
Zensical is installed.

    make site                                 installs Zensical into build/site-env and builds
    python tools/make_site.py [--stage]       builds; with --stage only writes what Zensical reads

docs/ stays as it is on a forge; here it gets a navigation (tools/site/navigation.toml), a page for
each script of the cookbook, the Python API from the docstrings, and a search that finds Chinese
words. Links to files that are no pages of the site become plain text.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import re
import shutil
import subprocess
import sys
import tomllib
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import site_api

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PARTS = ROOT / "tools" / "site"
STAGED = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
ZENSICAL = ROOT / "build" / "site-env" / "bin" / "zensical"
LANGUAGES = ("en", "zh")
NO_PAGES = ("README.md",)  # lists of pages for readers on a forge: here the navigation is that list
DESCRIPTIONS = {
    "en": "Search your documents from Python: keyword, vector and hybrid search in Chinese and English, answers "
    "with citations, offline on a laptop or on Milvus, OpenSearch and Chroma.",
    "zh": "用 Python 检索自己的文档：中英文关键词检索、向量检索与混合检索，带引用的回答；可在笔记本电脑上离线运行，"
    "也可使用 Milvus、OpenSearch 和 Chroma。",
}

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_BROKEN = re.compile(
    r"^(?!#|\||```)(.*[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])\n(?=[\u4e00-\u9fff])", re.MULTILINE
)
"""A line of Chinese that goes on in the next one: a browser would show a space there."""


class Entry(NamedTuple):
    """A page in the navigation: its path below docs/, the section and group, and which languages
    have it.
    """

    path: str
    section: int
    group: int | None
    languages: tuple[str, ...]


@functools.cache
def settings() -> dict[str, Any]:
    """The navigation: its sections, and keywords for the search."""
    return tomllib.loads((PARTS / "navigation.toml").read_text(encoding="utf-8"))


def pages_of_docs() -> dict[str, set[str]]:
    """The pages of docs/ by path, with the languages that each is written in."""
    found: dict[str, set[str]] = {}
    for page in DOCS.rglob("*.md"):
        path = page.relative_to(DOCS).as_posix()
        language, path = (
            ("zh", path.removeprefix("zh/")) if path.startswith("zh/") else ("en", path)
        )
        found.setdefault(path, set()).add(language)
    return {path: found[path] for path in sorted(found) if path not in (*NO_PAGES, "index.md")}


def entries(paths: list[str]) -> list[Entry]:
    """Where each page stands in the navigation, in order. A page that no pattern names is not among
    them.
    """
    left = list(paths)
    places = [
        (pattern, number, index, part)
        for number, section in enumerate(settings()["section"])
        for index, part in ((None, section), *enumerate(section.get("group", ())))
        for pattern in part["pages"]
    ]
    named = {pattern for pattern, *_ in places if "*" not in pattern}
    found = []
    for pattern, number, index, part in places:
        for path in fnmatch.filter(left, pattern):
            if path == pattern or (path not in named and path.count("/") == pattern.count("/")):
                languages: tuple[str, ...] = ("en",) if part.get("english") else LANGUAGES
                found.append(
                    Entry(
                        path,
                        number,
                        index,
                        ("zh",) if path in part.get("chinese", ()) else languages,
                    )
                )
                left.remove(path)
    return found


def cookbook() -> dict[str, str]:
    """A page for each script of the cookbook, and for the notebook: its docstring as prose, then
    its code.
    """
    pages = {}
    for path in sorted((ROOT / "cookbook").glob("[0-9]*.py")):
        text = path.read_text(encoding="utf-8")
        docstring, code = re.match(r'"""(.*?)"""\n+(.*)', text, re.DOTALL).groups()  # type: ignore[union-attr]
        title = f"{path.stem[:2]} · {re.split('[:,.]', docstring)[0]}"
        command = f"```sh\npython cookbook/{path.name}\n```"
        pages[f"cookbook/{path.stem}.md"] = (
            f"# {title}\n\n{site_api.markdown(docstring)}\n\n{command}\n\n```python\n{code}```\n"
        )
    notebook = json.loads((ROOT / "cookbook" / "quickstart.ipynb").read_text(encoding="utf-8"))
    cells = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell in notebook["cells"]
        for text in ["".join(cell["source"])]
    ]
    pages["cookbook/quickstart.md"] = "\n\n".join(cells) + "\n"
    return pages


def sources() -> dict[str, dict[str, str]]:
    """The Markdown of every page of the site, by language and path, with links that lead to pages
    of the site.
    """
    written = {"index.md": set(LANGUAGES), **pages_of_docs()}
    made = {
        **cookbook(),
        **site_api.pages(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    texts: dict[str, dict[str, str]] = {language: {} for language in LANGUAGES}
    for path, languages in written.items():
        for language in languages:
            file = DOCS / path if language == "en" else DOCS / "zh" / path
            texts[language][path] = file.read_text(encoding="utf-8")
    texts["en"] |= made
    for language in LANGUAGES:
        texts[language]["api.md"] = with_api_links(texts[language]["api.md"], language, made)
    where = {"changelog.md": ROOT / "CHANGELOG.md"}
    for language, pages in texts.items():
        for path, text in pages.items():
            base = where.get(path) or (DOCS / path if language == "en" else DOCS / "zh" / path)
            page = linked(
                buttons(text) if path == "index.md" else text, base, language, path, texts
            )
            pages[path] = _BROKEN.sub(r"\1", page)
    return texts


def with_api_links(text: str, language: str, made: dict[str, str]) -> str:
    """The list of public names, each with a link to its section on the page of its module."""
    module = ""
    lines = []
    for line in text.split("\n"):
        if line.startswith("## "):
            module = line.removeprefix("## ")
        row = re.match(r"\| `(\w+)` \|", line)
        if row and f"\n## {row[1]}\n" in made[f"api/{module}.md"]:
            page = f"api/{module}.md" if language == "en" else f"../api/{module}.html"
            link = f"[`{row[1]}`]({page}#{row[1].lower()})"
            lines.append(line.replace(f"`{row[1]}`", link, 1))
        else:
            lines.append(line)
    return "\n".join(lines)


def buttons(text: str) -> str:
    """The landing page, with the line of links as buttons and the picture as wide as the page."""
    found = re.search(r"^\[.+\]\(\S+\)( · \[.+\]\(\S+\))+$", text, re.MULTILINE)
    links = [f"{one}{{ .md-button }}" for one in found[0].split(" · ")]  # type: ignore[index]
    links[0] = links[0].replace(".md-button", ".md-button .md-button--primary")
    text = text.replace(found[0], "\n".join(links))  # type: ignore[index]
    text = re.sub(r"^(!\[.+\]\(\S+\))$", r"\1{ .film }", text, flags=re.MULTILINE)
    return f"---\nhide: [navigation]\n---\n\n{text}"


def linked(
    text: str, base: Path, language: str, page: str, texts: dict[str, dict[str, str]]
) -> str:
    """A page whose links lead to pages of the site; other links to files become their text."""

    def replaced(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        found = address(
            (base.parent / path).resolve(), language, page, texts, is_picture=bool(mark)
        )
        if found is None:
            return label
        is_list = path.endswith("README.md") and (base.parent / path).resolve().parent in (
            DOCS,
            DOCS / "zh",
        )
        return f"{mark}[{label}]({found}{'#' + anchor if anchor and not is_list else ''})"

    pieces, at = [], 0
    for block in _FENCED.finditer(text):
        pieces += [_LINK.sub(replaced, text[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*pieces, _LINK.sub(replaced, text[at:])])


def address(
    file: Path,
    language: str,
    page: str,
    texts: dict[str, dict[str, str]],
    *,
    is_picture: bool = False,
) -> str | None:
    """Where a link of a page to a file leads on the site; None if the file is not there."""
    if not file.is_relative_to(ROOT):
        return None
    name = file.relative_to(ROOT).as_posix()
    up = "../" * page.count("/")
    if is_picture:
        return f"{up}{name.removeprefix('docs/')}"
    other = "en"
    if name.startswith("docs/zh/"):
        other, name = "zh", name.removeprefix("docs/zh/")
    elif name.startswith("docs/"):
        name = name.removeprefix("docs/")
    elif name in ("README.md", "README.zh.md"):
        other, name = ("zh" if ".zh" in name else "en"), "index.md"
    elif name == "CHANGELOG.md":
        name = "changelog.md"
    elif name.startswith("cookbook/"):
        name = re.sub(r"(\.zh)?\.(py|ipynb)$", ".md", name)
    else:
        return None
    name = {
        "README.md": "index.md",
        "internals": "internals/ledger.md",
        "decisions": "decisions/README.md",
    }.get(name, name)
    if name not in texts[other]:
        return None
    if other == language:
        return up + name
    return f"{up}{'../' if language == 'zh' else 'zh/'}{html_of(name)}"


def title_of(text: str) -> str:
    """The title of a page: its first heading."""
    return re.sub(r"[`*]", "", re.search(r"^# +(.+?)\s*$", text, re.MULTILINE)[1])  # type: ignore[index]


def menu(language: str, texts: dict[str, dict[str, str]]) -> list[Any]:
    """The navigation as Zensical reads it."""
    places = entries(sorted({*texts["en"], *texts["zh"]} - {"index.md"}))
    found: list[Any] = [{{"en": "Home", "zh": "首页"}[language]: "index.md"}]
    for number, section in enumerate(settings()["section"]):
        items: list[Any] = []
        for index, part in ((None, section), *enumerate(section.get("group", ()))):
            here = [entry for entry in places if (entry.section, entry.group) == (number, index)]
            inside = links(here, language, texts)
            items += inside if index is None or not inside else [{part[language]: inside}]
        found.append({section[language]: items})
    return found


def links(
    places: list[Entry], language: str, texts: dict[str, dict[str, str]]
) -> list[dict[str, str]]:
    """Pages as titles and addresses. The Chinese site leads to a page in English alone, of a folder
    to the first.
    """
    found = []
    for entry in places:
        if entry.path in texts[language]:
            found.append({title_of(texts[language][entry.path]): entry.path})
        elif entry.languages == ("en",) and not ("/" in entry.path and found):
            found.append(
                {f"{title_of(texts['en'][entry.path])}（英文）": f"../{html_of(entry.path)}"}
            )
    return found


def html_of(path: str) -> str:
    """The address of a page below its site."""
    return re.sub(r"README\.md$", "index.md", path).removesuffix(".md") + ".html"


def toml(value: Any) -> str:
    """A value as TOML, in one line."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{json.dumps(key, ensure_ascii=False)} = {toml(one)}" for key, one in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def configuration(language: str, texts: dict[str, dict[str, str]]) -> str:
    """What Zensical reads."""
    both = sorted(path[:-3] + ".html" for path in texts["en"].keys() & texts["zh"].keys())
    here = {"en": ("", "zh/"), "zh": ("../", "")}[language]
    palette = [
        {"media": "(prefers-color-scheme)", "toggle": {"icon": "lucide/sun-moon", "name": ("Light", "浅色")}},
        {"media": "(prefers-color-scheme: light)", "scheme": "default",
         "toggle": {"icon": "lucide/sun", "name": ("Dark", "深色")}},
        {"media": "(prefers-color-scheme: dark)", "scheme": "slate",
         "toggle": {"icon": "lucide/moon", "name": ("As the system", "跟随系统")}},
    ]  # fmt: skip
    for one in palette:
        one["toggle"]["name"] = one["toggle"]["name"][LANGUAGES.index(language)]  # type: ignore[index]
    features = [
        "content.code.copy",
        "navigation.footer",
        "navigation.tabs",
        "navigation.path",
        "navigation.top",
    ]
    return "\n".join(
        [
            "[project]",
            'site_name = "lazyrag"',
            f"site_description = {toml(DESCRIPTIONS[language])}",
            f'docs_dir = "site-source/{language}"',
            f"site_dir = {toml({'en': 'site', 'zh': 'site/zh'}[language])}",
            "use_directory_urls = false",
            f"nav = {toml(menu(language, texts))}",
            'extra_css = ["assets/site.css"]',
            "[project.theme]",
            f"language = {toml(language)}",
            "font = false",
            f"custom_dir = {toml(str(PARTS / 'overrides'))}",
            f"features = {toml(features)}",
            f"palette = {toml(palette)}",
            'icon.logo = "lucide/list-tree"',
            "[project.extra]",
            "generator = false",
            f"both = {toml(both)}",
            f"roots = {toml(dict(zip(LANGUAGES, here, strict=True)))}",
            "[project.markdown_extensions]",
            *(f"{name} = {{}}" for name in ("admonition", "attr_list", "md_in_html", "tables")),
            "toc.permalink = true",
            'toc.slugify = {object = "pymdownx.slugs.slugify", kwds = {case = "lower"}}',
            "toc.permalink_title = "
            + toml({"en": "Link to this section", "zh": "本节链接"}[language]),
            "pymdownx.highlight = {}",
            "pymdownx.superfences = {}",
            "",
        ]
    )


def configuration_file(language: str) -> Path:
    """Where the configuration lies: above all that Zensical reads and writes, as it demands."""
    return STAGED.parent / f"site-{language}.toml"


def stage() -> dict[str, dict[str, str]]:
    """Write what Zensical reads."""
    texts = sources()
    shutil.rmtree(STAGED, ignore_errors=True)
    for language in LANGUAGES:
        for path, text in texts[language].items():
            file = STAGED / language / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for file in (*DOCS.glob("*.svg"), *(DOCS / "images").rglob("*.*")):
            copy = STAGED / language / file.relative_to(DOCS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
        (STAGED / language / "assets").mkdir()
        for name in ("site.css", "search.js"):
            shutil.copy(PARTS / name, STAGED / language / "assets")
        configuration_file(language).write_text(configuration(language, texts), encoding="utf-8")
    return texts


def plain(html: str) -> str:
    """The text of a piece of HTML, in one line."""
    text = re.sub(r"</(?:td|th|li|p|h\d|tr)>", " ", html)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())


def search_index(folder: Path, language: str) -> None:
    """Write what the search of the page reads: address, title of the page, title of the section,
    text, keywords.
    """
    items = json.loads((folder / "search.json").read_text(encoding="utf-8"))["items"]
    titles = {
        item["location"]: plain(item["title"]) for item in items if "#" not in item["location"]
    }
    words = {f"{path[:-3]}.html": text for path, text in settings()["keywords"][language].items()}
    rows = []
    for item in items:
        page = item["location"].partition("#")[0]
        if page != "404.html":
            title = plain(item["title"])
            row = [item["location"], titles.get(page, title), title, plain(item["text"])]
            rows.append([*row, words[page]] if item["location"] in words else row)
    (folder / "search.json").unlink()
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    (folder / "assets" / "search-index.js").write_text(
        f"globalThis.siteIndex={text};\n", encoding="utf-8"
    )


def for_models(texts: dict[str, dict[str, str]]) -> None:
    """Write llms.txt, the list of pages, and llms-full.txt, all English pages one after the
    other.
    """
    lines = ["# lazyrag", "", f"> {DESCRIPTIONS['en']}", ""]
    full = []
    places = entries(sorted(set(texts["en"]) - {"index.md"}))
    for number, section in enumerate(settings()["section"]):
        lines += [f"## {section['en']}", ""]
        for entry in places:
            if entry.section == number:
                text = texts["en"][entry.path]
                html = html_of(entry.path)
                lines.append(f"- [{title_of(text)}]({html}): {first_sentence(text)}")
                full.append(f"<!-- {html} -->\n\n{text.strip()}\n")
        lines.append("")
    lines += ["## Optional", "", "- [中文](zh/index.html): all user pages in Chinese.", ""]
    (SITE / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    (SITE / "llms-full.txt").write_text("\n".join(full), encoding="utf-8")


def first_sentence(text: str) -> str:
    """The first sentence of a page's prose, without links."""
    prose = re.sub(r"<!--.*?-->", "", _FENCED.sub("", text), flags=re.DOTALL)
    paragraphs = [
        one for one in prose.split("\n\n")[1:] if one.strip() and not re.match(r"\s*[#|!<-]", one)
    ]
    whole = " ".join(_LINK.sub(r"\2", paragraphs[0]).split()) if paragraphs else title_of(text)
    return re.split(r"(?<=[.!?。])\s", whole)[0]


class Links(HTMLParser):
    """What a page of the site refers to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect ids, links, and what a browser loads by itself."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("next", "prev") and "href" in found:
            self.loaded.append(found["href"])
        self.loaded += [found[name] for name in ("src", "poster", "data-index") if name in found]


def problems(folder: Path = SITE) -> list[str]:
    """Links that lead nowhere, and what a browser would load from elsewhere."""
    pages = {
        page: Links(page) for page in sorted(folder.rglob("*.html")) if page.name != "404.html"
    }
    found = []
    for page, parts in pages.items():
        name = page.relative_to(folder).as_posix()
        for target in (*parts.links, *parts.loaded):
            path, _, anchor = unquote(target).partition("#")
            if re.match(r"(https?:)?//", path):
                found += [f"{name} loads {target}"] if target in parts.loaded else []
            elif not re.match(r"[a-z]+:", path):
                file = (page.parent / path).resolve() if path else page
                if not file.is_file():
                    found.append(f"{name} links to {target}")
                elif anchor and file in pages and anchor not in pages[file].anchors:
                    found.append(f"{name} links to {target}: no such section")
    for sheet in folder.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        found += [
            f"{sheet.name} loads {one}"
            for one in re.findall(r"url\([\"']?(?:https?:)?//[^)]+", text)
        ]
    return sorted(set(found))


def build() -> None:
    """Build both languages."""
    texts = stage()
    shutil.rmtree(SITE, ignore_errors=True)
    for language in LANGUAGES:
        command = [str(ZENSICAL), "build", "--clean", "-f", str(configuration_file(language))]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        folder = SITE if language == "en" else SITE / "zh"
        search_index(folder, language)
        (folder / "sitemap.xml").unlink(missing_ok=True)  # it needs the address of the site
    for_models(texts)
    if found := problems():
        sys.exit("\n".join(found))
    count = len([*SITE.rglob("*.html")])
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file())
    print(
        f"{SITE.relative_to(ROOT)}: {count} pages, {size / 1e6:.1f} MB. Open {SITE / 'index.html'}"
    )


def main() -> None:
    """Build, or only stage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stage", action="store_true", help="write build/site-source and stop")
    if parser.parse_args().stage:
        stage()
    else:
        build()


if __name__ == "__main__":
    main()
