"""Bad input: one clear line, exit code 2, and nothing half-written."""

import json
import os
import warnings
from pathlib import Path

import click
import pytest
from _rlenv_scripts.console.errors import warnings_in_one_line
from _rlenv_scripts.main import COMMANDS, main
from click.testing import CliRunner
from huggingface_hub import constants as hub
from huggingface_hub.utils import _http as hub_http
from inprocess import error_of, run
from tiny_models import tiny_model

import rlenv.problems.stream
from agents import AGENTS, Reinforce
from rlenv.text.tokenizer import character_tokenizer

BEFORE = warnings.formatwarning
CASES = {
    "verifier": (["--verifier", "arit"], "unknown verifier 'arit'; did you mean arith?"),
    "agent": (["--agent", "reinforce-base"], "did you mean 'reinforce-baseline'?"),
    "agent argument": (["--agent", "grpo", "--agent-arg", "clip_rnage=0.3"], "did you mean 'clip_range'?"),
    "agent argument with an option": (
        ["--agent-arg", "gamma=0.9"],
        "--agent-arg gamma: there is an option for it",
    ),
    "clip range": (["--agent", "ppo", "--agent-arg", "clip_range=2"], "clip_range must be a finite number above 0 and"),
    "agent argument without value": (["--agent", "ppo", "--agent-arg", "clip_range"], "KEY=VALUE"),
    "groups of a pole": (["--agent", "grpo", "--env", "CartPole-v1", "--group-size", "4"], "it has no groups"),
    "group of one, grpo": (["--agent", "grpo", "--group-size", "1"], "GRPO compares episodes of a group"),
    "steps and episodes": (["--timesteps", "9", "--episodes", "9"], "--timesteps and --episodes exclude each other"),
    "no episodes": (["--episodes", "0"], "0 is not in the range x>=1"),
    "model": (["--model", "tinny"], "unknown model 'tinny'; did you mean 'tiny'?"),
    "device": (["--device", "cudaa"], "device 'cudaa'"),
    "environment": (["--env", "TextGn-v0"], "unknown environment 'TextGn-v0'"),
    "environment argument": (["--env", "CartPole-v1", "--env-arg", "gravitas=3"], "gravitas"),
    "prompt": (["--max-prompt-tokens", "3"], "allowed: 1 to 3 (max_prompt_tokens)"),
    "groups": (["--group-size", "7"], "group_size=7 does not divide episodes_per_update=256"),
    "learning rate": (["--learning-rate", "-1"], "learning_rate must be a finite number above 0, got -1.0"),
    "temperature": (["--temperature", "0"], "temperature"),
    "baseline": (["--baseline", "leave-one"], "did you mean 'leave-one-out'?"),
    "baseline of another agent": (["--agent", "reinforce", "--baseline", "none"], "takes no --baseline"),
    "digits": (["--verifier-arg", "digits=0"], "digits must be a whole number from 1 to 9, got 0"),
    "key without value": (["--verifier-arg", "digits"], "KEY=VALUE"),
    "tokenizer": (["--tokenizer", "./no/such/tokenizer"], "tokenizer './no/such/tokenizer' cannot be loaded"),
    "text option for control": (["--env", "CartPole-v1", "--verifier", "arith"], "--verifier has no meaning"),
    "adapter rank": (["--lora-rank", "0"], "lora_rank must be a whole number of at least 1, got 0"),
    "adapter rank above the width": (["--lora-rank", "129"], "lora_rank=129 is above the width of the model; use 1 to"),
    "adapter target": (
        ["--lora-rank", "4", "--lora-targets", "qproj"],
        "unknown LoRA target 'qproj'; did you mean 'q_",
    ),
    "adapter without rank": (["--lora-alpha", "4"], "lora_alpha is of an adapter: pass lora_rank, too"),
    "adapter argument with an option": (["--policy-arg", "lora_rank=4"], "there is an option for it, --lora-rank"),
    "adapter for control": (["--env", "CartPole-v1", "--lora-rank", "4"], "--lora-rank has no meaning"),
    "sft steps": (["--sft-steps", "-1"], "sft_steps must be a whole number of at least 0, got -1"),
    "minutes that are no number": (["--save-every", "nan"], "'--save-every': must be a finite number, got nan"),
    "seconds without an end": (["--process-timeout", "inf"], "'--process-timeout': must be a finite number, got inf"),
    "a verifier's time": (["--verifier-timeout", "nan"], "must be a finite number, got nan"),
    "a huge completion": (
        ["--max-new-tokens", "10000000"],
        "max_new_tokens must be a whole number of at least 1 and",
    ),
    "turns of a completion": (["--max-turns", "3"], "max_turns=3 is for dialogues, and Arith judges one completion"),
    "no turns": (["--verifier", "guess", "--max-turns", "0"], "max_turns must be a whole number of at least 1, got 0"),
    "a reply of no tokens": (["--verifier", "guess", "--max-reply-tokens", "0"], "max_reply_tokens must be a whole"),
    "a context below the prompt": (
        ["--verifier", "guess", "--max-context-tokens", "5"],
        "max_context_tokens must be a whole number of at least 7",
    ),
    "a huge prompt": (["--max-prompt-tokens", "10" * 11], "'--max-prompt-tokens': must be at most 92233"),
    "slots": (["--num-envs", "10000000"], "num_envs must be a whole number of at least 1 and at most 1048576"),
    "slots of a pole": (["--env", "CartPole-v1", "--num-envs", "1" * 18], "num_envs must be a whole number of at"),
    "seed": (["--seed", "9" * 22], "'--seed': must be at most 9223372036854775807"),
    "demonstrations per step": (["--sft-batch-size", "9" * 18], "sft_batch_size must be a whole number of at least 1"),
    "rate of the warm start": (["--sft-learning-rate", "1e300"], "sft_learning_rate must be a finite number above 0"),
    "option": (["--lerning-rate", "1"], "--learning-rate"),
    "config": (["--config", "no-such-file.json"], "no-such-file.json"),
}


