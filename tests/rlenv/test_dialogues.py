"""Episodes of several turns: the single environment by hand, and the batched one, which must do the same."""

import random
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
import torch
from chat_families import chatml
from dialogues import LETTERS, Echoing, number_of
from gymnasium.vector import AutoresetMode
from textgen_reference import SlotReference, assert_same, plain

from rlenv.autoreset import make_vector_env
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier

EOS = 1


class Scripted(Verifier):
    """Answers every turn as the test says, and remembers what it heard and how often dialogues were closed."""

    alphabet = LETTERS
    prompt_length, answer_length, reply_length, max_turns = 2, 3, 4, 3
    reward_range = (-1.0, 2.0)

    def __init__(self, *replies, last=0.25, deterministic=True, closing=None):
        self.replies, self.last, self.heard, self.closed = replies, Verdict(last), [], 0
        self.deterministic, self.closing = deterministic, closing

    def sample(self, rng):
        return Problem("ab")

    def dialogue(self, problem):
        outer = self

        class Script(Dialogue):
            deterministic = outer.deterministic

            def __init__(self):
                self.left = list(outer.replies)

            def reply(self, turn):
                outer.heard.append(turn)
                reply = self.left.pop(0)
                if isinstance(reply, Exception):
                    raise reply
                return reply

            def out_of_budget(self):
                return outer.last

            def close(self):
                outer.closed += 1
                if outer.closing is not None:
                    raise outer.closing

        return Script()


def single(verifier, **kwargs):
    settings = {"max_new_tokens": 3, "test_fraction": 0.0, "disable_env_checker": True, **kwargs}
    return gym.make("TextGen-v0", verifier=verifier, **settings).unwrapped


def play(env, text):
    """Take the tokens of a text, "$" for the end token; return what the last step returned."""
    env.reset(seed=0) if env._prompt is None else None
    for letter in text:
        token = EOS if letter == "$" else env.unwrapped.task.tokenizer.convert_tokens_to_ids(letter)
        out = env.step(token)
    return out


def context(env, obs):
    return env.unwrapped.task.tokenizer.decode(obs["tokens"][: obs["length"]]).replace("<eos>", "$")


def test_a_reply_is_appended_after_a_turn_and_pays_for_it():
    verifier = Scripted(Reply("dd", 0.5), Reply(reward=0.125, verdict=Verdict(1.0, {"right": 1.0})))
    env = single(verifier)
    obs, reward, over, cut, info = play(env, "c$")
    assert context(env, obs) == "abc$dd" and (reward, over, cut) == (0.5, False, False)
    assert info == {"turn": "c", "reply": "dd", "appended": 2}
    obs, reward, over, cut, info = play(env, "b$")
    assert context(env, obs) == "abc$ddb$" and (reward, over, cut) == (1.125, True, False)
    assert info["completion"] == "b" and info["turns"] == 2 and info["verdict"] == {"right": 1.0} and info["is_success"]
    said = [("user", "ab"), ("assistant", "c"), ("user", "dd"), ("assistant", "b")]
    assert info["messages"] == [{"role": role, "content": content} for role, content in said]
    assert verifier.heard == ["c", "b"] and verifier.closed == 1


def test_a_turn_that_was_cut_off_gets_its_end_token():
    env = single(Scripted(Reply("d"), Reply(), Reply()))
    obs, _, over, _, info = play(env, "ccc")
    assert context(env, obs) == "abccc$d" and not over and info["appended"] == 2
    assert play(env, "c$")[4]["appended"] == 0, "an empty reply"


def test_turns_run_out():
    verifier = Scripted(Reply("d"), Reply("d"), Reply("d", 0.5), last=0.25)
    env = single(verifier)
    play(env, "a$a$")
    obs, reward, over, cut, info = play(env, "a$")
    assert (reward, over, cut) == (0.75, True, True) and info["turns"] == 3 and "appended" not in info
    assert context(env, obs) == "aba$da$da$", "the last reply is not read"


