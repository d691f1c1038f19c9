"""Demonstrations: the verifier's right answers in the shape of the batched environment, for a warm start."""

import random

import gymnasium as gym
import pytest
import torch
from chat_families import chatml
from dialogues import Talker
from identity_checks import assert_close
from tiny_models import tiny_policy

from agents import Rollout
from rlenv.demonstrations import demonstrate
from rlenv.task import TextGenTask
from rlenv.tokenizer import character_tokenizer
from rlenv.vector_env import TextGenVectorEnv
from verifiers import Arith, Guess, Verifier

MIXED = {"verifier": "arith", "verifier_kwargs": {"digits": 2, "operators": "+-*"}}


def task_of(verifier, **kwargs):
    return TextGenTask(verifier, **{"test_fraction": 0.0, **kwargs})


def test_the_observations_are_those_of_the_environments_reset_and_prompts_are_padded_on_the_right():
    problems = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "12+34=", "answer": "46"}]
    env = TextGenVectorEnv(8, verifier="arith", problems=problems, test_fraction=0.0)
    observation, _ = env.reset(seed=3)
    shown = demonstrate(env.task, 0, 8).observations
    assert all(torch.equal(shown[name], observation[name].as_subclass(torch.Tensor)) for name in ("tokens", "length"))
    assert len(set(shown["length"].tolist())) > 1
    for tokens, length in zip(shown["tokens"], shown["length"], strict=True):
        assert tokens[length:].eq(0).all() and not tokens[:length].eq(0).any()


def test_the_mask_comes_from_lengths_and_not_from_tokens():
    tokenizer = character_tokenizer(Arith(2, "+-*").alphabet)
    tokenizer.pad_token = tokenizer.eos_token
    plain_task, same_pad = TextGenTask(**MIXED), TextGenTask(**MIXED, tokenizer=tokenizer)
    assert torch.equal(demonstrate(plain_task, 0, 20).mask, demonstrate(same_pad, 0, 20).mask)


def test_a_later_start_goes_on_in_the_stream_and_groups_repeat_no_demonstration():
    task = TextGenTask(**MIXED)
    whole, part = demonstrate(task, 0, 10), demonstrate(task, 6, 4)
    assert torch.equal(whole.observations["tokens"][6:], part.observations["tokens"])
    assert torch.equal(whole.actions[6:, : part.actions.shape[1]], part.actions)
    assert torch.equal(whole.mask[6:].sum(1), part.mask.sum(1))
    assert torch.equal(whole.actions, demonstrate(TextGenTask(**MIXED, group_size=4), 0, 10).actions)


def test_demonstrations_of_a_file_fit_whatever_their_length(tmp_path):
    path = tmp_path / "poems.jsonl"
    path.write_text('{"prompt": "short", "answer": "é"}\n{"prompt": "long", "answer": "' + "é<eos>" * 20 + '"}\n')
    shown = demonstrate(task_of("arith", problems=str(path)), 0, 2)
    assert sorted(shown.mask.sum(1).tolist()) == [2, 121] and shown.positions is None
    assert shown.actions.eq(1).sum(1).eq(1).all()


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


def test_episodes_of_several_lengths_stand_beside_each_other_and_are_closed():
    closed = []

    class Uneven(Talker):
        def demonstration_turns(self, problem, rng):
            return ["a"] * rng.randint(0, 3) + ["d"]

        def dialogue(self, problem):
            dialogue = super().dialogue(problem)
            dialogue.close = lambda: closed.append(1)
            return dialogue

    shown = demonstrate(task_of(Uneven()), 0, 30)
    turns = (shown.positions[:, 1:] - shown.positions[:, :-1] > 1).logical_and(shown.mask[:, 1:]).sum(1) + 1
    assert set(turns.tolist()) == {1, 2, 3, 4} and len(closed) == turns.gt(1).sum()
    assert demonstrate(task_of(Talker("d")), 0, 4).positions is None, "of one turn"


def test_the_loss_is_that_of_the_turns_in_their_contexts():
    task = task_of(Talker("ab", "c", "d"))
    policy = tiny_policy("llama", gym.make_vec("TextGen-v0", 1, verifier=task.verifier, test_fraction=0.0))
    shown = demonstrate(task, 0, 5)
    rollout = Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask, shown.positions)
    found = policy.evaluate(rollout)["log_probs"]
    ids = shown.observations["tokens"]
    logits = policy.model(ids, torch.ones_like(ids)).logits.log_softmax(-1)
    expected = logits[torch.arange(5)[:, None], shown.positions - 1].gather(2, shown.actions[..., None])[..., 0]
    assert_close(found[shown.mask].double(), expected[shown.mask].double(), 1e-5, "teacher forcing")


def test_listed_problems_may_have_a_column_of_turns(tmp_path):
    path = tmp_path / "turns.jsonl"
    path.write_text('{"prompt": "a", "answer": "d", "turns": ["abcabc", "d"]}\n{"prompt": "b", "answer": "d"}\n')

    class FromFile(Talker):
        demonstration_turns = Verifier.demonstration_turns

    task = task_of(FromFile(), problems=str(path), max_reply_tokens=12)
    shown = demonstrate(task, 0, 2)
    said = [task.tokenizer.decode(row[keep].tolist()) for row, keep in zip(shown.actions, shown.mask, strict=True)]
    assert sorted(said) == ["abcabc<eos>d<eos>", "d<eos>"] and task.max_new_tokens == 7
    path.write_text('{"prompt": "a", "answer": "d", "turns": "abc"}\n')
    with pytest.raises(ValueError, match=r"'turns' of 'a'.*'abc'"):
        task_of(FromFile(), problems=str(path))


def test_demonstrated_guesses_are_consistent_and_find_the_number():
    verifier = Guess()
    for seed in range(100):
        problem = verifier.sample(random.Random(seed))
        turns = verifier.demonstration_turns(problem, random.Random(f"{seed}/turns"))
        low, high = 1, 64
        for guess in map(int, turns):
            assert low <= guess <= high
            low, high = (guess + 1, high) if guess < int(problem.answer) else (low, guess - 1)
        assert turns[-1] == problem.answer and len(turns) <= verifier.max_turns == 7
    assert Guess(turns=1).demonstration_turns(problem, random.Random(0)) == [problem.answer]
