"""Prompts that are conversations, on the command line: trained on, evaluated, resumed and refused."""

import json

import pytest
from inprocess import result_of, run
from tiny_models import write_chat_model

SMALL = ["--max-new-tokens", 4, "--episodes-per-update", 8, "--eval-episodes", 4, "--sft-steps", 1, "--sft-examples", 4]
CHAT = ["--verifier", "exact", "--problems", "chat.jsonl", "--tokenizer", "train:270"]
MODEL = "checkpoint/policy/model"


def conversation(text, answer=None):
    messages = [{"role": "system", "content": "Say it [/INST] <eos>."}, {"role": "user", "content": text}]
    return {"messages": messages, "answer": answer or text}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    rows = [conversation(f"the number {a} and the number {b}", f"{a}{b}") for a in range(8) for b in range(8)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}: ")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_supervised_start_hands_its_tokenizer_on(folder):
    result_of(run("sft", *SMALL[:2], *SMALL[4:], *CHAT, "--log-dir", "warm", "--json"))
    given = [*SMALL, "--sft-steps", 0, "--verifier", "exact", "--problems", "chat.jsonl", "--episodes", 8]
    result_of(run("train", *given, "--model", "warm", "--log-dir", "run", "--json"))
    saved = [(folder / name / MODEL / "tokenizer.json").read_bytes() for name in ("warm", "run")]
    assert saved[0] == saved[1]


def test_the_folder_of_the_model_may_go_after_the_run_has_begun(folder):
    write_chat_model(folder / "own")
    given = [*SMALL[:6], "--sft-steps", 0, "--verifier", "exact", "--problems", "chat.jsonl", "--model", "own"]
    result_of(run("train", *given, "--episodes", 8, "--log-dir", "run", "--json"))
    (folder / "own").rename(folder / "elsewhere")
    result_of(run("train", "--resume", "run", "--episodes", 16, "--json"))


def test_a_chat_template_file_may_go_after_the_run_has_begun(folder):
    given = [*SMALL, "--verifier", "exact", "--problems", "chat.jsonl", "--chat-template", "template.jinja"]
    trained = result_of(run("train", *given, "--episodes", 8, "--log-dir", "run", "--json"))
    assert "`system: Say it [/INST] <eos>.\\nuser: the number" in (folder / "run/samples.md").read_text()
    assert json.loads((folder / "run/config.json").read_text())["chat_template"] == str(folder / "template.jinja")
    (folder / "template.jinja").unlink()
    assert result_of(run("evaluate", "run", "--episodes", 4, "--json")) == trained["eval"]
    result_of(run("train", "--resume", "run", "--episodes", 16, "--json"))