@pytest.mark.parametrize(("limits", "turns"), [({"max_context_tokens": 8}, 2), ({"max_reply_tokens": 1}, 1), ({}, 3)])
def test_the_context_runs_out(limits, turns):
    env = single(Scripted(Reply("dd"), Reply("dd"), Reply("dd")), **limits)
    obs, _ = env.reset(seed=0)
    over = False
    while not over:
        obs, reward, over, cut, info = play(env, "a$")
    assert info["turns"] == turns and cut and reward == 0.25
    assert env.observation_space.contains(obs)


def test_a_turn_ends_where_the_context_does():
    env = single(Scripted(Reply("dd"), Reply("dd")), max_context_tokens=7)
    play(env, "a$")
    obs, _, over, cut, info = play(env, "b")
    assert context(env, obs) == "aba$ddb" and over and cut and info["completion"] == "b"


def test_a_stop_string_ends_a_turn_and_stays_in_its_text():
    verifier = Scripted(Reply("d"), Reply(verdict=Verdict(1.0)))
    env = single(verifier, stop_strings=["bc", "dd"])
    obs, _, over, _, info = play(env, "bc")
    assert context(env, obs) == "abbcd" and info["turn"] == "bc" and not over
    assert play(env, "dd")[2] and verifier.heard == ["bc", "dd"]
    plain = gym.make("TextGen-v0", verifier="arith", stop_strings="+", disable_env_checker=True).unwrapped
    plain.reset(seed=0)
    *_, over, cut, info = plain.step(plain.task.tokenizer.convert_tokens_to_ids("+"))
    assert over and not cut and info["completion"] == "+"


@pytest.mark.parametrize(
    ("reply", "error", "named"),
    [(KeyError("lost"), KeyError, "lost"), (Reply("xyz"), ValueError, "xyz")],
    ids=["raises", "cannot be spelled"],
)
def test_failing_replies_are_errors_of_the_verifier(reply, error, named):
    with pytest.raises(error, match=named):
        play(single(Scripted(reply)), "$")
    *_, reward, over, cut, info = play(single(Scripted(reply), flag_errors=True), "$")
    assert (reward, over, cut) == (0, True, False) and info["verdict_status"] == "error"
    assert named in info["verdict_reason"] and info["verifier_failed"]


def test_a_dialogue_that_is_given_up_is_closed():
    verifier = Scripted(Reply("d"), Reply("d"))
    env = single(verifier)
    play(env, "c$")
    env.reset()
    assert verifier.closed == 1
    play(env, "c$")
    env.close()
    assert verifier.closed == 2


def test_a_dialogue_that_cannot_be_closed_is_an_error_or_a_warning():
    replies = [Reply(verdict=Verdict(1.0))]
    with pytest.raises(OSError, match="gone"):
        play(single(Scripted(*replies, closing=OSError("gone"))), "a$")
    verifier = Scripted(*replies, closing=OSError("gone"))
    env = single(verifier, flag_errors=True)
    with pytest.warns(UserWarning, match=r"^Script\.close failed: OSError: gone"):
        assert play(env, "a$")[1] == 1.0
    env.close()
    assert verifier.closed == 1


@pytest.mark.parametrize(
    ("turns", "first", "second", "verdict", "total"),
    [
        (2, 1.5, 1.0, 0.0, 2.5),
        (2, -0.75, -0.5, 0.0, -1.25),
        (2, 1.5, 0.0, -2.0, None),
        (1, 1.25, 0.0, 0.5, None),
        (1, 1.25, 0.0, 1.0, 2.25),
    ],
)
def test_the_reward_of_all_turns_must_be_in_the_declared_range(turns, first, second, verdict, total):
    replies = Reply("d", first), Reply(reward=second, verdict=Verdict(verdict))
    env = single(Scripted(*replies, last=verdict), max_turns=turns)
    info = play(env, "a$" * turns)[4]
    assert info["verdict_status"] == ("ok" if total is None else "error")
    if total is not None:
        assert f"the reward {total} (of its turns: {first + second})" in info["verdict_reason"]


