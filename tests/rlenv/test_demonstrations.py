"""Demonstrations: the verifier's right answers in the shape of the batched environment, for a warm start."""

import gymnasium as gym
import pytest
from chat_families import chatml
from dialogues import Talker

from rlenv.demonstrations import demonstrate
from rlenv.task import TextGenTask
from rlenv.verifiers import Dialogue


def task_of(verifier, **kwargs):
    return TextGenTask(verifier, **{"test_fraction": 0.0, **kwargs})


# Of dialogues: the turns are the verifier's, the replies are what the environment answers.


@pytest.mark.parametrize(
    "settings",
    [{}, {"tokenizer": chatml(), "chat": True}, {"stop_strings": ["c"]}, {"verifier_workers": 1}],
    ids=["plain", "chat", "stop strings", "workers"],
)
def test_playing_the_turns_back_gives_the_same_context(settings):
    settings = {"verifier": Talker("ab", "c", "d"), "test_fraction": 0.0, "disable_env_checker": True, **settings}
    env = gym.make("rlenv:TextGen-v0", **settings).unwrapped
    env.reset(seed=3)
    shown = demonstrate(env.task, 0, 1)
    tokens, actions, positions = shown.observations["tokens"][0], shown.actions[0], shown.positions[0]
    assert shown.mask.all() and tokens[positions].tolist() == actions.tolist()
    steps = [env.step(action) for action in actions.tolist()]
    length = int(positions[-1]) + 1
    assert steps[-1][0]["tokens"][:length].tolist() == tokens[:length].tolist() and steps[-1][2]
    turns = [(info["turn"], info["reply"]) for *_, info in steps if "reply" in info]
    assert turns == [("ab", "abab"), ("c", "cc")] and int(shown.observations["length"][0]) == int(positions[0])
    env.close()


def test_dialogues_of_demonstrations_are_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(Dialogue, "close", lambda self: closed.append(1))
    demonstrate(task_of(Talker("ab", "c", "d")), 0, 3)
    assert len(closed) == 3


def test_the_turns_in_a_column_of_listed_problems_are_shown():
    problems = [{"prompt": "a", "answer": "d", "turns": turns} for turns in (["abcabc", "d"], ["d"])]
    task = task_of(Talker("c", "d"), problems=problems, max_reply_tokens=12)
    shown = demonstrate(task, 0, 2)
    rows = zip(shown.actions, shown.mask, strict=True)
    said = [task.encoding.tokenizer.decode(row[keep].tolist()) for row, keep in rows]
    assert sorted(said) == ["abcabc<eos>d<eos>", "d<eos>"] and task.encoding.max_new_tokens == 7


def test_all_demonstrations_that_are_too_long_are_counted():
    """One is as long as is allowed: with its end token, four tokens."""
    problems = [{"prompt": "+", "answer": answer} for answer in ("1234567", "12", "123", "1234", "12345")]
    with pytest.raises(ValueError, match=r"3 of 5 .* 4 tokens, .* 8.*max_new_tokens=8"):
        demonstrate(task_of("exact", problems=problems, max_new_tokens=4), 0, 5)
    demonstrate(task_of("exact", problems=problems, max_new_tokens=8), 0, 5)
