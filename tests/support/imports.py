"""What the modules of the house import, read from their source texts; nothing is imported for it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("rlenv", "agents", "verifiers", "scripts", "labs", "benchmarks", "examples")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def tree(source: str) -> ast.Module:
    """Return the syntax tree of a source text; the whole code is parsed once, not by every test."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return the syntax tree of a source text and all in it."""
    return tuple(ast.walk(tree(source)))


@cache
def imports(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the imports in a source text; they are statements, so that no expression is visited."""
    found: list[ast.Import | ast.ImportFrom] = []
    left: list[ast.AST] = [tree(source)]
    while left:
        node = left.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        elif isinstance(node, (ast.Module, ast.stmt, ast.excepthandler, ast.match_case)):
            for part in ("body", "orelse", "handlers", "finalbody", "cases"):
                left += getattr(node, part, ())
    return tuple(found)


def modules(sources: dict[str, tuple[str, bool]]) -> dict[str, set[str]]:
    """Return {module: module's imports} of the sources, {module: (source text, whether it is an __init__.py)}.

    Every import counts, nested ones and those under TYPE_CHECKING too. `from package import name` depends on the module
    `package.name` if there is one, else on the package. That a package's __init__.py imports its own files is not
    counted: they may import each other through it.
    """
    graph = {}
    for name, (source, is_package) in sources.items():
        base = name.split(".") if is_package else name.split(".")[:-1]
        found = set()
        for node in imports(source):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            else:
                stem = base[: len(base) - node.level + 1] if node.level else []
                module = ".".join([*stem, *([node.module] if node.module else [])])
                found |= {
                    f"{module}.{alias.name}" if f"{module}.{alias.name}" in sources else module for alias in node.names
                }
        own = {other for other in found if is_package and other.startswith(f"{name}.")}
        graph[name] = (found & sources.keys()) - own - {name}
    return graph


@cache
def house() -> dict[str, set[str]]:
    """Return {module: module's imports} of the whole code."""
    sources = {}
    for path in SOURCES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        sources[name] = (path.read_text(encoding="utf-8"), path.name == "__init__.py")
    return modules(sources)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a ring; none if the imports can be put in an order."""
    left = dict(graph)
    while True:
        needed = set().union(*left.values())
        free = [name for name, needs in left.items() if not needs & left.keys() or name not in needed]
        if not free:
            return sorted(left)
        for name in free:
            del left[name]


def rooms(graph: dict[str, set[str]], folder: str) -> dict[str, set[str]]:
    """Return {room: rooms it imports} of a folder, whose rooms are its files and its subfolders."""
    inside = f"{folder}."

    def room(module: str) -> str:
        return module.removeprefix(inside).partition(".")[0] if module.startswith(inside) else ""

    found: dict[str, set[str]] = {room(module): set() for module in graph if room(module)}
    for module, imports in graph.items():
        if room(module):
            found[room(module)] |= {room(other) for other in imports} - {"", room(module)}
    return found


def floors(graph: dict[str, set[str]]) -> int:
    """Return the number of floors of rooms without a circle: each room stands on those that it imports."""

    @cache
    def height(room: str) -> int:
        return 1 + max(map(height, graph[room]), default=0)

    return max(map(height, graph), default=0)
