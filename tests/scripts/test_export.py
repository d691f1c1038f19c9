"""`rlenv export`: what transformers generates from an export is what the policy does, token for token."""

import json
import re

import pytest
from inprocess import done, error_of, run
from tiny_models import PROMPTS, text_envs, tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlenv import TrainConfig
from rlenv.agents import Collector, Reinforce

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def trained(folder, name="llama", padding=0, pad_is_eos=False):
    """Write a run folder with a random model; return its agent and its environment."""
    envs = text_envs(num_envs=len(PROMPTS), pad_is_eos=pad_is_eos)
    model = tiny_model(name, int(envs.single_action_space.n) + padding, seed=1, layers=2)
    agent = Reinforce(model, envs, episodes_per_update=4, device="cpu")
    agent.policy.tokenizer.chat_template = TEMPLATE
    agent.save(folder / "checkpoint")
    return agent, envs


def card_of(folder, out, *options):
    done("export", folder, out, *options)
    return (out / "README.md").read_text()


@pytest.mark.parametrize(("name", "padding", "pad_is_eos"), [("gpt2", 0, False), ("llama", 6, True)])
def test_transformers_generates_what_the_policy_does(name, padding, pad_is_eos, tmp_path):
    agent, envs = trained(tmp_path / "run", name, padding, pad_is_eos)
    rollout = Collector(envs, agent.device).collect(agent.policy, len(PROMPTS), deterministic=True)
    completions = [row[mask].tolist() for row, mask in zip(rollout.actions, rollout.mask, strict=True)]
    done("export", tmp_path / "run", tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer("abc")["input_ids"] == envs.task.encoding.tokenizer("abc")["input_ids"]
    for tokens, length, completion in zip(*rollout.observations.values(), completions, strict=True):
        generated = model.generate(tokens[None, :length], max_new_tokens=12)[0, length:].tolist()
        assert generated == completion
    ended = sum(completion[-1] == tokenizer.eos_token_id for completion in completions)
    assert 0 < ended < len(PROMPTS) and len(set(map(tuple, completions))) > 2


@pytest.mark.parametrize("merged", [False, True], ids=["all weights", "merged"])
def test_end_tokens_of_the_checkpoint_are_exported_and_no_sampling_settings(merged, tmp_path):
    agent, envs = trained(tmp_path / "run")
    if merged:
        agent.policy.model.save_pretrained(tmp_path / "base")
        agent = Reinforce(str(tmp_path / "base"), envs, policy_kwargs={"lora_rank": 2}, device="cpu")
    agent.policy.model.generation_config.update(do_sample=True, temperature=0.1, eos_token_id=[1, 4])
    agent.policy.stop_token_ids = (1, 4)
    agent.save(tmp_path / "run" / "checkpoint")
    done("export", tmp_path / "run", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    del found["transformers_version"]
    assert found == {"eos_token_id": [1, 4], "pad_token_id": agent.policy.tokenizer.pad_token_id}


def options_of(card):
    return json.loads(re.search(r"```json\n(.*?)\n```", card, re.DOTALL)[1])


def test_the_options_on_the_card_are_a_file_that_the_command_takes(text_copy, tmp_path):
    done("evaluate", text_copy, "--samples", 2, "--episodes", 4, "--device", "cpu")
    card, file = card_of(text_copy, tmp_path / "out"), tmp_path / "options.json"
    file.write_text(json.dumps(options_of(card)))
    assert "rlenv train --config" in card and "save_every" not in options_of(card), "the defaults are left out"
    assert TrainConfig.from_file(file).flat() == json.loads((text_copy / "config.json").read_text())
    assert "before training" in card and "| pass@2" in card and "Split: test." in card


@pytest.mark.parametrize(
    ("verifier", "shown"),
    [
        ("{here}/a.py:f,{here}/b.py:g=0.5,arith", "a.py:f,b.py:g=0.5,arith"),
        ("reward_model:{here}/judge", "reward_model:judge"),
        (["{here}/a.py:f", "arith=2"], '["a.py:f", "arith=2"]'),
    ],
)
def test_the_card_names_every_verifier_without_importing_one_and_no_folder_of_this_machine(verifier, shown, tmp_path):
    agent, _ = trained(tmp_path / "run")
    here = str(tmp_path / "private")
    verifier = json.loads(json.dumps(verifier).replace("{here}", here))
    kwargs = {"verifier": verifier, "verifier_kwargs": {"members": {"a": [f"{here}/a.py:f", 1]}, "file": here}}
    agent.origin = {"env": "nowhere:TextGen-v0", "env_kwargs": kwargs}
    agent.save(tmp_path / "run" / "checkpoint")
    config = {"agent": "reinforce", "env_id": "TextGen-v0", "verifier": verifier}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    card = card_of(tmp_path / "run", tmp_path / "out")
    assert f"| verifier | {shown} |\n" in card and str(tmp_path) not in card
    assert '| its arguments | {"members": {"a": ["a.py:f", 1]}, "file": "private"} |' in card
    assert isinstance(verifier, list) or options_of(card)["verifier"] == shown


def test_the_best_checkpoint_is_exported_on_demand(text_run, tmp_path):
    outcome = done("export", text_run, tmp_path / "out", "--best", "--json")
    assert json.loads(outcome.stdout)["checkpoint"] == str(text_run / "best")
    weights = text_run / "best" / "policy" / "model" / "model.safetensors"
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights.read_bytes()


def test_an_earlier_export_is_replaced_and_nothing_else(tmp_path):
    trained(tmp_path / "run")
    out, other = tmp_path / "out", tmp_path / "other"
    assert "| verifier |" not in card_of(tmp_path / "run", out)
    (out / "leftover").touch()
    done("export", tmp_path / "run", out)
    assert not (out / "leftover").exists()
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    (other / "adapter_config.json").write_text("{}")
    assert "is not empty and not an earlier export" in error_of(run("export", tmp_path / "run", other))
    done("export", tmp_path / "run", other, "--overwrite")
    assert (other / "notes.txt").read_text() == "mine"
    assert not (other / "adapter_config.json").exists()  # transformers would load it
    AutoModelForCausalLM.from_pretrained(other)
    assert (other / "model.safetensors").stat().st_mode == (other / "config.json").stat().st_mode


def test_a_run_on_an_object_one_without_a_tokenizer_and_a_best_checkpoint_that_is_none_are_refused(tmp_path):
    agent, _ = trained(tmp_path / "run")
    refusal = error_of(run("evaluate", tmp_path / "run"))
    assert all(words in refusal for words in ("does not name its environment", "rlenv export", "--verifier"))
    agent.policy.tokenizer = None  # as of an environment that does not say which one it uses
    agent.save(tmp_path / "run" / "checkpoint")
    assert "holds no tokenizer" in error_of(run("export", tmp_path / "run", tmp_path / "out"))
    assert "has no best checkpoint" in error_of(run("export", tmp_path / "run", tmp_path / "out", "--best"))
    assert not (tmp_path / "out").exists()
