"""`rlenv export`: what transformers generates from an export is what the policy does, token for token."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from _rlenv_scripts.settings import resolved
from _rlenv_scripts.train import train
from huggingface_hub.errors import HfHubHTTPError
from inprocess import done, error_of, run
from tiny_models import PROMPTS, text_envs, tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from agents import Collector, Reinforce
from agents.files import seal

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def exported(*args):
    return done("export", *args)


def refusal(*args):
    return error_of(run("export", *args))


def trained(folder, name="llama", padding=0, pad_is_eos=False):
    """Write a run folder with a random model; return its agent and its environment."""
    envs = text_envs(num_envs=len(PROMPTS), pad_is_eos=pad_is_eos)
    model = tiny_model(name, int(envs.single_action_space.n) + padding, seed=1)
    agent = Reinforce(model, envs, episodes_per_update=4, device="cpu")
    agent.policy.tokenizer.chat_template = TEMPLATE
    agent.save(folder / "checkpoint")
    return agent, envs


def greedy(agent, envs):
    """Return the prompt and the completion of every problem in tokens, as the policy acts."""
    rollout = Collector(envs, agent.device).collect(agent.policy, len(PROMPTS), deterministic=True)
    rows = zip(rollout.observations["tokens"], rollout.observations["length"], strict=True)
    prompts = [tokens[:length].tolist() for tokens, length in rows]
    return prompts, [row[mask].tolist() for row, mask in zip(rollout.actions, rollout.mask, strict=True)]


@pytest.mark.parametrize(("name", "padding", "pad_is_eos"), [("gpt2", 0, False), ("llama", 6, True)])
def test_transformers_generates_what_the_policy_does(name, padding, pad_is_eos, tmp_path):
    agent, envs = trained(tmp_path / "run", name, padding, pad_is_eos)
    prompts, completions = greedy(agent, envs)
    exported(tmp_path / "run", tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer("abc")["input_ids"] == envs.task.tokenizer("abc")["input_ids"]
    ended = 0
    for prompt, completion in zip(prompts, completions, strict=True):
        generated = model.generate(torch.tensor([prompt]), max_new_tokens=12)[0, len(prompt) :].tolist()
        assert generated == completion
        ended += completion[-1] == tokenizer.eos_token_id
    assert len({tuple(completion) for completion in completions}) > 2
    assert 0 < ended < len(prompts)


def test_end_tokens_of_the_checkpoint_are_exported_and_no_sampling_settings(tmp_path):
    agent, _ = trained(tmp_path / "run")
    agent.policy.model.generation_config.update(do_sample=True, temperature=0.1, top_p=0.2, repetition_penalty=3.0)
    agent.save(tmp_path / "run" / "checkpoint")
    saved = tmp_path / "run" / "checkpoint" / "policy" / "model" / "generation_config.json"
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "eos_token_id": [1, 4]}))
    seal(tmp_path / "run" / "checkpoint")
    exported(tmp_path / "run", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    del found["transformers_version"]
    assert found == {"eos_token_id": [1, 4], "pad_token_id": agent.policy.tokenizer.pad_token_id}


@pytest.fixture(scope="module")
def folder(text_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(text_run, path)
    assert run("evaluate", path, "--samples", 2, "--episodes", 4, "--device", "cpu").exit_code == 0
    return path


def test_the_command_on_the_card_is_one_that_the_command_line_takes(folder, tmp_path):
    exported(folder, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    (command,) = [line for line in card.splitlines() if line.startswith("rlenv train")]
    with train.make_context("train", command.split()[2:]) as context:
        again = resolved(context.params)
    assert again == json.loads((folder / "config.json").read_text())


CARDS = [
    ("{here}/a.py:f,{here}/b.py:g=0.5,arith", "a.py:f,b.py:g=0.5,arith"),
    ("reward_model:{here}/judge", "reward_model:judge"),
    (["{here}/a.py:f", "arith=2"], "a.py:f,arith=2"),
]


@pytest.mark.parametrize(("verifier", "shown"), CARDS)
def test_the_card_names_every_verifier_and_no_folder_of_this_machine(verifier, shown, tmp_path):
    agent, _ = trained(tmp_path / "run")
    here = str(tmp_path / "private")
    verifier = json.loads(json.dumps(verifier).replace("{here}", here))
    kwargs = {"verifier": verifier, "verifier_kwargs": {"members": {"a": [f"{here}/a.py:f", 1]}, "file": here}}
    agent.origin = {"env": "TextGen-v0", "env_kwargs": kwargs}
    agent.save(tmp_path / "run" / "checkpoint")
    config = {"agent": "reinforce", "env_id": "TextGen-v0", "verifier": verifier}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    exported(tmp_path / "run", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| verifier | {shown} |\n" in card and "sampled by the verifier" in card and str(tmp_path) not in card
    assert 'members={"a": ["a.py:f", 1]}, file=private' in card
    [command] = [line for line in card.splitlines() if line.startswith("rlenv train")]
    assert isinstance(verifier, list) or shown in command


def test_the_best_checkpoint_is_exported_on_demand(folder, tmp_path):
    outcome = exported(folder, tmp_path / "out", "--best", "--json")
    assert json.loads(outcome.stdout)["checkpoint"] == str(folder / "best")
    weights = [folder / part / "policy" / "model" / "model.safetensors" for part in ("best", "checkpoint")]
    own = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert own == weights[0].read_bytes()


def test_no_verifier_is_imported_to_export(tmp_path):
    agent, _ = trained(tmp_path / "run")
    agent.origin = {"env": "nowhere:Env-v0", "env_kwargs": {"verifier": "nowhere:f"}}
    agent.save(tmp_path / "run" / "checkpoint")
    exported(tmp_path / "run", tmp_path / "out")


@pytest.fixture(scope="module")
def checkpoint_alone(tmp_path_factory):
    """A run folder that is only a checkpoint."""
    path = tmp_path_factory.mktemp("runs") / "bare"
    trained(path)
    return path


def test_an_earlier_export_is_replaced_and_nothing_else(checkpoint_alone, tmp_path):
    folder, out = checkpoint_alone, tmp_path / "out"
    exported(folder, out)
    assert "| verifier |" not in (out / "README.md").read_text()
    (out / "leftover").touch()
    exported(folder, out)
    assert not (out / "leftover").exists()
    other = tmp_path / "other"
    other.mkdir()
    exported(folder, other)  # an empty folder
    (other / "rlenv_export.json").unlink()
    (other / "notes.txt").write_text("mine")
    (other / "adapter_config.json").write_text("{}")
    assert "is not empty and not an earlier export" in refusal(folder, other)
    exported(folder, other, "--overwrite")
    assert (other / "notes.txt").read_text() == "mine"
    assert not (other / "adapter_config.json").exists()  # transformers would load it
    AutoModelForCausalLM.from_pretrained(other)


def test_a_model_without_a_tokenizer_and_a_best_checkpoint_that_is_none_are_refused(tmp_path):
    agent = Reinforce("tiny", text_envs(), episodes_per_update=4, device="cpu")
    agent.policy.tokenizer = None  # as of an environment that does not say which one it uses
    agent.save(tmp_path / "text" / "checkpoint")
    assert "holds no tokenizer" in refusal(tmp_path / "text", tmp_path / "out")
    assert "has no best checkpoint" in refusal(tmp_path / "text", tmp_path / "out", "--best")
    assert not (tmp_path / "out").exists()


class Hub:
    """Takes uploads like huggingface_hub.HfApi, or refuses them."""

    calls: list = []
    fault: Exception | None = None

    def create_repo(self, repo_id, **options):
        if Hub.fault is not None:
            raise Hub.fault
        Hub.calls.append((repo_id, options))
        return f"https://hub/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        Hub.calls.append((repo_id, sorted(path.name for path in folder_path.iterdir())))


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    return Hub


def test_a_push_uploads_the_whole_export(folder, hub, tmp_path):
    outcome = exported(folder, tmp_path / "out", "--push", "me/sums", "--private")
    assert outcome.stdout == "Exported to https://hub/me/sums\n"
    (repo, options), (same, files) = hub.calls
    assert repo == same == "me/sums" and options == {"private": True, "exist_ok": True}
    assert files == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)


REFUSED = SimpleNamespace(status_code=401, headers={}, request=None)
FAULTS = [
    HfHubHTTPError("401 Client Error: Unauthorized", response=REFUSED),
    ValueError("invalid name of a repository"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_failed_push_is_one_line_and_keeps_the_export(fault, checkpoint_alone, hub, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "fault", fault)
    line = refusal(checkpoint_alone, tmp_path / "out", "--push", "me/sums")
    assert "was exported but not uploaded to 'me/sums'" in line and "hf auth login" in line
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")