def fails(*args, folder):
    outcome = CliRunner().invoke(main, [str(arg) for arg in args])
    assert outcome.exit_code == 2, outcome.output
    lines = [line for line in outcome.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, outcome.stderr
    assert not folder.exists()
    return lines[0]


@pytest.mark.parametrize(("args", "message"), CASES.values(), ids=CASES)
def test_train_says_what_is_wrong(args, message, tmp_path):
    folder = tmp_path / "run"
    line = fails("train", *args, "--log-dir", folder, folder=folder)
    assert message in line
    assert len(line) < 300


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_warm_start_that_is_asked_for_needs_demonstrations(command, tmp_path):
    arguments = {"compare": ["--agents", "reinforce", "--no-figures"]}.get(command, [])
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"say {number}"}) + "\n" for number in range(20)))
    arguments = [*arguments, "--verifier", "regex", "--verifier-arg", "pattern=[0-9]+", "--problems", file]
    line = fails(command, *arguments, "--sft-steps", 3, "--log-dir", tmp_path / "run", folder=tmp_path / "run")
    assert "Regex has no demonstration for 'say " in line
    assert line.endswith("(--sft-steps 0 skips the warm start)")


@pytest.mark.parametrize(
    ("below", "command"),
    [
        pytest.param("thesis.tex", "train", id="a file-train"),
        pytest.param("thesis.tex", "sft", id="a file-sft", marks=pytest.mark.slow),
        pytest.param("thesis.tex", "compare", id="a file-compare"),
        pytest.param(os.devnull, "train", id="a device-train", marks=pytest.mark.slow),
        pytest.param(os.devnull, "sft", id="a device-sft"),
        pytest.param(os.devnull, "compare", id="a device-compare", marks=pytest.mark.slow),
    ],
)
def test_a_folder_below_something_else_is_refused(command, below, tmp_path):
    place = tmp_path / below
    if not place.exists():
        place.write_text("years of work")
    arguments = {"compare": ["--agents", "reinforce", "--no-figures"]}.get(command, [])
    line = fails(command, *arguments, "--log-dir", place / "run", folder=place / "run")
    assert line == f"Error: the folder {str(place / 'run')!r} cannot be made: {str(place)!r} is not a folder"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "t5"}, "model type 't5' is an encoder-decoder; supported: "),
        ({"model_type": "mamba"}, "model type 'mamba' keeps a recurrent state; supported: "),
        ({"model_type": "own", "auto_map": {"AutoConfig": "code.Config"}}, "rlenv never runs code of a checkpoint"),
        (
            {"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 16}
            | {"num_hidden_layers": 1, "num_attention_heads": 2},
            "the weights of model ",
        ),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_a_model_folder_that_cannot_be_used(config, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert message in fails("train", "--model", tmp_path, "--log-dir", tmp_path / "run", folder=tmp_path / "run")


def test_a_vocabulary_that_does_not_fit_the_model(tmp_path):
    small = tmp_path / "sft"
    outcome = CliRunner().invoke(main, ["sft", "--sft-steps", "0", "--eval-episodes", "2", "--log-dir", str(small)])
    assert outcome.exit_code == 0, outcome.output
    character_tokenizer("0123456789+-*=abcdefgh").save_pretrained(tmp_path / "tokenizer")
    args = ["--model", small, "--tokenizer", tmp_path / "tokenizer", "--log-dir", tmp_path / "run"]
    assert "does not fit the model's" in fails("train", *args, folder=tmp_path / "run")


def test_a_context_that_does_not_fit_the_model(tmp_path):
    small = tmp_path / "sft"
    CliRunner().invoke(main, ["sft", "--sft-steps", "0", "--eval-episodes", "2", "--log-dir", str(small)])
    args = ["--model", small, "--max-new-tokens", 2000, "--log-dir", tmp_path / "run"]
    assert "the model's context ends at" in fails("train", *args, folder=tmp_path / "run")


def test_an_existing_run_folder_is_kept(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    outcome = CliRunner().invoke(main, ["train", "--log-dir", str(folder)])
    assert outcome.exit_code == 2
    assert "pass --overwrite" in outcome.stderr
    assert (folder / "config.json").read_text() == "{}"


def test_a_folder_that_is_no_run_folder_is_never_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    outcome = CliRunner().invoke(main, ["train", "--log-dir", str(tmp_path), "--overwrite"])
    assert outcome.exit_code == 2
    assert "is not a run folder" in outcome.stderr
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_bad_option_leaves_the_run_folder_that_would_be_overwritten(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    outcome = CliRunner().invoke(main, ["train", "--log-dir", str(folder), "--overwrite", "--learning-rate", "nan"])
    assert outcome.exit_code == 2
    assert (folder / "config.json").exists()


@pytest.mark.parametrize("exists", [True, False])
def test_evaluate_wants_a_run_folder(exists, tmp_path):
    folder = tmp_path / "run"
    if exists:
        folder.mkdir()
    outcome = CliRunner().invoke(main, ["evaluate", str(folder)])
    assert outcome.exit_code == 2
    line = f"Error: {str(folder)!r} is not a run folder: there is no checkpoint/agent.json in it"
    hint = "; to evaluate a model folder or id, say what judges it: --verifier NAME"
    assert outcome.stderr.strip() == line + hint


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1\nb: }", "is not a valid YAML file: while parsing"),
        ("- 1\n", "must hold a table of options"),
        ("", "must hold a table of options"),
        ("1: 2\n", "sets the unknown option '1'"),
        ("seed: [1]\n", "sets 'seed' to a list"),
        ("seed: !!python/object/apply:os.getcwd []\n", "is not a valid YAML file: could not determine a constructor"),
    ],
)
def test_a_bad_yaml_configuration_is_one_line_and_runs_nothing(tmp_path, text, line):
    config, folder = tmp_path / "config.yaml", tmp_path / "run"
    config.write_text(text)
    assert line in fails("train", "--config", config, "--log-dir", folder, folder=folder)


def test_a_configuration_with_an_unknown_option_names_the_closest(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"lerning_rate": 1e-3}))
    folder = tmp_path / "run"
    assert "did you mean 'learning_rate'?" in fails("train", "--config", config, "--log-dir", folder, folder=folder)


