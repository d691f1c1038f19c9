"""Counts what a reader has to read: code lines on the path of a job, by the imports, and the whole tree.

A code line is neither blank nor a comment; docstrings count. The path of a job is every module of the project that its
entry modules reach by imports, those inside functions too, and by names of modules in strings; imports for type
checkers only do not count. With doors closed, DOORS are not entered: plugins found by name, and other kinds of jobs.

    make size
"""

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"agents": "agents", "rlenv": "rlenv", "verifiers": "verifiers", "_rlenv_scripts": "scripts"}
PRODUCT = (*FOLDERS.values(), "labs", "benchmarks")
ALGORITHMS = [f"agents.algorithms.{path.stem}" for path in sorted((ROOT / "agents" / "algorithms").glob("[!_]*.py"))]
TEXT = ("rlenv.vector_env", "rlenv.textgen", "verifiers.function")
JOBS = {
    "GRPO on text with a reward function": ("agents.algorithms.grpo", *TEXT),
    "REINFORCE on CartPole": ("agents.algorithms.reinforce",),
    "rlenv train": ("_rlenv_scripts.train", "agents.training.supervised", *ALGORITHMS, *TEXT),
}
CONTROL = ("agents.policies.control", "agents.policies.numpy_actor", "agents.policies.token_extractor")
DOORS = {
    "GRPO on text with a reward function": ("verifiers.builtin", "verifiers.dialogues", *CONTROL),
    "REINFORCE on CartPole": ("verifiers", "agents.language"),
    "rlenv train": ("verifiers.builtin", "verifiers.dialogues"),
}
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
MODULE = re.compile(r"\.?[a-z_]+(\.[a-z_]+)+(:\w+)?")


def file_of(module: str) -> Path | None:
    """Return the file of a module of the project; None for anything else."""
    top, *rest = module.split(".")
    base = ROOT.joinpath(FOLDERS.get(top, "no such folder"), *rest)
    found = (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file())
    return next(found, None)


@cache
def code_lines(path: Path) -> int:
    lines: set[int] = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in NO_CODE and token.type != tokenize.ENDMARKER:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


@cache
def imports(path: Path, module: str) -> tuple[str, ...]:
    """Return the modules of the project that a file imports or names."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = []
    for node in visited(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute("." * node.level + (node.module or ""), package)
            found += (base, *(f"{base}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            found.append(absolute(node.value.partition(":")[0], package))
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            names = (getattr(argument, "value", None) for argument in node.args[:1])
            found += (absolute(name, package) for name in names if isinstance(name, str))
    return tuple(name for name in found if file_of(name))


def visited(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes, without those that only type checkers see."""
    yield node
    skipped = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else []
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from visited(child)


def absolute(name: str, package: str) -> str:
    """Return the name of a module without the dots before it, which count folders upward."""
    level = len(name) - len(name.lstrip("."))
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name[level:]])]) if level else name


def is_behind(module: str, doors: Iterable[str]) -> bool:
    return any(module == door or module.startswith(f"{door}.") for door in doors)


def path_of(job: str, closed: bool) -> dict[str, Path]:
    """Return the modules on the path of a job, and their files.

    Raises:
        LookupError: if an entry module or a door is gone.
    """
    doors = DOORS[job]
    if gone := [module for module in (*JOBS[job], *doors) if file_of(module) is None]:
        raise LookupError(
            f"{', '.join(gone)}: no such module; name the new ones in JOBS and DOORS of {Path(__file__).name}"
        )
    seen: dict[str, Path] = {}
    todo = list(JOBS[job])
    while todo:
        module = todo.pop()
        path = file_of(module)
        if path is None or module in seen or (closed and is_behind(module, doors)):
            continue
        seen[module] = path
        todo += (module.rpartition(".")[0], *imports(path, module))
    return seen


def sizes() -> dict[str, int]:
    """Return every figure that has a ceiling."""
    found = {}
    for job in JOBS:
        for closed in (True, False):
            lines = sum(map(code_lines, set(path_of(job, closed).values())))
            found[f"code lines: {job}, {'doors closed' if closed else 'all imports'}"] = lines
    files = {place: sorted((ROOT / place).rglob("*.py")) for place in (*PRODUCT, "tests")}
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for paths in files.values() for path in paths}
    found |= {f"lines: {place}": sum(lengths[path] for path in paths) for place, paths in files.items()}
    found["lines: tests/support"] = sum(lengths[path] for path in files["tests"] if path.parent.name == "support")
    product = [path for place in PRODUCT for path in files[place]]
    found["lines: product"] = sum(lengths[path] for path in product)
    found["files: product"] = len(product)
    found["lines: longest file of the product"] = max(lengths[path] for path in product)
    found["pages beside docs/api"] = sum(page.parent.name != "api" for page in (ROOT / "docs").rglob("*.md"))
    found["depth of a package"] = max(len(path.relative_to(ROOT).parts) - 1 for path in product)
    found["depth of the tests"] = max(len(path.relative_to(ROOT).parts) - 1 for path in files["tests"])
    policy = ast.parse((ROOT / "agents" / "policies" / "base.py").read_text(encoding="utf-8")).body
    (policy,) = [node for node in policy if isinstance(node, ast.ClassDef) and node.name == "Policy"]
    found["methods of Policy"] = sum(isinstance(node, ast.FunctionDef) for node in policy.body)
    return found


if __name__ == "__main__":
    for name, figure in sizes().items():
        print(f"{figure:8,}  {name}")
    for job, doors in DOORS.items():
        print(f"behind doors of {job}: {', '.join(doors)}")
