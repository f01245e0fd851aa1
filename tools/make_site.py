"""Builds the documentation as a site of HTML pages, in build/site, from the pages of the repository as they are.

    python -m tools.make_site            builds it, and fails where a link or an anchor leads nowhere
    python -m tools.make_site FOLDER     the same into another folder

Covers: which pages there are, in which section and order; the build by Zensical; what a page loads. Does not cover: the
pages; docs/README.md, which gives the order. Always holds: a page that is in no section is refused; no page loads
anything from another host. See also: tests/docs/test_site.py.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INDEX = "docs/README.md"
#: Pages beside the folder docs that the site has, too.
OUTSIDE = ("README.md", "ARCHITECTURE.md", "STYLE.md", "CHANGELOG.md", "tests/README.md")
#: Folder whose pages are reached from their list alone: the menu of each page would be five times as long.
UNLISTED = "docs/errors/"
#: The list.
ERRORS = "docs/errors/README.md"
#: Pages of readers who do not look for them among the others.
SKIPPED = ("docs/design/0000-template.md",)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)\s]*\)")
_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
#: Words behind the language of a block of code, which tests read.
_FENCE_WORDS = re.compile(r"^(\s*```\w+)\s.*$")
#: Elements that a browser loads by itself; links that a reader follows are not among them.
_LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*>", re.IGNORECASE)
#: Diagrams, for which the site's script would load a library from another host.
_DRAWN = re.compile(r"<pre class=[\"']?mermaid\b[^>]*>")
_REMOTE = re.compile(r"\b(?:src|srcset|href)=[\"']?(?:https?:)?//", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the menu: for one reader, or for one way of reading."""

    title: str
    #: Folders with a slash behind, whose pages belong to it, and single pages; a single page counts first.
    holds: tuple[str, ...]


#: A new page of one of these folders needs no line here. A page directly below docs is for those who begin.
SECTIONS = (
    Section(title="Getting started", holds=(INDEX, "docs/")),
    Section(title="Tutorials", holds=("docs/tutorials/",)),
    Section(title="How-to", holds=("docs/howto/",)),
    Section(title="Migrate", holds=("docs/migrate/",)),
    Section(title="Operate", holds=("docs/operate/",)),
    Section(title="Reference", holds=("docs/reference/", ERRORS, "docs/not-supported.md", "docs/glossary.md")),
    Section(
        title="Explanation",
        holds=("ARCHITECTURE.md", "docs/journey.md", "docs/policies/", "docs/design/"),
    ),
    Section(title="Develop", holds=("docs/extend.md", "STYLE.md", "tests/README.md", "CHANGELOG.md")),
)


def main(arguments: Sequence[str]) -> int:
    """Build the site; returns the exit code."""
    folder = Path(arguments[0]) if arguments else ROOT / "build" / "site"
    faults = build(folder)
    print("\n".join(faults) or f"built: {folder / 'html' / 'index.html'}")
    return 1 if faults else 0


