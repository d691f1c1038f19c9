"""How much there is to read: `make size` prints the figures, as a feeling for proportion.

A code line is neither blank nor a comment; docstrings count. The path of a job is every module of the project that its
entry modules reach by imports, those inside functions too, and by names of modules in strings; imports for type
checkers only do not count. With doors closed, DOORS are not entered: plugins found by name, and other kinds of jobs.
"""

import ast
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "support"))  # `make size` runs this file alone

from anew import run_anew
from sources import MODULES, PACKAGES, ROOT, imported, nodes, text, texts_in

ALGORITHMS = [
    f"rlenv.agents.algorithms.{path.stem}" for path in sorted((ROOT / "agents" / "algorithms").glob("[!_]*.py"))
]
TEXT = ("rlenv.vector_env", "rlenv.textgen", "rlenv.verifiers.function")
JOBS = {
    "GRPO on text with a reward function": ("rlenv.agents.algorithms.grpo", *TEXT),
    "REINFORCE on CartPole": ("rlenv.agents.algorithms.reinforce",),
    "rlenv train": ("rlenv._scripts.train", "rlenv.agents.training.supervised", *ALGORITHMS, *TEXT),
}
ON_REQUEST = (
    "rlenv.agents.rollouts.sb3_envs",
    "rlenv._peer_names",  # in an error
    "rlenv.agents.training.evaluation",
    "rlenv.agents.training.loading",
    "rlenv.agents.training.saving",
    "rlenv.agents.sharding",  # models that one device does not hold
    "rlenv.agents.estimators.mismatch",  # engines, and rollouts of an older policy
)
DOORS = {
    "GRPO on text with a reward function": (
        *ON_REQUEST,
        "rlenv.curriculum",
        "rlenv.picture",
        "rlenv.hub",
        "rlenv.tasks",
        "rlenv.verifiers.sandbox",
        "rlenv.agents.language.adapters",
        "rlenv.agents.language.critic",
        "rlenv.agents.language.gguf",
        "rlenv.agents.language.hints",
        "rlenv.verifiers.builtin",
        "rlenv.verifiers.dialogues",
        "rlenv.agents.engines",
        "rlenv.agents.rollouts.env_checks",  # of control, to the end
        "rlenv.agents.rollouts.no_autoreset",
        "rlenv.agents.policies.control",
        "rlenv.agents.policies.numpy_actor",
        "rlenv.agents.policies.token_extractor",
    ),
    "REINFORCE on CartPole": (
        *ON_REQUEST,
        "rlenv.agents.policies.draws",
        "rlenv.textgen",
        "rlenv.vector_env",
        "rlenv.verifiers",
        "rlenv.agents.language",
        "rlenv.agents.engines",
    ),
    "rlenv train": ("rlenv.verifiers.builtin", "rlenv.verifiers.dialogues", "rlenv.agents.engines"),
}


@cache
def code_lines(path: Path) -> int:
    written = enumerate(map(str.strip, text(path).splitlines()), 1)
    lines = {number for number, line in written if line and line[0] != "#"}
    for node in nodes(path, typed=False):
        if isinstance(node, ast.Constant | ast.JoinedStr):  # what looks blank or like a comment in a text
            lines.update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def needs(module: str) -> set[str]:
    """Return the modules of the project that one imports or names; commands, which stand above it, do not count."""
    path, commands = MODULES[module], "rlenv._scripts"
    found = (imported(path, typed=False) | texts_in(path, typed=False)) & MODULES.keys()
    return {name for name in found if commands in module or commands not in name}


def is_behind(module: str, doors: Iterable[str]) -> bool:
    return any(module == door or module.startswith(f"{door}.") for door in doors)


def path_of(job: str, closed: bool) -> set[Path]:
    """Return the files of the modules on the path of a job."""
    assert (gone := {*JOBS[job], *DOORS[job]} - MODULES.keys()) == set(), gone
    seen: set[str] = set()
    todo = list(JOBS[job])
    while todo:
        module = todo.pop()
        if module and module not in seen and not (closed and is_behind(module, DOORS[job])):
            seen.add(module)
            todo += (module.rpartition(".")[0], *needs(module))
    return {MODULES[module] for module in seen}


def sizes() -> dict[str, int]:
    """Return the figures by name."""
    found = {}
    for job in JOBS:
        for closed in (True, False):
            lines = sum(map(code_lines, path_of(job, closed)))
            found[f"code lines: {job}, {'doors closed' if closed else 'all imports'}"] = lines
    files = {place: sorted((ROOT / place).rglob("*.py")) for place in (*PACKAGES, "tests")}
    lengths = {path: text(path).count("\n") for paths in files.values() for path in paths}
    found |= {f"lines: {place}": sum(lengths[path] for path in paths) for place, paths in files.items()}
    found["lines: tests/support"] = sum(lengths[path] for path in files["tests"] if path.parent.name == "support")
    product = [path for place in PACKAGES for path in files[place]]
    found["lines: product"] = sum(lengths[path] for path in product)
    found["files: product"] = len(product)
    found["pages beside docs/api and docs/appendix"] = sum(
        page.parent.name not in ("api", "appendix") for page in (ROOT / "docs").rglob("*.md")
    )
    return found


GRPO = """
import rlenv
from rlenv import agents
def sevens(prompts, completions, **columns):
    return [float(completion.count("7")) for completion in completions]
env_kwargs = {"verifier": sevens, "problems": ["1", "2"], "max_new_tokens": 3}

settings = {"device": "cpu", "num_envs": 4, "group_size": 2, "episodes_per_update": 4}
agents.GRPO("auto", "TextGen-v0", env_kwargs=env_kwargs, **settings).learn(total_episodes=4)
"""


def test_an_update_loads_only_what_is_counted():
    """Folders behind a door of which something is loaded nevertheless are named, so that none is added unseen."""
    files = "[module.__file__ for name, module in sys.modules.items() if name.partition('.')[0] == 'rlenv']"
    loaded = {Path(file).resolve() for file in run_anew(f"{GRPO}\nimport sys\nfound = {files}")}
    job, ajar = "GRPO on text with a reward function", {"agents/policies", "verifiers", "verifiers/dialogues"}
    counted, closed = path_of(job, closed=False), path_of(job, closed=True)
    assert len(loaded) > 50 and loaded <= counted
    assert {path.parent.relative_to(ROOT).as_posix() for path in loaded - closed} == ajar


if __name__ == "__main__":
    for name, figure in sizes().items():
        print(f"{figure:8,}  {name}")
    for job, doors in DOORS.items():
        print(f"behind doors of {job}: {', '.join(doors)}")
