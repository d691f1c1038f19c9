"""Bad input: one line that names what is wrong, exit code 2, no traceback, and nothing written."""

import json
import os
import shlex
import sys
from logging.handlers import QueueHandler
from queue import SimpleQueue

import click
import pytest
from huggingface_hub import constants as hub
from huggingface_hub.utils import _http as hub_http
from inprocess import error_of, run
from tiny_models import tiny_model

from rlenv._scripts.main import COMMANDS, main
from rlenv.agents import AGENTS

# A command line, and words of the line that answers it: what the commands refuse. What they only hand on is a row of
# the test_refusals.py of agents, rlenv or verifiers. {text} and {pole} are finished runs; a run goes to the folder
# `run`. See `write_inputs` for the files.
ROWS = r"""
trian | 'did you mean' train
train --verifier exact --verifier=arith | --verifier twice =0.5
train --agent-arg gamma=0.9 | gamma option
train --agent ppo --agent-arg clip_range | KEY=VALUE
train --env FrozenLake-v1 --env-arg is_slippery=False | --env-arg 'would be a text' 'write is_slippery=false'
train --verifier-arg digits={nested} | digits [[[[
train --timesteps 9 --episodes 9 | --timesteps --episodes
train --env broken.py:Mine | broken.py:Mine division
train --agent reinforce --baseline none | --baseline
train --env CartPole-v1 --verifier arith | --verifier CartPole-v1
train --dtype nonsense | nonsense float32
train --seed 9999999999999999999999 | --seed 9223372036854775807
train --lerning-rate 1 | --learning-rate
train --config typo.json | learning_rate
train --config broken.yaml | YAML parsing
train --config list.yaml | table
train --config lists.yaml | lists.yaml 'agent-arg must be a table'
train --config value.yaml | value.yaml seed [1]
train --config code.yaml | YAML constructor
train --config tag.yaml | tag.yaml maybe
train --config itself.yaml | itself.yaml verifier-arg itself
train --dry-run --config twice.yaml | twice.yaml 'seed' twice
train --dry-run --config twice.json | twice.json 'clip_range' twice
train --dry-run --config alike.yaml | alike.yaml learning_rate twice
train --dry-run --env CartPole-v1 | --dry-run CartPole-v1
train --plan-processes 8 | --plan-processes --dry-run
train --dry-run --plan-memory 80 | '80' 80G
train --dry-run --plan-processes 3 | episodes_per_update 256 3
train --dry-run --shard | --shard --plan-processes
train --log-dir thesis.tex/run | thesis.tex folder
train --log-dir {pole} | --overwrite
train --log-dir papers --overwrite | 'not a run folder'
train --log-dir {pole} --overwrite --learning-rate nan | --learning-rate
train --log-dir bad{surrogate} | UTF-8
sft --env CartPole-v1 | CartPole-v1 demonstrations
train --verifier regex --verifier-arg pattern=[0-9]+ --problems asked.jsonl --sft-steps 3 | Regex --sft-steps
train --problems none.jsonl | none.jsonl --problems
train --problems=~/none.jsonl | '/none.jsonl' --problems
train --verifier reward_model:{text} --problems asked.jsonl | 'run of rlenv train' 'rlenv reward-model'
train --verifier reward_model:t5 --problems asked.jsonl | 'rlenv reward-model'
train --save-every 60 --save-every-updates 1 | --save-every --save-every-updates
sft --resume {text} | 'rlenv train --resume'
train --resume {text} --task gsm8k | --task --resume
evaluate tiny --verifier arith | 'tiny' preset random
evaluate {text} --task countdown --lm-eval | 'countdown' gsm8k math500
train --problems sums.jsonl --column question | question COLUMN=NAME
train --column prompt=question | --column --problems
train --env-arg problems=sums.jsonl | --env-arg problems --problems
train --agent-arg verifier_kwargs=1 | --verifier-arg
train {sums} --eval-episodes 0 --eval-every 1 | --eval-episodes --eval-every
train --model {text} --tokenizer train:280 | --tokenizer
train --clip-range 1 | --agent-arg clip_range=
train --n-steps 2048 | 'it is --episodes-per-update here' names.md
train --batch-size=64 | 'it is --agent-arg num_minibatches= here' names.md
train --num-generations 8 | --group-size from-trl.md
check-gradient grpo --max-completion-length 8 | "No such option '--max-completion-length'."
train --agent ppo --agent-arg n_epochs=3 | ppo n_epochs 'it is --agent-arg num_epochs= here'
sft --lr 1 | --lr
train {pole_env} --agent strict.py:Strict | 'Strict.setup: N=16 is even'
train {pole_env} --agent my.py | my.py:MyAgent
train {pole_env} --agent my.py:Halfed | Halfed
train {pole_env} --agent my.py:rihgt | 'did you mean' right
train --verifier arith --tool my.py:rihgt | 'did you mean' right
train --verifier faulty.py:right | faulty.py:1
train {pole_env} --agent my.py:right | agents.Agent
sft --epochs 1 | --epochs
sft {sums} --epochs 1 --sft-steps 1 | --epochs --sft-steps
reward-model --pairs pairs.jsonl --learning-rate 0 | learning_rate
compare --agents rloo,grpo,rloo | rloo 2
compare --group-size 1 --agents reinforce,rloo | group_size
compare --agents reinforce,rloo --agent-arg num_epochs=3 | "'reinforce'" num_epochs
compare {pole_env} --log-dir papers --overwrite | compare.json
compare --agents rloo --verifier exact --problems letters.csv | 'none of the 2 problems' test
evaluate papers | papers 'run folder' --verifier
evaluate {text} --temperature 0.5 | --temperature --samples
evaluate {text} --samples 2 --stochastic | --stochastic
evaluate {text} --out here.txt | .jsonl
evaluate {text} --out notes.jsonl | --overwrite
evaluate {text} {sums} --split train --verifier my.py:many --verifier-workers 1 --episodes 2 | many 99 rewards
evaluate {text} --dtype bfloat16 | --dtype
evaluate {text} {pole} --out new.jsonl | --out 2
evaluate {pole} --samples 2 | --samples CartPole-v1
report runs | config.json 'rlenv train'
train --resume runs | 'not a run folder'
doctor torn | damaged
export torn out | checkpoint/agent.json
compare --env CartPole-v1 --agents ppo --log-dir study | compare.json damaged
report runs/first | figures
report {text} {pole} | environments
report {text} --out notes.jsonl | report
play --watch | --watch policy
play --stochastic | --stochastic --watch
play {pole} | CartPole-v1 text
export {pole} out | 'language model'
export {text} {text}/checkpoint/policy --overwrite | folder
export {text} {text}/.. --overwrite | folder
lab bandti | bandit
check-gradient rloo --agent-arg foo=1 | foo
verifiers lint | --all
verifiers lint my.py:right | --problems
"""
TABLE = [tuple(part.strip() for part in line.rsplit(" | ", 1)) for line in ROWS.strip().splitlines()]


