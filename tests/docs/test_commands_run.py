"""The rlenv commands of README.md and docs/**/*.md run to their end, small; test_pages.py parses all of them.

Blocks with the comment `<!-- run -->` are run as they are printed by test_pages.py, and not here.
"""

import json
import shlex
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
from _rlenv_scripts.main import main
from click.testing import CliRunner
from pages import MODEL, ROOT, blocks, commands, pages
from tiny_models import write_chat_model

NOT_HERE = {  # words of a command: why it does not run here
    "torchrun": "several processes: tests/scripts/runs",
    "rlenv bench": "other libraries, minutes: tests/benchmarks",
    "rlenv lab ": "tests/labs runs each",
    "rlenv serve": "it ends with a signal: tests/neighbours",
    "rlenv info": "tests/scripts/tools",
    "verifiers lint --all": "tests/verifiers lints each",
    "verifiers lint countdown": "its rule about speed fails on a busy machine",
    "smollm2": "a pretrained model: tests/real",
    ".gguf": "a file that is downloaded: tests/real",
    "Qwen/": "a download",
    "--track": "an account, a server: tests/scripts/runs",
    "textarena:": "a further package: tests/neighbours",
    "gem:": "a further package: tests/neighbours",
    "gym:textworld": "a further package and a file",
    "openenv:http": "a server: tests/neighbours",
    "--device cuda": "a GPU: tests/gpu",
    "--timesteps 2000000": "it is to be stopped: runs/long is a run that was",
}
FOLDERS = {"FOLDER_OR_ID": str(MODEL), "FOLDER": str(MODEL), "MODEL": str(MODEL)}
SMALLER = {
    "train:2000": "train:260",
    "train:350": "train:260",
    "--agents all": "--agents rloo,ppo",
    " runs/guess-1 runs/guess-2": "",
}
BUDGET = "--episodes 32 --episodes-per-update 16"
WARM_START = "--sft-examples 16 --sft-batch-size 8"
SMALL = {  # the last of two values counts
    "train": "--eval-episodes 8 --no-report --overwrite",
    "sft": f"--eval-episodes 8 --overwrite {WARM_START}",
    "compare": "--eval-episodes 8 --no-figures --seeds 1",
    "reward-model": "--steps 2 --batch-size 8 --overwrite",
    "evaluate": "--episodes 8",
}
RUNS = ("NAME", "A", "B", "a", "b", "warm", "teacher", "long", "textgen-v0-arith-grpo")
MODULES = {
    "rewards.py": ("f", "correct"),
    "my_rewards.py": ("right", "reward", "short"),
    "my_module.py": ("close", "reward"),
    "my.py": ("right", "tidy"),
}
REWARD = """
def {}(prompts, completions, answer, **columns):
    return [float(right == text) for right, text in zip(answer, completions)]
"""
TEXTS = (
    "problems",
    "prompts",
    "sums",
    "q",
    "more",
    "large",
    "pairs",
    "rows",
    "codes",
    "plain",
    "other",
    "chat",
    "FILE",
)


def to_run(text):
    """Return the words of the commands of a page that run here."""
    found = [words for block in blocks(text) if "run" not in block.directives for words in commands(block)]
    lines = dict.fromkeys(shlex.join(words) for words in found)
    return [line for line in lines if line.startswith("rlenv ") and not any(each in line for each in NOT_HERE)]


PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages()}
LINES = {name: found for name, text in PAGES.items() if (found := to_run(text))}


def invoke(*words):
    outcome = CliRunner().invoke(main, list(words), input="")
    found = 1 if "--fail-on" in words else 0  # these runs have findings
    assert outcome.exit_code == found, f"{shlex.join(words)}\n{outcome.output}\n{outcome.exception!r}"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return a folder with what the commands name: problems, modules, a model, runs."""
    folder = tmp_path_factory.mktemp("template")
    rows = []
    for n in range(300):
        right = {"answer": str(n + 1), "solution": str(n + 1), "chosen": str(n + 1), "target": n + 1, "code": n % 10}
        rows.append({"prompt": f"{n}+1=", "question": f"{n}+1=", "rejected": "no", "level": 1 + n % 3} | right)
    talk = [row | {"prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows]
    for name in (*TEXTS, "FILE"):
        lines = [json.dumps(row) for row in (talk if name == "chat" else rows)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        lines = [f"{row['prompt']},{row['answer']}" for row in rows]
        (folder / f"{name}.csv").write_text("\n".join(["prompt,answer", *lines]), encoding="utf-8")
    for name, functions in MODULES.items():
        (folder / name).write_text("\n".join(map(REWARD.format, functions)), encoding="utf-8")
    (class_of_trl,) = [block for block in blocks(PAGES["docs/trl-environments.md"]) if "class Env" in block.text]
    (folder / "my_env.py").write_text(class_of_trl.text, encoding="utf-8")
    write_chat_model(folder / MODEL, context=8192)
    shutil.copytree(ROOT / "configs", folder / "configs")
    first = folder / "runs" / "NAME"
    settings = f"{BUDGET} {WARM_START} {SMALL['train']} --sft-steps 2 --eval-every 1"
    invoke("train", *settings.split(), "--log-dir", str(first))
    for name in RUNS[1:]:
        shutil.copytree(first, first.parent / name)
    for name in ("NAME", "long"):  # they are not at their end
        config = first.parent / name / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"episodes": 48}))
    shutil.copytree(first.parent / "A", folder / "RUN")
    with chdir(folder):
        for line in ("rlenv compare --agents all --seeds 5", "rlenv compare --env CartPole-v1 --agents all --seeds 5"):
            invoke(*small(line))
    return folder


def small(line):
    """Return the words of a command with little to do."""
    for printed, smaller in SMALLER.items():
        line = line.replace(printed, smaller)
    words = [FOLDERS.get(word, "FILE.jsonl" if word == "FILE" else word) for word in shlex.split(line)[1:]]
    command, *given = words
    words += SMALL.get(command, "").split()
    if "--resume" in given:
        return [*words[:3], *(["--episodes", "64"] if "--timesteps" in given else [])]
    control = "--env" in given or any(word.endswith(("v0.yaml", "v1.yaml")) for word in given)
    if command in ("train", "compare"):
        words += ["--timesteps", "200"] if control or "--timesteps" in given else ["--episodes", "32"]
        words += [] if control else ["--episodes-per-update", "16", *WARM_START.split()]
    if command in ("train", "sft", "compare") and not control and not {"--epochs", "0"} & set(given):
        words += ["--sft-steps", "2"]
    return words


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # of tiny models
@pytest.mark.parametrize("name", LINES)
def test_the_commands_of_the_page_run(name, template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "here")  # PYTHONPATH=.
    for block in blocks(PAGES[name]):
        if "file" in block.directives:
            Path(block.directives["file"]).write_text(block.text, encoding="utf-8")
    for line in LINES[name]:
        invoke(*small(line))
