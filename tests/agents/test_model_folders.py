"""Model folders as they are found: vocabularies, heads, and files that are missing or not supported."""

import json

import pytest
import torch
from architectures import InDouble
from diagonal import slow
from identity_checks import check_law
from tiny_models import ALPHABET, CONTEXT, text_envs, tiny_model
from transformers import AutoModelForCausalLM

from rlenv.agents import RLOO, Reinforce
from rlenv.agents.language.loading import find_config
from rlenv.tokenizer import character_tokenizer

SMALL = {"episodes_per_update": 8, "device": "cpu"}


def save(model, folder, tokenizer=None):
    model.save_pretrained(folder)
    (tokenizer or character_tokenizer(ALPHABET)).save_pretrained(folder)
    return folder


# Vocabularies and heads.


@pytest.mark.parametrize(("vocab_size", "tied"), [(10, False), (16, True), slow(10, True), slow(16, False)])
def test_padded_vocabularies_and_tied_heads_act_train_and_save_alike(vocab_size, tied, tmp_path):
    """Tokens beyond the tokenizer's have no share of the probability; tests/scripts/test_export.py generates."""
    model = tiny_model("llama", vocab_size)
    model.config.tie_word_embeddings = tied
    if tied:
        model.tie_weights()
    save(model.double(), tmp_path / "given")
    envs = text_envs(8, group_size=2, max_new_tokens=6, tokenizer=str(tmp_path / "given"))
    kwargs = {"dtype": "float64", "temperature": 3.0}  # so that every model ends some episodes early
    agent = RLOO(tmp_path / "given", envs, policy_kwargs=kwargs, group_size=2, **SMALL)
    policy = agent.policy
    assert policy.vocab_size == 10
    assert (policy.model.lm_head.weight is policy.model.model.embed_tokens.weight) == tied
    with InDouble():
        agent.learn(total_episodes=8)
        check_law(policy, envs, 1e-10)
        agent.policy.save(tmp_path / "made")
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "made" / "model", dtype="float64")
        assert theirs.config.vocab_size == vocab_size
        assert theirs.config.tie_word_embeddings == tied


# What is missing, too small, or not supported: one line that says what was given, what is allowed, what to do.


def folder_with(tmp_path, **entries):
    """Return a folder with a model whose config.json has other entries."""
    tiny_model("llama", layers=2).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | entries))
    return tmp_path


def without_weights(tmp_path):
    folder_with(tmp_path)
    (tmp_path / "model.safetensors").unlink()


class Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (type(self.path).touch, (self.path / "ran",))


def pickled(path):
    without_weights(path)
    torch.save({"model.norm.weight": Code(path)}, path / "pytorch_model.bin")


REFUSED = {  # made by, the error
    "a pickle with code": (pickled, r"the weights of model .* are a pickle .*; convert them to safetensors"),
    "config alone": (without_weights, r"the weights of model .* cannot be read: .*safetensors.*; .*save_pretrained"),
    "a pickle cut to nothing": (
        lambda path: (without_weights(path), (path / "pytorch_model.bin").write_bytes(b"")),
        r"the weights of model .* are a pickle that is damaged or holds more .*; convert them to safetensors",
    ),
    "no number": (
        lambda path: folder_with(path, hidden_size="many"),
        r"config\.json of model .* is not valid: .*'hidden_size' expected int, got str .*; mend it",
    ),
    "a layer too many": (
        lambda path: folder_with(path, num_hidden_layers=3),
        r"the weights of model .* do not fit LlamaForCausalLM: 9 missing \(model\.layers\.2\..*\)",
    ),
    "a layer too few": (
        lambda path: folder_with(path, num_hidden_layers=1),
        r"the weights of model .* do not fit LlamaForCausalLM: 9 unexpected \(model\.layers\.1\..*\)",
    ),
    "small vocabulary": (
        lambda path: tiny_model("llama", 9).save_pretrained(path),
        r"tokenizer's vocabulary \(10\) does not fit the model's \(9\); use the model's own tokenizer, or resize",
    ),
    "short context": (
        lambda path: tiny_model("llama", context=16).save_pretrained(path),
        r"may be 20 tokens long, but the model's context ends at 16; lower max_prompt_tokens or max_new_tokens",
    ),
    "code": (
        lambda path: folder_with(path, model_type="somebodys", auto_map={"AutoModelForCausalLM": "code.Model"}),
        r"of type 'somebodys' needs its own code .*; rlenv never runs .*Supported: .*llama",
    ),
    "unknown type": (
        lambda path: folder_with(path, model_type="somebodys"),
        r"unknown model .*allowed: tiny, small, base, smollm2, a folder, a GGUF file or a model id .*somebodys",
    ),
    "images": (
        lambda path: folder_with(path, model_type="vit"),
        r"'vit' is not a causal language model of transformers; supported: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_cannot_be_used_is_refused_in_one_line(name, tmp_path):
    make, message = REFUSED[name]
    make(tmp_path)
    with pytest.raises(ValueError, match=message) as refusal:
        Reinforce(tmp_path, text_envs(8), **SMALL)
    line = str(refusal.value)
    assert "\n" not in line and len(line) < 500, line
    assert not (tmp_path / "ran").exists()


def test_code_beside_a_model_of_a_known_type_is_not_needed_and_not_run(tmp_path):
    folder_with(tmp_path, auto_map={"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"})
    (tmp_path / "code.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    assert find_config(tmp_path).model_type == "llama"
    agent = Reinforce(tmp_path, text_envs(8), **SMALL)
    assert type(agent.policy.model).__module__.startswith("transformers.")
    assert agent.policy.model.config.max_position_embeddings == CONTEXT
    assert not (tmp_path / "ran").exists()
