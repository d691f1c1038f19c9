"""The classic pipeline in three commands: imitate answers, learn preferences, train on the learned reward."""

import json

import pytest
from inprocess import error_of, result_of, run
from tiny_models import write_chat_model

from agents.policies.language.models.presets import rates_of
from verifiers import Problem, make_verifier

WORDS = [f"{a}{b}" for a in "abcdef" for b in "abcdef"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rows = [{"q": f"{w}>", "a": w[::-1], "split": "test" if w[0] == "c" else "train"} for w in WORDS]
    pairs = [
        {"prompt": row["q"], "chosen": row["a"], "rejected": f"{row['a']}x", "split": row["split"]} for row in rows
    ]
    for name, lines in (("words.jsonl", rows), ("pairs.jsonl", pairs)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILE = ["--problems", "words.jsonl", "--column", "prompt=q", "--column", "answer=a"]


def test_three_commands(folder, monkeypatch):
    sft = result_of(run("sft", *FILE, "--epochs", 2, "--sft-batch-size", 8, "--log-dir", "sft", "--json"))
    assert (sft["examples"], sft["steps"], sft["eval"]) == (30, 8, None), "no verifier was named, so none judges"
    assert sft["eval_loss"] < sft["initial_eval_loss"]
    sizes = ["--batch-size", 10, "--epochs", 2, "--column", "split=split"]
    learned = result_of(run("reward-model", "--pairs", "pairs.jsonl", *sizes, "--log-dir", "judge", "--json"))
    assert (learned["pairs"], learned["held_out_pairs"], learned["steps"]) == (30, 6, 6)

    judge = make_verifier("reward_model:judge")
    texts = [(Problem(f"{w}>"), w[::-1], f"{w[::-1]}x") for w in WORDS if w[0] == "c"]
    chosen, rejected = ([judge.verify(row[0], row[side]).reward for row in texts] for side in (1, 2))
    assert sum(map(float, chosen)) / 6 == pytest.approx(learned["eval"]["mean_chosen"], abs=1e-5)
    right = sum(one > other for one, other in zip(chosen, rejected, strict=True))
    assert right / 6 == pytest.approx(learned["eval"]["accuracy"]), "the verifier rates as the training measured"

    small = ["--sft-steps", 0, "--timesteps", 40, "--episodes-per-update", 8, "--eval-episodes", 6, "--json"]
    small += ["--model", "sft", "--max-new-tokens", 3]
    trained = result_of(run("train", *FILE, *small, "--verifier", "reward_model:judge,exact=0", "--log-dir", "rl"))
    assert (
        json.loads((folder / "rl" / "config.json").read_text())["verifier"] == f"reward_model:{folder}/judge,exact=0.0"
    )
    assert "rollout/parts/exact" in (folder / "rl" / "progress.csv").read_text().splitlines()[0]
    (folder / "else").mkdir()
    monkeypatch.chdir(folder / "else")
    assert result_of(run("evaluate", "../rl", "--episodes", 6, "--json")) == trained["eval"]


def test_a_verifier_that_is_named_judges(folder):
    outcome = run("sft", *FILE, "--sft-steps", 1, "--verifier", "exact", "--eval-episodes", 6, "--log-dir", "sft")
    assert outcome.exit_code == 0, outcome.output
    assert "success 0.000" in outcome.stdout
    assert "loss on 6 held-out answers: " in outcome.stderr


def test_the_trunk_may_be_that_of_a_supervised_run(folder):
    assert run("sft", *FILE, "--sft-steps", 1, "--max-new-tokens", 5, "--log-dir", "sft").exit_code == 0
    (folder / "plain.jsonl").write_text('{"prompt": "ab>", "chosen": "ba", "rejected": "ab"}\n')
    args = ["--pairs", "plain.jsonl", "--test-fraction", 0, "--steps", 1, "--model", "sft", "--log-dir", "judge"]
    outcome = run("reward-model", *args)
    assert outcome.exit_code == 0, outcome.output
    assert "trained on 1 pairs; none is held out" in outcome.stdout
    assert json.loads((folder / "judge" / "config.json").read_text())["learning_rate"] == rates_of(500_000, False)[1]


def asked(word):
    return [{"role": "system", "content": "Say it."}, {"role": "user", "content": word}]


@pytest.fixture
def talks(folder):
    """A model with a chat template in `model`, pairs of conversations and problems that are conversations."""
    write_chat_model(folder / "model")
    split = {word: "test" if word[0] == "c" else "train" for word in WORDS}
    pairs = [{"prompt": asked(w), "chosen": w, "rejected": f"{w}x", "split": side} for w, side in split.items()]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    rows = [{"prompt": asked(word), "split": side} for word, side in split.items()]
    (folder / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def rates(spec):
    """Return the mean rewards of the chosen and of the rejected answers of the test split, by a verifier."""
    judge, words = make_verifier(f"reward_model:{spec}"), [word for word in WORDS if word[0] == "c"]
    assert judge.chat
    sides = [
        judge.verify_batch([Problem(asked(word)) for word in words], texts)
        for texts in (words, [f"{w}x" for w in words])
    ]
    return [sum(verdict.reward for verdict in side) / len(words) for side in sides]


def test_an_adapter_learns_from_conversations_and_judges_a_run_of_them(talks):
    learn = ["reward-model", "--pairs", "pairs.jsonl", "--batch-size", 10, "--json"]
    start = ["--model", "model", "--lora-rank", 4, "--steps", 6]
    learned = result_of(run(*learn, *start, "--log-dir", "judge"))
    assert learned["learning_rate"] == rates_of(20_000, True)[1]
    assert learned["eval"]["loss"] < learned["initial_eval"]["loss"]
    means = [learned["eval"]["mean_chosen"], learned["eval"]["mean_rejected"]]
    assert rates("judge") == pytest.approx(means, abs=1e-4), "the verifier rates as the training measured"
    assert not (talks / "judge/model/model.safetensors").exists()

    small = ["--timesteps", 40, "--episodes-per-update", 8, "--eval-episodes", 6, "--max-new-tokens", 3, "--json"]
    small += ["--problems", "talks.jsonl", "--verifier", "reward_model:judge", "--model", "model"]
    trained = result_of(run("train", *small, "--log-dir", "rl"))
    assert result_of(run("evaluate", "rl", "--episodes", 6, "--json")) == trained["eval"]

    more = result_of(run(*learn, "--model", "judge", "--steps", 1, "--log-dir", "more"))
    assert more["initial_eval"] == pytest.approx(learned["eval"], abs=1e-5), "it goes on from the first one"
    for options in ([], ["--adapter"]):
        assert run("export", "judge", "out", *options).exit_code == 0
        assert rates("out") == pytest.approx(means, abs=1e-4)
        card = (talks / "out/README.md").read_text()
        assert "held-out pairs: " in card and "rlenv reward-model --pairs pairs.jsonl" in card
    assert (talks / "out/adapter_model.safetensors").is_file() and not (talks / "out/model.safetensors").exists()


def test_a_reward_model_without_an_adapter_is_exported_whole(talks):
    learned = run("reward-model", "--pairs", "pairs.jsonl", "--model", "model", "--steps", 0, "--log-dir", "judge")
    assert learned.exit_code == 0, learned.output
    assert run("export", "judge", "out").exit_code == 0
    assert rates("out") == pytest.approx(rates("judge"), abs=1e-6)
    assert "no adapter to write alone; omit --adapter" in error_of(run("export", "judge", "out", "--adapter"))