def test_a_library_fault_stays_loud(monkeypatch, tmp_path):
    import numpy as np

    monkeypatch.setattr("_rlenv_scripts.runs.run_folder.checkpoint_of", lambda run: np.zeros(3).reshape(2, 2))
    outcome = CliRunner().invoke(main, ["evaluate", str(tmp_path)])
    assert isinstance(outcome.exception, ValueError)


def test_sft_needs_a_text_environment(tmp_path):
    folder = tmp_path / "run"
    line = fails("sft", "--env", "CartPole-v1", "--log-dir", folder, folder=folder)
    assert "CartPole-v1 has no demonstrations" in line


@pytest.mark.parametrize(("name", "hint"), [("nosuch", ""), ("bandti", "did you mean 'bandit'? ")])
def test_lab_wants_an_experiment_it_knows(name, hint, tmp_path):
    line = fails("lab", name, "--out", tmp_path / "figures", folder=tmp_path / "figures")
    assert line.startswith(f"Error: unknown lab {name!r}; {hint}allowed: snr, baselines, bandit")


def test_lab_wants_a_seed(tmp_path):
    assert "--seed" in fails("lab", "bandit", "--seed", "-1", folder=tmp_path / "figures")


def test_no_option_of_any_command_takes_what_is_no_number():
    """Over all options with decimals: they are refused before anything is done."""
    found = 0
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        for option in command.params:
            if isinstance(option.type, click.types.FloatParamType):
                for value in ("nan", "inf"):
                    with pytest.raises(click.BadParameter, match="must be a finite number"):
                        command.make_context(name, [f"{option.opts[0]}={value}"], resilient_parsing=True)
                    found += 1
    assert found > 60


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_folder_whose_name_is_not_utf_8_is_one_line(command, tmp_path):
    folder = Path(f"{tmp_path}/bad\udcff")
    assert f"must be text in UTF-8, got '{tmp_path}/bad" in fails(command, "--log-dir", folder, folder=folder)


