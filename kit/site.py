"""The site of the documents: ``make docs``, or ``python -m kit.site [FOLDER]``, checked before it is called built.

The pages are plain Markdown under ``docs``, in the order of ``docs/navigation.toml``; ``docs/zh`` holds translations by the
same names. Zensical renders both languages from an assembled copy, so that no page is written for one generator. What a
generator does not check is checked here: every link and anchor leads on, nothing is asked of another host, no page is heavy.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from kit.translations import FENCE, sections
from pumice import __version__

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTPUT, SCRATCH = ROOT / "dist" / "docs", ROOT / ".cache" / "docs"
FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that stand at the repository's root, and their names on the site."""
LANGUAGES = {"en": Path(), "zh": Path("zh")}
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
"""Decisions would come before the pages for users; their own index leads to them by subject."""
HEAVIEST = 500_000
"""Bytes of a page."""
OTHER = "same-page-in-"
"""Placeholder of a link to another language until the page's own address is known."""
NOT_TRANSLATED = "> 本页尚未翻译，以下为英文原文。\n\n"
STAYS_ENGLISH = {
    "reference/commands.md": "> 本页由各命令的 `--help` 生成。命令的帮助和消息只有英文，因此本页也是英文。\n\n",
    "reference/metrics.md": "> 本页由守护进程的指标页面生成。指标的说明只有英文，因此本页也是英文。\n\n",
    "reference/rights.md": "> 本页由清单生成，内容是账户、对象和动词的名称，因此不翻译。\n\n",
    "adr/": "> 决定的记录（ADR）只有英文。\n\n",
    "contributing.md": "> 本页只有英文。\n\n",
    "changelog.md": "> 本页只有英文。\n\n",
}
"""Pages, and folders of them, that are not to be translated, and the words that say so."""


@dataclass(frozen=True)
class Section:
    titles: Mapping[str, str]
    pages: list[str]


def navigation() -> list[Section]:
    rows = tomllib.loads((DOCS / "navigation.toml").read_text("utf-8"))["section"]
    return [Section({"en": row["title"], "zh": row["chinese"]}, row["pages"]) for row in rows]


def originals() -> dict[str, Path]:
    """Every English page by its name on the site."""
    pages = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    pages = {name: path for name, path in pages.items() if not name.startswith("zh/")}
    return pages | {name: ROOT / path for path, name in FROM_ROOT.items()}


