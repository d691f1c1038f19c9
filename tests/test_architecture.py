"""Rules that a program can check: who imports whom, what is installed, what is never written."""

import ast
import configparser
import re
import tomllib
from functools import cache

import pytest
import yaml
from anew import run_anew
from sources import MODULES, PACKAGES, ROOT, imported, nodes, text, texts_in

from rlenv.agents import AGENTS
from rlenv.version import __version__

SOURCES = list(MODULES.values())
CONFIG = configparser.ConfigParser(interpolation=None)
CONFIG.read(ROOT / "setup.cfg", encoding="utf-8")
PRIVATE = {"scripts", "labs", "benchmarks"}
FORBIDDEN = {  # by folder: folders, and libraries
    "verifiers": {"torch", "numpy", "transformers", "gymnasium", "rlenv", "agents", *PRIVATE},
    "rlenv": {"agents", "stable_baselines3", *PRIVATE},
    "agents": {"rlenv", "verifiers", *PRIVATE},
    "scripts": {"labs", "benchmarks"},
    "labs": {"scripts", "benchmarks"},
    "benchmarks": {"scripts", "labs"},
    "examples": {"scripts", "benchmarks"},
}
# Every folder may import these; they import nothing else of ours.
SHARED = {
    "rlenv._checks",
    "rlenv._http",
    "rlenv._json",
    "rlenv._loop",
    "rlenv._peer_names",
    "rlenv._setting",
    "rlenv._settings",
    "rlenv._status",
}
ALLOWED = {  # imported where it is used
    "rlenv/__init__.py": {"scripts"},  # for type checkers
    "verifiers/builtin/reward_model.py": {"torch", "transformers"},
    "scripts/lab.py": {"labs"},
    "scripts/bench.py": {"benchmarks"},
}
DOORS = {  # modules above a file that it names in a text: they are optional, or take long to import
    "rlenv/__init__.py": {
        "rlenv._scripts.config.configs",
        "rlenv._scripts.config.other_configs",
        *(f"rlenv._scripts.jobs.{job}" for job in ("comparison", "evaluation", "imitation", "training")),
    },
    "agents/fsdp.py": {"rlenv.agents.sharding"},
    "agents/policies/make.py": {"rlenv.agents.language.policy", "rlenv.agents.language.vocabulary"},
    "agents/training/loop.py": {"rlenv.agents.engines.player"},
    "agents/training/settings.py": {"rlenv.agents.engines.player"},
    "verifiers/builtin/reward_model.py": {"rlenv.encoder"},
    "verifiers/dialogues/chat_client.py": {"rlenv.chat_server"},
    "verifiers/dialogues/toolbox.py": {"rlenv.verifiers.code.tool", "rlenv.verifiers.dialogues.calculator"},
}
UNPICKLES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
PICKLES = {  # what a process sends to the child that it has started, never back; errors, which are only caught
    "agents/language/loading.py": {"pickle"},
    "agents/processes.py": {"pickle"},
    "verifiers/sandbox/pool.py": {"pickle", "cloudpickle"},
    "verifiers/sandbox/judging.py": {"pickle", "cloudpickle"},
    "verifiers/sandbox/run.py": {"marshal"},
    "verifiers/sandbox/launcher.py": {"marshal"},
    "verifiers/code/verifier.py": {"marshal"},
    "verifiers/code/harness.py": {"marshal"},
}


def names_in(path, deferred=True):
    """Return the modules and libraries that a file imports, and the modules of ours that it names in texts."""
    return imported(path, deferred) | (texts_in(path) - DOORS.get(path.relative_to(ROOT).as_posix(), set()))


def owner(name):
    """Return the folder of a module of ours, the name of another library."""
    folders = {package: folder for folder, package in PACKAGES.items()}
    return folders.get(".".join(name.split(".")[:2])) or name.split(".")[0]


def test_no_package_imports_one_above_it():
    for path in SOURCES:
        place = path.relative_to(ROOT)
        forbidden = FORBIDDEN[place.parts[0]] - ALLOWED.get(str(place), set())
        assert not set(map(owner, names_in(path) - SHARED)) & forbidden, place


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_every_folder_may_import_imports_nothing_of_ours(name):
    assert not set(map(owner, names_in(MODULES[name]) - SHARED)) & {*PACKAGES, "torch", "numpy", "gymnasium"}
    assert "httpx" not in names_in(MODULES[name], deferred=False), "it is imported on use"


@pytest.mark.parametrize("place", ALLOWED)
def test_what_one_file_may_import_is_imported_where_it_is_used(place):
    path = ROOT / place
    assert ALLOWED[place] <= set(map(owner, names_in(path)))
    assert not ALLOWED[place] & set(map(owner, names_in(path, deferred=False)))


def test_every_door_is_one():
    assert {place: names & texts_in(ROOT / place) for place, names in DOORS.items()} == DOORS


@cache
def house():
    """Return {module: modules that it imports} of the whole code, nested imports and those for type checkers too.

    That a package's __init__.py imports its own files is not counted: they may import each other through it.
    """
    graph = {}
    for name, path in MODULES.items():
        graph[name] = (names_in(path) & MODULES.keys()) - {name}
        if path.name == "__init__.py":
            graph[name] = {other for other in graph[name] if not other.startswith(f"{name}.")}
    return graph


