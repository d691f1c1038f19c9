"""The classic pipeline in three commands: imitate answers, learn preferences, train on the learned reward."""

import json

import pytest
from inprocess import result_of, run
from tiny_models import write_chat_model

from rlenv.agents.language.sizes import rates_of
from rlenv.verifiers import Problem, make_verifier

WORDS = [f"{a}{b}" for a in "abcdef" for b in "abcdef"]


def asked(word):
    return [{"role": "system", "content": "Say it."}, {"role": "user", "content": word}]


def rates(spec):
    """Return the mean rewards of the chosen and of the rejected answers of the test split, by a verifier."""
    judge, words = make_verifier(f"reward_model:{spec}"), [word for word in WORDS if word[0] == "c"]
    assert judge.chat
    problems = [Problem(asked(word)) for word in words]
    sides = [judge.verify_batch(problems, texts) for texts in (words, [f"{word}x" for word in words])]
    return [sum(verdict.reward for verdict in side) / len(words) for side in sides]


def test_an_adapter_learns_from_conversations_and_judges_a_run_of_them(tmp_path, monkeypatch):
    write_chat_model(tmp_path / "model")
    split = {word: "test" if word[0] == "c" else "train" for word in WORDS}
    rows = [{"prompt": asked(w), "chosen": w, "rejected": f"{w}x", "split": side} for w, side in split.items()]
    for name in ("pairs", "talks"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    learn = ["reward-model", "--pairs", "pairs.jsonl", "--batch-size", 10, "--json"]
    start = ["--model", "model", "--lora-rank", 4, "--steps", 6]
    learned = result_of(run(*learn, *start, "--log-dir", "judge"))
    assert learned["learning_rate"] == rates_of(20_000, True)[1]
    assert learned["eval"]["loss"] < learned["initial_eval"]["loss"]
    means = [learned["eval"]["mean_chosen"], learned["eval"]["mean_rejected"]]
    assert rates("judge") == pytest.approx(means, abs=1e-4), "the verifier rates as the training measured"
    assert not (tmp_path / "judge/model/model.safetensors").exists()

    small = ["--timesteps", 40, "--episodes-per-update", 8, "--eval-episodes", 6, "--max-new-tokens", 3, "--json"]
    small += ["--problems", "talks.jsonl", "--verifier", "reward_model:judge", "--model", "model"]
    trained = result_of(run("train", *small, "--log-dir", "rl"))
    assert result_of(run("evaluate", "rl", "--episodes", 6, "--json")) == trained["eval"]

    more = result_of(run(*learn, "--model", "judge", "--steps", 1, "--log-dir", "more"))
    assert more["initial_eval"] == pytest.approx(learned["eval"], abs=1e-5), "it goes on from the first one"
    for options in ([], ["--adapter"]):
        assert run("export", "judge", "out", *options).exit_code == 0
        assert rates("out") == pytest.approx(means, abs=1e-4)
        card = (tmp_path / "out/README.md").read_text()
        assert "held-out pairs: " in card and '"pairs": "pairs.jsonl"' in card and "rlenv reward-model" in card
    assert (tmp_path / "out/adapter_model.safetensors").is_file() and not (tmp_path / "out/model.safetensors").exists()