def write_inputs(folder):
    sums = [
        {"question": f"{a}+{b}=", "target": a + b, "split": "train", "level": 1} for a in range(5) for b in range(5)
    ]
    tables = {
        "sums": sums,
        "asked": [{"prompt": f"say {number}"} for number in range(20)],
        "pairs": [{"prompt": f"{number}>", "chosen": "a", "rejected": "b"} for number in range(20)],
    }
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {
        "strict.py": "from rlenv.agents import RLOO\n\nclass Strict(RLOO):\n    def setup(self, env, group_size):\n"
        "        raise ValueError(f'N={self.episodes_per_update} is even')\n",
        "my.py": "def right(completions, solution):\n    return [0.0] * len(completions)\n"
        "def many(completions):\n    return [0.0] * 99\n",
        "typo.json": '{"lerning_rate": 1e-3}',
        "broken.yaml": "a: [1\nb: }",
        "broken.py": "1 / 0",
        "faulty.py": "None.right",
        "list.yaml": "- 1\n",
        "lists.yaml": "agent-arg: [clip_range=0.3]\n",
        "value.yaml": "seed: [1]\n",
        "tag.yaml": "seed: !!bool maybe\n",
        "itself.yaml": "verifier-arg: &table {digits: [*table]}\n",
        "twice.yaml": "seed: 1\nagent: ppo\nseed: 2\n",
        "twice.json": '{"settings": {"clip_range": 0.1, "clip_range": 0.2}}',
        "alike.yaml": "learning-rate: 1e-3\nlearning_rate: 1e-4\n",
        "code.yaml": "seed: !!python/object/apply:os.getcwd []\n",
        "letters.csv": "prompt,answer\na>,a\nc>,c\n",
        "thesis.tex": "years of work",
        "papers/thesis.tex": "years of work",
        "notes.jsonl": "my notes\n",
        "torn/config.json": "{",
        "study/compare.json": "{",
        "t5/config.json": '{"model_type": "t5"}',
        "runs/first/config.json": '{"env_id": "TextGen-v0", "agent": "grpo"}',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


def written(folder):
    """Return the paths of all files but what Python compiles."""
    return sorted(os.fsencode(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.parametrize(("line", "named"), TABLE, ids=[line for line, _ in TABLE])
def test_bad_input_is_one_line_and_nothing_is_written(line, named, inputs, text_run, pole_run, monkeypatch):
    monkeypatch.chdir(inputs)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = written(inputs)
    words = {
        "sums": "--problems sums.jsonl --column prompt=question --column answer=target",
        "pole_env": "--env CartPole-v1",
        "surrogate": "\udcff",
        "nested": "[" * 100_000,
    }
    arguments = shlex.split(line.format(text=text_run, pole=pole_run, **words))
    if arguments[0] in ("train", "sft", "compare", "reward-model") and not {"--log-dir", "--resume"} & {*arguments}:
        arguments += ["--log-dir", "run"]
    said = error_of(run(*arguments))
    for name in shlex.split(named.format(**words)):
        assert name in said, said
    assert len(said) < 600
    assert written(inputs) == before


def test_no_option_of_any_command_takes_what_is_no_number():
    """Over all options with decimals: they are refused before anything is done."""
    found = 0
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        for option in command.params:
            if option.type.name.upper() == "FLOAT":
                for value in ("nan", "inf", "9" * 400):
                    with pytest.raises(click.BadParameter, match="finite"):
                        command.make_context(name, [f"{option.opts[0]}={value}"])
                    found += 1
    assert found > 60


def test_a_long_value_is_not_echoed_whole(tmp_path):
    line = error_of(run("train", "--agent", "x" * 100_000, "--log-dir", tmp_path / "run"))
    assert len(line) < 1000 and line.endswith(list(AGENTS)[-1])


def test_a_model_id_without_a_network_is_one_line(monkeypatch, tmp_path):
    """Not one for every time that the hub's library tries again."""
    tries, said = [], SimpleQueue()
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}")
    monkeypatch.setattr(hub_http.time, "sleep", tries.append)
    monkeypatch.setattr(hub_http.logger, "handlers", [QueueHandler(said)])
    line = error_of(run("train", "--model", "somebody/model", "--log-dir", tmp_path / "run", "--device", "cpu"))
    assert tries and "somebody/model" in line and "tiny, small, base" in line
    assert said.empty()


MISSING = """
peft | lora | train --dry-run --model {base} --lora-rank 4
peft | lora | train --model {adapter}
peft | lora | sft --model {base} --lora-rank 4
peft | lora | compare --agents grpo --model {adapter}
math_verify | math | train --dry-run --verifier math
vllm | vllm | train --engine vllm
vllm | vllm | train --dry-run --engine vllm
wandb | wandb | train --track wandb
trackio | trackio | train --track trackio
"""


@pytest.mark.parametrize(("package", "extra", "line"), [row.split(" | ") for row in MISSING.strip().splitlines()])
def test_a_missing_package_is_said_with_its_extra_before_a_model_is_read(package, extra, line, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for place in ("rlenv.agents.language.loading", "rlenv.agents.language.policy"):
        monkeypatch.setattr(f"{place}.load_model", lambda *given: pytest.fail("the model is read"))
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    tiny_model("llama").save_pretrained(base)
    adapter.mkdir()
    facts = {"peft_type": "LORA", "base_model_name_or_path": str(base)}
    (adapter / "adapter_config.json").write_text(json.dumps(facts))
    said = error_of(run(*line.format(base=base, adapter=adapter).split(), "--log-dir", tmp_path / "run"))
    assert package in said and f"pip install 'rlenv-lm[{extra}]'" in said and not (tmp_path / "run").exists()