def lead_on(text: str, name: str, source: Path) -> str:
    """A page's text with its links to files outside the site led to the site's own names, or to no link at all."""

    def led(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        there = (source.parent / unquote(target)).resolve()
        there = there / "README.md" if (there / "README.md").is_file() else there
        if not there.is_relative_to(ROOT):
            return match[0]
        path = there.relative_to(ROOT).as_posix()
        if path.startswith("docs/zh/"):
            path = path.replace("docs/zh/", "docs/")
        inside = FROM_ROOT.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") and there.is_file() else "")
        if path in ("README.md", "docs/README.md"):
            inside = "index.md"
        return f"[{words}]({'../' * name.count('/')}{inside}{anchor})" if inside else words

    return re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", led, text)


def same_places(text: str, original: str) -> str:
    """A translation whose headings have the names of the original's, so that one link leads to a place in either language.

    A page that nobody has translated yet links to the English names, and stands in the Chinese site, too.
    """
    names = iter(re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title, _ in sections(original))
    code, lines = False, []
    for line in text.splitlines():
        code ^= bool(FENCE.match(line))
        name = "" if code or not re.match(r"#{1,3} ", line) else next(names, "")
        lines.append(f"{line} {{ #{name} }}" if name else line)
    return "\n".join(lines) + "\n"


CJK = "\u2014\u2018-\u201d\u2026\u3000-\u303f\u4e00-\u9fff\uff00-\uff65"
"""Han characters and the marks that are set as wide as they."""


def unspaced(text: str) -> str:
    """Chinese prose with each paragraph in one line: a browser shows a broken line as a space, which Chinese has not."""
    code, lines = False, [""]
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        goes_on = re.match(rf" {{0,3}}(?=[`\w\[({CJK}]|\*\*)(?!```|\d+\. )", line) and re.search(rf"[{CJK}]$", lines[-1])
        if goes_on and not code and not re.match(r"\s*[|#>]| {4}", lines[-1]):
            lines[-1] += line.lstrip()
        else:
            lines.append(line)
        code ^= fence
    return "\n".join(lines[1:]) + "\n"


def why_english(name: str) -> str:
    """Tell a Chinese reader first why a page is in English."""
    return next((said for start, said in STAYS_ENGLISH.items() if name.startswith(start)), NOT_TRANSLATED)


def assemble(language: str, home: Path, version: str) -> None:
    """A folder that Zensical builds one language from."""
    shutil.rmtree(home / "docs", ignore_errors=True)
    titles = {}
    for name, original in originals().items():
        translated = DOCS / language / name
        source = translated if language != "en" and translated.exists() else original
        text = source.read_text("utf-8")
        titles[name] = re.sub(r"[`*]", "", re.findall(r"^# (.+)$", text, re.M)[0])
        if language != "en" and source == original:
            text = why_english(name) + text
        elif language != "en":
            text = unspaced(same_places(text, original.read_text("utf-8")))
        text = NOT_SEARCHED + text if name.startswith("adr/") else text
        (home / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "docs" / name).write_text(lead_on(text, name, source), "utf-8")
    shutil.copytree(DOCS / "assets", home / "docs" / "assets")
    decisions = sorted(name for name in titles if name.startswith("adr/") and name != "adr/README.md")
    listed = [name for section in navigation() for name in section.pages]
    if missing := sorted(set(titles) - set(listed) - set(decisions)):
        raise SystemExit(f"docs/navigation.toml names no place for {', '.join(missing)}")
    nav = [{section.titles[language]: [{titles[name]: name} for name in section.pages]} for section in navigation()]
    (home / "zensical.toml").write_text(settings(language, nav, version), "utf-8")


def settings(language: str, nav: list[dict[str, list[dict[str, str]]]], version: str) -> str:
    """Zensical's configuration: nothing of it asks another host for anything."""
    rows = ",\n".join("  " + inline(row) for row in nav)
    return f"""[project]
site_name = "Pumice {version}"
site_url = ""
docs_dir = "docs"
site_dir = "site"
use_directory_urls = false
copyright = "Apache-2.0"
nav = [
{rows}
]

[project.theme]
font = false
language = "{language}"
features = ["navigation.tabs", "navigation.path", "navigation.prune", "navigation.top", "search.highlight", "content.code.copy"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light"

[project.extra]
generator = false
homepage = "index.html"
alternate = [{{ name = "English", link = "{OTHER}en", lang = "en" }}, {{ name = "中文", link = "{OTHER}zh", lang = "zh" }}]
polyfills = ["assets/iframe-worker.js"]

[project.plugins.offline]
[project.plugins.search]

[project.markdown_extensions]
attr_list = {{}}
md_in_html = {{}}
tables = {{}}
toc.permalink = true
toc.slugify = {{ object = "pymdownx.slugs.slugify", kwds = {{ case = "lower" }} }}
pymdownx.highlight = {{}}
pymdownx.superfences = {{}}
"""


def inline(value: object) -> str:
    """A value as TOML writes it on one line; its strings are JSON's."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {inline(one)}" for key, one in value.items()) + " }"
    return "[" + ", ".join(map(inline, value)) + "]" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def faults(site: Path) -> Iterator[str]:
    """Yield all that a reader would stumble over: links without an end, requests to other hosts, pages that load slowly."""
    texts = {path: path.read_text("utf-8") for path in sorted(site.rglob("*.html"))}
    anchors = {path: set(re.findall(r'\sid="?([^"\s>]+)', text)) for path, text in texts.items()}
    for path, text in texts.items():
        name = path.relative_to(site).as_posix()
        if len(text.encode()) > HEAVIEST:
            yield f"{name}: {len(text.encode())} bytes"
        for asked in re.findall(r'<(?:script|img|iframe|link)\b[^>]*?\s(?:src|href)="?(?:https?:)?//[^"\s>]+', text):
            yield f"{name}: asks another host: {asked}"
        for link in set(re.findall(r'\s(?:href|src)="?([^"\s>]+)', text)):
            target, _, anchor = html.unescape(link).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            there = (path.parent / unquote(target)).resolve() if target else path
            if not there.is_file():
                yield f"{name}: leads nowhere: {link}"
            elif anchor and there in anchors and unquote(anchor) not in anchors[there] and anchor not in ("__top", "top"):
                yield f"{name}: no such place: {link}"


def addressed(text: str, name: Path, language: str) -> str:
    """A page that knows itself in the other languages, and claims no address on a host."""
    up = "../" * len((LANGUAGES[language] / name).parent.parts)
    for other, folder in LANGUAGES.items():
        text = re.sub(rf'href="[^"]*{OTHER}{other}"', f'href="{up}{(folder / name).as_posix()}"', text)
    return re.sub(r'<link rel="canonical"[^>]*>', "", text)


def build(output: Path = OUTPUT, scratch: Path = SCRATCH) -> list[str]:
    """The site in a folder, and what is wrong with it."""
    shutil.rmtree(output, ignore_errors=True)
    for language, folder in LANGUAGES.items():
        home = scratch / language
        assemble(language, home, __version__)
        program = Path(sys.executable).parent / "zensical"
        done = subprocess.run([program, "build", "--strict", "--clean"], cwd=home, capture_output=True, text=True)
        if done.returncode or "Warning" in done.stdout + done.stderr:
            return [re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr.partition("Traceback")[0])]
        for server_only in ("404.html", "sitemap.xml"):
            (home / "site" / server_only).unlink(missing_ok=True)
        for path in (home / "site").rglob("*.html"):
            path.write_text(addressed(path.read_text("utf-8"), path.relative_to(home / "site"), language), "utf-8")
        shutil.copytree(home / "site", output / folder, dirs_exist_ok=True)
    return list(faults(output))


def main() -> int:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    found = build(output)
    print(*found, f"{output / 'index.html'}: {'faulty' if found else 'open it in a browser'}", sep="\n")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
