"""Hook of mkdocs.yml: puts README.md, CONTRIBUTING.md and so on, and every file that a page links to, on the site.

Links in the pages lead through the repository (`../tests/docs/test_pages.py`, `docs/labs.md`), so that they work where
the files are. Here they become links of the site: some pages outside docs/ have a place in `PAGES`, and any other file
becomes a page under source/ that shows it. LaTeX becomes MathML.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "tests/README.md": "tests.md",
}
HOMES = {place: home for home, place in PAGES.items()}
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
NAMED_BY_FILE = re.compile(r"(?<=\[)[\w/-]+\.md(?=\]\(([^)\s#:]+\.md)[#)])")
PICTURE = re.compile(r'<picture>.*?srcset="([^"]+)".*?alt="([^"]+)" src="([^"]+)".*?</picture>', re.DOTALL)
INLINE_CODE = re.compile(r"(?<!</span>)<code>[^<\n]+</code>")
OPERATORS = r"[*+\-:^~]+(?=\s+|$)"  # that the theme's search takes out of a question
LINE_ANCHOR = re.compile(r'<a id="__codelineno[^>]*></a>')
OPTION = re.compile(r"(?<![\w-])--?\w[\w-]*")
EQUATION = re.compile(r'<(div|span) class="arithmatex">\\(?:\[|\()(.*?)\\(?:\]|\))</\1>', re.DOTALL)
LANGUAGES = {".py": "python", ".json": "json", ".yaml": "yaml", ".cfg": "ini", ".toml": "toml", ".md": "markdown"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and a page for each file or folder of the repository that a page links to."""
    for home, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / home)))
    for file in files.documentation_pages():
        for _, link, _ in LINK.findall(file.content_string):
            place = place_of(link, file.src_uri)
            if place.startswith("source/") and files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, content=source_page(path_of(link, file.src_uri))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page, which lead through the repository, into those of the site."""
    site = page.file.src_uri
    if site.startswith(("api/", "changelog.", "appendix/planted-bugs.")):
        page.meta["search"] = {"boost": 0.3}  # guides are found first
    if site.startswith("source/"):
        return markdown
    markdown = PICTURE.sub(r"![\2](\3#only-light)\n![\2](\1#only-dark)", markdown)
    markdown = NAMED_BY_FILE.sub(lambda link: title_of(path_of(link[1], site)) or link[0], markdown)
    folder = posixpath.dirname(site)
    return LINK.sub(
        lambda link: link[1] + posixpath.relpath(place_of(link[2], site), folder) + line_of(link[3]), markdown
    )


def on_page_content(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn LaTeX between dollars into MathML, which browsers set without a script; keep options in one line.

    Browsers break `--agent` after its hyphens.
    """
    if not page.file.src_uri.startswith("source/"):
        text = LINE_ANCHOR.sub("", text)
    text = INLINE_CODE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), text)
    return EQUATION.sub(lambda found: equation(html.unescape(found[2]), block=found[1] == "div"), text)


def equation(latex: str, block: bool) -> str:
    """Return an equation as MathML, in a line of its own (`block`), where it can be scrolled, or within a sentence."""
    lines = latex.strip().replace("{gathered}", "{matrix}")  # browsers ignore the line breaks that gathered becomes
    made = convert(lines, display="block" if block else "inline").replace("<mtable>", '<mtable displaystyle="true">')
    return f'<div class="equation">{made}</div>' if block else made


def on_post_build(config: MkDocsConfig) -> None:
    """Show the navigation beside the page on windows of 1,000 pixels; the theme hides it below 1,220.

    And let the search find `--seed`: to the theme, a word after a hyphen is one that pages must not have.
    """
    for file in (Path(config.site_dir) / "assets").rglob("*"):
        if file.suffix in (".css", ".js"):
            text = file.read_text(encoding="utf-8")
            text = text.replace("76.25em", "62.5em").replace("76.234375em", "62.484375em")
            text = text.replace(OPERATORS, rf"{OPERATORS}|(?<!\S)--(?=\w)")
            file.write_text(text, encoding="utf-8")


def line_of(anchor: str) -> str:
    """Return what follows the page in a link, where `#L5`, GitHub's line 5, is the site's line 5."""
    return re.sub(r"^#L(?=\d+\)$)", "#__codelineno-0-", anchor)


def path_of(link: str, site: str) -> str:
    """Return the path in the repository of a link on the page that is at `site` on the site."""
    home = HOMES.get(site, f"docs/{site}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(home), link))


def place_of(link: str, site: str) -> str:
    """Return the place on the site of a link on the page that is at `site`; broken links are left to mkdocs."""
    path = path_of(link, site)
    if path in PAGES:
        return PAGES[path]
    shown = path.startswith("docs/") and not path.endswith((".py", ".json"))
    return path.removeprefix("docs/") if shown or not (ROOT / path).exists() else f"source/{path}.md"


def title_of(path: str) -> str:
    """Return the title of a page of the repository, which stands for the name of its file; "" if it has none."""
    page = ROOT / path
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) if page.is_file() else None
    return found[1] if found else ""


def source_page(path: str) -> str:
    """Return a page that shows a file, or the files of a folder; the search leaves it out."""
    here = ROOT / path
    title = f"---\ntitle: {here.name}\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    if here.is_file():
        return title + source_of(here)
    inside = [each for each in sorted(here.rglob("*")) if each.is_file() and each.suffix in LANGUAGES]
    return title + "\n".join(f"## `{each.relative_to(here).as_posix()}`\n\n{source_of(each)}" for each in inside)


def source_of(file: Path) -> str:
    """Return a code block with the text of a file."""
    return f"``````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8')}\n``````\n"