def test_the_context_holds_everything_by_default():
    task = single(Echoing(), max_turns=5, max_reply_tokens=7).task
    assert task.max_length == task.max_prompt_tokens + 5 * 3 + 4 * 7
    assert task.metadata["max_episode_steps"] == 15


# Single = batched.


def choose(tokens, length, vocab):
    """Return an action that depends on the whole context: the end token, or any token but the padding."""
    chance = number_of(tokens[:length].tolist())
    return EOS if chance % 3 == 0 else 1 + chance // 3 % (vocab - 1)


def played(slots, mode, steps, **task):
    """Check that a batched environment does what single ones do; return what each step of those returned."""
    env, reference = make_vector_env(mode, num_envs=slots, **task), SlotReference(slots, mode, 0, **task)
    told = []
    assert_same(env.reset(seed=0), reference.reset(range(slots)))
    for _ in range(steps):
        actions = [
            choose(obs["tokens"], obs["length"], env.unwrapped.task.vocab_size) for obs in reference.observations
        ]
        told.append(reference.step(actions))
        assert_same(env.step(torch.tensor(actions)), told[-1])
        ended = np.array(told[-1][2])
        if mode is AutoresetMode.DISABLED and ended.any():
            assert_same(env.reset(options={"reset_mask": ended}), reference.reset(np.flatnonzero(ended)))
    env.close()
    for each in reference.envs:
        each.close()
    return plain(told)


CHAT = {"verifier": Echoing(), "max_new_tokens": 4, "tokenizer": chatml(), "chat": True}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_batched_environment_does_what_the_single_one_does_in_a_chat(mode):
    told = played(6, mode, 30, **CHAT)
    assert sum("appended" in info for *_, infos in told for info in infos) > 3, "replies"


def random_world(seed):
    """Return the number of slots and the settings of an environment, drawn at random."""
    rng = random.Random(seed)
    new, longest = rng.randint(1, 5), rng.randint(0, 5)
    settings = {
        "verifier": Echoing(alone=rng.random() < 0.3, longest=longest),
        "max_new_tokens": new,
        "max_turns": rng.randint(1, 7),
        "max_reply_tokens": max(1, longest - rng.randint(-1, 1)),
        "group_size": rng.randint(1, 3),
        "stop_strings": rng.choice([(), (), ["a"], ["bc", "dd"], ["abc", "b"]]),
        "test_fraction": 0.0,
    }
    if rng.random() < 0.5:
        settings["max_context_tokens"] = 5 + new + rng.randint(0, 12)
    return rng.randint(1, 9), settings


def test_a_thousand_random_dialogues_are_the_same_batched():
    found = Counter()
    for seed in range(25):
        slots, settings = random_world(seed)
        for _, rewards, over, cut, infos in played(slots, list(AutoresetMode)[seed % 3], 80, **settings):
            found["dialogues"] += sum(over)
            found["replies"] += sum("appended" in info for info in infos)
            found["empty replies"] += sum(info.get("appended") == 0 for info in infos)
            found["paid before the end"] += sum(map(lambda paid, ends: paid != 0 and not ends, rewards, over))
            found["cut off"] += sum(cut)
    assert found["dialogues"] > 1000 and min(found.values()) > 80, found


def test_the_curriculum_hears_of_dialogues():
    env = single("guess", verifier_kwargs={"largest": 4, "levels": 2}, curriculum=0.5)
    assert env.unwrapped.task.level == 1
    for _ in range(256):  # of the numbers 1 and 2
        env.reset(seed=0 if env._prompt is None else None)
        play(env, "1$")[2] or play(env, "2$")
    env.reset()
    assert env.unwrapped.task.level == 2


def test_workers_give_the_same_episodes():
    task = {"verifier": Echoing(), "max_new_tokens": 3}
    here, there = (played(2, AutoresetMode.DISABLED, 20, **task, verifier_workers=workers) for workers in (0, 1))
    assert here == there
