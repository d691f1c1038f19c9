"""The code of the project by its modules: syntax trees, and which module imports or names which."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {  # by folder; examples are no package
    "rlenv": "rlenv",
    "agents": "rlenv.agents",
    "verifiers": "rlenv.verifiers",
    "scripts": "rlenv._scripts",
    "labs": "rlenv._labs",
    "benchmarks": "rlenv._benchmarks",
}
MODULES = {
    ".".join([PACKAGES.get(place, place), *path.relative_to(ROOT / place).with_suffix("").parts]).removesuffix(
        ".__init__"
    ): path
    for place in (*PACKAGES, "examples")
    for path in sorted((ROOT / place).rglob("*.py"))
}


@cache
def text(path):
    return path.read_text(encoding="utf-8")


@cache
def nodes(path, typed=True):
    """Return the syntax tree of a file and all in it; `typed` is whether with what only type checkers see."""
    found = [ast.parse(text(path))]
    for node in found:  # which grows
        is_left_out = not typed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        left_out = node.body if is_left_out else []
        found += [child for child in ast.iter_child_nodes(node) if child not in left_out]
    return found


@cache
def imported(path, deferred=True, typed=True):
    """Return the modules and libraries that a file imports.

    `from package import name` names the module `package.name` if there is one, else the package.

    Args:
        path: of the file.
        deferred: whether those in functions count, too.
        typed: whether those for type checkers only count, too.
    """
    (module,) = (name for name, file in MODULES.items() if file == path)
    base = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in nodes(path, typed):
        if not deferred and node not in nodes(path)[0].body:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            stem = base[: len(base) - node.level + 1] if node.level else []
            whole = ".".join([*stem, *filter(None, [node.module])])
            found |= {inner if (inner := f"{whole}.{alias.name}") in MODULES else whole for alias in node.names}
    return found


def texts_in(path, typed=True):
    """Return the modules of ours that a file names in texts, such as "rlenv.encoder:Encoder"."""
    values = [node.value for node in nodes(path, typed) if isinstance(node, ast.Constant)]
    texts = {value.partition(":")[0] for value in values if isinstance(value, str)}
    return {text for text in texts if "." in text} & MODULES.keys()