def build(folder: Path) -> list[str]:
    """Build the site below the folder, into `html`, and return what is wrong with it."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    for name in pages_of_site():
        _copy(name, pages)
    config = folder / "mkdocs.yml"
    # JSON is YAML.
    config.write_text(json.dumps(_config(), indent=1))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(config)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    faults = [] if done.returncode == 0 else _warnings(done.stdout + done.stderr)
    return faults + [
        f"{path.relative_to(folder)} loads {what}"
        for path in sorted((folder / "html").rglob("*.html"))
        for what in loaded_from_elsewhere(path.read_text())
    ]


def pages_of_site() -> list[str]:
    """Return all pages by their path below the project."""
    below = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return [*OUTSIDE, *(name for name in below if name not in SKIPPED)]


def menu(names: Sequence[str], index: str) -> list[tuple[str, list[str]]]:
    """Return the sections with their pages: in the order of the tables of the index, others behind by name.

    `index`: the text of the index. Raises ValueError for a page that belongs to no section.
    """
    rows = [line for line in index.splitlines() if line.startswith("|")]
    listed = list(dict.fromkeys(_resolved(INDEX, link) for line in rows for link in _LINK.findall(line)))
    order = {name: at for at, name in enumerate([INDEX, *listed])}
    found: dict[str, list[str]] = {section.title: [] for section in SECTIONS}
    for name in sorted(names, key=lambda each: (order.get(each, len(order)), each)):
        if name == ERRORS or (name != "README.md" and not name.startswith(UNLISTED)):
            found[_section_of(name)].append(name)
    return [(title, members) for title, members in found.items() if members]


def loaded_from_elsewhere(html: str) -> list[str]:
    """Return the elements by which a page would load something from another host."""
    remote = [element for element in _LOADED.findall(html) if _REMOTE.search(element) and "canonical" not in element]
    return remote + _DRAWN.findall(html)


def _section_of(name: str) -> str:
    for section in SECTIONS:
        if name in section.holds:
            return section.title
    folder = f"{name.rpartition('/')[0]}/"
    for section in SECTIONS:
        if folder in section.holds:
            return section.title
    raise ValueError(f"{name} is in no section of the site: see SECTIONS in tools/make_site.py")


def _config() -> dict[str, object]:
    sections = menu(pages_of_site(), (ROOT / INDEX).read_text())
    return {
        "site_name": "Tilth",
        "site_description": "Self-maintaining real-time tables for Spark",
        "docs_dir": "pages",
        "site_dir": "html",
        # Pages open from a folder, too, without a server.
        "use_directory_urls": False,
        "nav": [{"Tilth": "README.md"}, *({title: members} for title, members in sections)],
        "theme": {
            "name": "material",
            # The fonts of the reader's system: none is loaded from another host.
            "font": False,
            "features": ["navigation.tabs", "navigation.top", "content.code.copy", "search.highlight", "toc.follow"],
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "toggle": {"icon": "lucide/sun", "name": "dark"},
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "toggle": {"icon": "lucide/moon", "name": "light"},
                },
            ],
        },
        "plugins": ["search"],
        "markdown_extensions": [
            "tables",
            "sane_lists",
            {"toc": {"permalink": True}},
            {"pymdownx.highlight": {"anchor_linenums": False}},
            "pymdownx.superfences",
        ],
    }


def _copy(name: str, pages: Path) -> None:
    """Copy a page, and files of the project that it links and that are no pages."""
    text = (ROOT / name).read_text()
    links = [_resolved(name, link) for link in _LINK.findall(text)]
    for each in [name, *(link for link in links if not link.endswith(".md") and (ROOT / link).is_file())]:
        target = pages / each
        target.parent.mkdir(parents=True, exist_ok=True)
        if each == name:
            target.write_text(for_site(text))
        else:
            shutil.copyfile(ROOT / each, target)


def for_site(text: str) -> str:
    """Return a page as the site's parser of Markdown reads it like GitHub's: an empty line before a list, and one word
    behind the fence of a block of code.
    """
    lines: list[str] = []
    in_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        before = lines[-1] if lines else ""
        is_behind_text = bool(before.strip()) and not before.startswith(" ") and not _ITEM.match(before)
        if not in_code and _ITEM.match(line) and is_behind_text:
            lines.append("")
        lines.append(_FENCE_WORDS.sub(r"\1", line) if is_fence and not in_code else line)
        in_code ^= is_fence
    return "\n".join(lines) + "\n"


def _resolved(name: str, link: str) -> str:
    """Return a link of a page as a path below the project."""
    if re.match(r"[a-z]+:", link):
        return link
    path = (ROOT / name).parent / link
    return path.resolve().relative_to(ROOT).as_posix() if path.resolve().is_relative_to(ROOT) else link


def _warnings(output: str) -> list[str]:
    """Return the problems that the build names, without their colours and frames."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
    found = [
        f"{line.split('Warning:')[-1].strip()} {plain[at + 1].strip(' ╭─[]│')}"
        for at, line in enumerate(plain[:-1])
        if "Warning:" in line
    ]
    return found or plain[-20:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