def test_a_long_value_is_not_echoed_whole(tmp_path):
    args = ["train", "--agent", "x" * 1_000_000, "--log-dir", tmp_path / "run"]
    line = fails(*args, folder=tmp_path / "run")
    assert len(line) < 1000 and line.endswith(list(AGENTS)[-1])
    with pytest.raises(ValueError, match="gamma must be") as caught:
        Reinforce("auto", "CartPole-v1", gamma="x" * 1_000_000)
    assert len(str(caught.value)) < 400


def test_a_vocabulary_that_the_weights_cannot_have_is_one_line(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text()) | {"vocab_size": 10**12}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    args = ["train", "--model", tmp_path / "model", "--log-dir", tmp_path / "run", "--max-new-tokens", 8]
    line = fails(*args, folder=tmp_path / "run")
    assert "a vocabulary of 1000000000000 words by 16 numbers" in line and line.endswith("mend vocab_size")


def test_warnings_of_ours_are_one_line():
    place = ("warnings.py", 7)
    with warnings_in_one_line():
        assert warnings.formatwarning("why", UserWarning, rlenv.problems.stream.__file__, 7) == "warning: why\n"
        assert warnings.formatwarning("why", UserWarning, *place) == BEFORE("why", UserWarning, *place)
        assert "DeprecationWarning" in warnings.formatwarning(
            "why", DeprecationWarning, rlenv.problems.stream.__file__, 7
        )
    assert warnings.formatwarning is BEFORE


def test_a_model_id_without_a_network_is_one_line(monkeypatch, tmp_path, caplog):
    """Not one for every time that the hub's library tries again."""
    tries = []
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}")
    monkeypatch.setattr(hub_http.time, "sleep", tries.append)
    monkeypatch.setattr(hub_http.logger, "handlers", [caplog.handler])
    line = error_of(run("train", "--model", "somebody/model", "--log-dir", tmp_path / "run", "--device", "cpu"))
    assert tries and line.startswith("Error: unknown model 'somebody/model'; allowed: tiny, small, base, ")
    assert caplog.messages == []
