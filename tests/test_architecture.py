"""The house rules that a machine can see: who imports whom, what is installed, what is never written."""

import ast
import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("rlenv", "agents", "verifiers", "scripts", "benchmarks")
PRIVATE = {"scripts", "_rlenv_scripts", "benchmarks", "_rlenv_benchmarks"}
FORBIDDEN = {
    "verifiers": {"torch", "numpy", "transformers", "gymnasium", "rlenv", "agents", *PRIVATE},
    "rlenv": {"agents", "stable_baselines3", *PRIVATE},
    "agents": {"rlenv", "verifiers", *PRIVATE},
    "scripts": {"scripts", "_rlenv_scripts", "benchmarks"},  # its own modules are imported relatively
    "benchmarks": {"scripts", "_rlenv_scripts", "benchmarks", "_rlenv_benchmarks"},
}
ALLOWED = {"verifiers/reward_model.py": {"torch", "transformers"}}  # a model is what it is; imported where it is used
PICKLES = {"verifiers/isolation.py", "verifiers/worker_process.py"}  # from the trainer to its own children, never back
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imported(source: str) -> set[str]:
    """Return the top-level names of every absolute import in a source text, wherever it stands."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_never_run_up_the_stairs(path):
    place = path.relative_to(ROOT)
    forbidden = FORBIDDEN[place.parts[0]] - ALLOWED.get(str(place), set())
    assert not imported(path.read_text(encoding="utf-8")) & forbidden


def test_the_import_rule_sees_every_form():
    source = "import agents.x\nfrom rlenv import y\ndef f():\n    from verifiers.z import w\nfrom . import own\n"
    assert imported(source) == {"agents", "rlenv", "verifiers"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_evaluated_unpickled_or_swallowed(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            called = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
            owner = getattr(getattr(node.func, "value", None), "id", "")
            assert not (owner == "" and isinstance(node.func, ast.Name) and name in {"eval", "exec"})
            assert owner not in {"pickle", "cloudpickle"} or str(path.relative_to(ROOT)) in PICKLES
            assert not (owner == "torch" and name == "load" and called.get("weights_only") is not True)
            assert called.get("shell") is not True and called.get("trust_remote_code") is not True
        if isinstance(node, ast.ExceptHandler) and all(isinstance(statement, ast.Pass) for statement in node.body):
            assert node.type is not None and getattr(node.type, "id", "") not in {"Exception", "BaseException"}


def test_importing_the_verifiers_imports_nothing_heavy():
    command = "import sys, verifiers; print({'torch', 'transformers', 'numpy', 'sympy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", command], capture_output=True, text=True).stdout == "set()\n"


def test_nothing_in_agents_names_an_environment():
    for path in (ROOT / "agents").rglob("*.py"):
        code = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(code)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        }
        for node in ast.walk(code):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings:
                assert not re.search("textgen|cartpole|arith", node.value, re.IGNORECASE), f"{path}:{node.lineno}"


def algorithms():
    """Return the names of the registry and the files of their classes, read from the source."""
    tree = ast.parse((ROOT / "agents" / "algorithms" / "__init__.py").read_text(encoding="utf-8"))
    [table] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "REGISTRY"
    ]
    return [
        (name, ROOT / "agents" / "algorithms" / f"{place.partition('.')[0]}.py")
        for name, place in ast.literal_eval(table).items()
    ]


def test_every_algorithm_fits_on_a_screen():
    for name, path in algorithms():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 100, name


def test_no_algorithm_is_branched_on_by_name():
    names = {name for name, _ in algorithms()}
    assert len(names) == 9
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                constants = [part.value for part in (node.left, *node.comparators) if isinstance(part, ast.Constant)]
                assert not names & {value for value in constants if isinstance(value, str)}, f"{path}:{node.lineno}"


def test_every_package_is_installed():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = set(config["options"]["packages"].split())
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in SOURCES if path.name == "__init__.py"}
    assert listed == {re.sub("^(scripts|benchmarks)", r"_rlenv_\1", name) for name in found}


def canonical(requirement: str) -> str:
    return re.split(r"[<>=!~]", requirement)[0].lower().replace("_", "-")


def test_every_dependency_is_pinned_for_the_tests():
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    wanted = config["options"]["install_requires"] + "".join(config["options.extras_require"].values())
    names = {canonical(line) for line in wanted.split("\n") if line and line[0] not in "%<"}
    pinned = {canonical(line) for line in (ROOT / "constraints.txt").read_text().split() if "==" in line}
    assert names - pinned == set()


def test_verifiers_import_without_the_heavy_libraries():
    import subprocess
    import sys

    code = "import sys, verifiers; print(sorted({'torch', 'numpy', 'transformers', 'gymnasium'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