def circle(graph):
    """Return modules that import each other in a ring; none if the imports can be put in an order."""
    left = dict(graph)
    while True:
        needed = set().union(*left.values())
        free = [name for name, needs in left.items() if not needs & left.keys() or name not in needed]
        if not free:
            return sorted(left)
        for name in free:
            del left[name]


def rooms(folder):
    """Return {room: rooms that it imports} of a folder, whose rooms are its files and its subfolders."""

    def room(module):
        return module.removeprefix(f"{folder}.").partition(".")[0] if module.startswith(f"{folder}.") else ""

    found = {room(module): set() for module in house() if room(module)}
    for module, needs in house().items():
        if room(module):
            found[room(module)] |= {room(other) for other in needs} - {"", room(module)}
    return found


def test_no_import_runs_back_up():
    """The rooms of each folder stand on those below them, whatever their own rooms import; so there is no circle."""
    packages = sorted(
        {name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in MODULES.items()}
    )
    assert {folder: ring for folder in packages if (ring := circle(rooms(folder)))} == {}


RUNS_CODE = {"eval", "exec", "system", "popen", "run_module", "interact", "unsafe_load"}  # with arguments
ONLY = {"shell": "False", "trust_remote_code": "False", "weights_only": "True", "allow_pickle": "False"}


def is_dangerous(call):
    """Tell whether a call runs text, unpickles, or switches off what protects from it."""
    name, given = ast.unparse(call.func), {each.arg: ast.unparse(each.value) for each in call.keywords}
    runs = bool(call.args) and name.rpartition(".")[2] in RUNS_CODE
    loads = name == "yaml.load" or (name == "torch.load" and "weights_only" not in given)
    return runs or loads or any(given.get(argument, only) != only for argument, only in ONLY.items())


def test_nothing_is_evaluated_unpickled_or_swallowed():
    for path in SOURCES:
        place = path.relative_to(ROOT).as_posix()
        assert UNPICKLES & imported(path) <= PICKLES.get(place, set()), place
        for node in nodes(path):
            assert not (isinstance(node, ast.Call) and is_dangerous(node)), f"{place}:{node.lineno}"
            if isinstance(node, ast.ExceptHandler) and all(isinstance(statement, ast.Pass) for statement in node.body):
                assert node.type is not None, f"{place}:{node.lineno}"
                assert getattr(node.type, "id", "") not in {"Exception", "BaseException"}, f"{place}:{node.lineno}"


def test_modules_import_on_systems_without_fcntl_and_killpg():
    names = [name for name, path in MODULES.items() if re.search("fcntl|killpg", text(path))]
    assert {"rlenv.agents.files", "rlenv._scripts.process.children"} <= {*names}
    imports = "".join(f"import {name}\n" for name in names)
    run_anew(f"import os, sys\nsys.modules['fcntl'] = None\ndel os.killpg\n{imports}")


def test_nothing_in_agents_names_an_environment():
    for path in (ROOT / "agents").rglob("*.py"):
        docstrings = [node.value for node in nodes(path) if isinstance(node, ast.Expr)]
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                assert not re.search("textgen|cartpole|arith", node.value, re.IGNORECASE), f"{path}:{node.lineno}"


def test_no_algorithm_is_branched_on_by_name():
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.Compare):
                constants = [part.value for part in (node.left, *node.comparators) if isinstance(part, ast.Constant)]
                named = {each for each in constants if isinstance(each, str)}
                assert not AGENTS.keys() & named, f"{path}:{node.lineno}"


def test_every_package_is_installed():
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py" and "examples" not in path.parts}
    assert set(CONFIG["options"]["packages"].split()) == packages


def canonical(requirement: str) -> str:
    return re.split(r"[<>=!~]", requirement)[0].lower().replace("_", "-")


def test_every_dependency_is_pinned_for_the_tests():
    wanted = CONFIG["options"]["install_requires"] + "".join(CONFIG["options.extras_require"].values())
    needs = [line for line in wanted.split("\n") if line and line[0] not in "%<"]
    names = {canonical(line) for line in needs if "==" not in line.partition(";")[0]}  # the others pin themselves
    pinned = {canonical(line) for line in (ROOT / "constraints.txt").read_text().split() if "==" in line}
    assert names - pinned == set()


# The citation and the log of changes are of this version; what guides and the table of bugs name exists.


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load(text(ROOT / "CITATION.cff"))
    assert str(cited["version"]) == __version__
    assert f"## {__version__}" in text(ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("page", ["AGENTS.md", "CONTRIBUTING.md"])
def test_the_paths_in_a_guide_exist(page):
    paths = re.findall(r"`([a-z]+/[a-z_/.-]+)`", text(ROOT / page))
    assert len(paths) > 5 and [path for path in paths if not (ROOT / path).exists()] == []


def test_what_a_planted_bug_replaces_is_there_once():
    rows = tomllib.loads(text(ROOT / "tests/mutations.toml"))["bug"]
    edits = [edit for row in rows for edit in (row, *row.get("also", ())) if "find" in edit]
    texts = {edit["file"]: text(ROOT / edit["file"]) for edit in edits}
    assert edits and [edit["find"] for edit in edits if texts[edit["file"]].count(edit["find"]) != 1] == []
