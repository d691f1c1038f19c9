"""One law: TextGen-v0 batched does what that many single environments do, in every world and mode, however late."""

import math
import pickle
import random
from collections import Counter

import numpy as np
import pytest
import torch
from chat_families import chatml, gemma
from diagonal import diagonal, slow
from dialogues import Echoing, number_of, talking
from drawn import drawn
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from rlenv.agents import Collector, Policy
from rlenv.textgen import TextGenEnv
from rlenv.vector_env import make_vector_env
from rlenv.verifiers import Execution, Problem, Verdict, Verifier

EOS, STEPS = 1, 25
HERE = {"verifier_workers": 0}
MODES = list(AutoresetMode)
DISABLED, NEXT_STEP, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP


class Odd(Verifier):
    """Prompts of uneven length, some with a level, graded rewards, parts that come and go, and verdicts that fail."""

    alphabet, prompt_length, answer_length, reward_range = "abc", 4, 2, (0.0, float("inf"))
    execution = Execution(prefers_batches=True)

    def sample(self, rng):
        text = "".join(rng.choices(self.alphabet, k=rng.randint(1, 4)))
        return Problem(text, metadata={"level": len(text)} if text[0] != "a" else {})

    def verify(self, problem, completion):
        if "cc" in completion:
            return Verdict(0.0, status="error", reason="cc")
        if completion == "b":
            return Verdict(0.0, status="not_applicable")
        parts = {"a": float(completion.count("a"))} if completion.startswith("a") else {}
        if problem.text.startswith("b"):
            parts["b"] = -1.5
        return Verdict(0.25 * completion.count("a") + 0.5 * completion.count(problem.text[0]), parts)


def letters(rng):
    return {"verifier": Odd(), "max_new_tokens": rng.randint(1, 4), "group_size": rng.randint(1, 3)}


def conversations(rng):
    texts = [[{"role": "user", "content": text}] for text in ("b", "aa", "bab c")]
    texts += [[*texts[0], {"role": "assistant", "content": "<eos>"}, *texts[1]], "b", "plain"]
    chat = {"tokenizer": gemma(), "stop_tokens": ["no"], "system_prompt": "Be <bos> brief.", "problems": texts}
    return {**letters(rng), **chat, "test_fraction": 0.0}


def dialogues(rng):
    longest, new = rng.randint(0, 5), rng.randint(1, 5)
    limits = {"max_context_tokens": 5 + new + rng.randint(0, 12)} if rng.random() < 0.5 else {}
    return {
        "verifier": Echoing(alone=rng.random() < 0.3, longest=longest),
        "max_new_tokens": new,
        "max_turns": rng.randint(1, 7),
        "max_reply_tokens": max(1, longest - rng.randint(-1, 1)),
        "group_size": rng.randint(1, 3),
        "stop_strings": rng.choice([(), ["a"], ["bc", "dd"], ["abc", "b"]]),
        **limits,
    }


def tools(rng):
    digits = {"verifier": "arith", "verifier_kwargs": {"digits": 1}, "max_new_tokens": 12}
    return {**digits, **HERE, "tools": ["calculator"]}


WORLDS = {
    "letters": letters,
    "a share of the stream": lambda rng: {**letters(rng), "share": (rng.randrange(3), 3)},
    "late verdicts": lambda rng: {**letters(rng), "late_verdicts": True},
    "conversations": conversations,
    "dialogues": dialogues,
    "dialogues of workers": lambda rng: {**dialogues(rng), "verifier_workers": 1},
    "chats": lambda rng: {"verifier": Echoing(), "max_new_tokens": 4, "tokenizer": chatml(), "chat": True},
    "tools": tools,
}
TURNS = {"tools": ["calc(1+2)$", "calc(1+$", "12$", "7$", "+=+=+=+=+=+=+="], "conversations": ["a", "b", "▁", "<0xC3>"]}


class SlotReference:
    """B single environments whose episodes are numbered in the order they start, slot by slot."""

    def __init__(self, num_envs, mode, seed, late_verdicts=False, verifier_workers=0, share=(0, 1), **task):
        self.envs = [TextGenEnv(**HERE, **task) for _ in range(num_envs)]
        self.mode, self.seed, self.share, self.group_size = mode, seed, share, task.get("group_size", 1)
        self.posed = [0] * num_envs  # how many episodes each single environment has been through
        self.next_episode, self.observations, self.done = 0, [None] * num_envs, [True] * num_envs

    def reset(self, rows):
        infos = [{} for _ in self.envs]
        for row in rows:
            infos[row] = self._start(row)
        return [plain((obs, info)) for obs, info in zip(self.observations, infos, strict=True)]

    def step(self, actions, acting):
        told = [self._step(row, action) if acting[row] else (0.0, False, False, {}) for row, action in actions]
        for row, (*_, over, _, info) in enumerate(told):
            if over and self.mode is SAME_STEP:
                final = {"final_obs": self.observations[row], "final_info": dict(info)}
                info.clear()
                info |= final | self._start(row)
        return [plain((obs, *rest)) for obs, rest in zip(self.observations, told, strict=True)]

    def _step(self, row, action):
        if self.done[row]:
            return 0.0, False, False, self._start(row) if self.mode is NEXT_STEP else {}
        self.observations[row], *told = self.envs[row].step(action)
        self.done[row] = told[1]
        return told

    def _start(self, row):
        group, member = divmod(self.next_episode, self.group_size)
        number = (group * self.share[1] + self.share[0]) * self.group_size + member  # in the whole stream
        while self.posed[row] <= number:
            self.observations[row], info = self.envs[row].reset(seed=None if self.posed[row] else self.seed)
            self.posed[row] += 1
        self.next_episode += 1
        self.done[row] = False
        return info


def plain(value):
    """Return arrays, tensors and numpy scalars as lists and Python numbers, so that == compares them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return plain(value.tolist())
    return value.tolist() if isinstance(value, (np.ndarray, np.generic, torch.Tensor)) else value


def slot_info(info, row):
    """Return one slot's part of a vector info: the keys whose `_key` mask holds there."""
    return {
        key: plain(slot_info(value, row) if isinstance(value, dict) else value[row])
        for key, value in info.items()
        if not key.startswith("_") and info[f"_{key}"][row]
    }


def by_slot(result):
    """Return what each slot was told, with the verdicts that are late."""
    *tensors, infos = result
    found = []
    for row in range(len(tensors[0]["length"])):
        info = slot_info(infos, row)
        told, reward = info.get("final_info", info), tensors[1][row].item() if len(tensors) > 1 else 0.0
        if "verdict_future" in told:
            assert math.isnan(reward)
            told |= told.pop("verdict_future").result(timeout=60)
            reward = told.pop("reward")
        obs = {key: value[row] for key, value in tensors[0].items()}
        flags = [flag[row].item() for flag in tensors[2:]]
        found.append(plain((obs, reward, *flags, info) if flags else (obs, info)))
    return found


def scribble(result):
    """Write into everything that the environment returned, as a wrapper may."""
    observation, *rest, info = result
    final = [value for obs in info.get("final_obs", []) if obs is not None for value in obs.values()]
    for tensor in (*observation.values(), *rest, *final):
        tensor.fill_(1)


def played(name, mode, seed):
    """Play both sides with random turns, restarts, slots that do not act, and a caller that writes and pickles."""
    rng, found = random.Random(seed), Counter()
    slots, task = rng.randint(1, 5), WORLDS[name](rng)
    env, reference = make_vector_env(mode, num_envs=slots, **task), SlotReference(slots, mode, seed, **task)
    encoding = env.unwrapped.task.encoding
    tokens = encoding.tokenizer.convert_tokens_to_ids
    if name == "tools":
        turns = [[EOS if each == "$" else tokens(each) for each in text] for text in TURNS[name]]
    else:
        turns = [[token] for token in (*encoding.stop_token_ids, *map(tokens, TURNS.get(name, "abcd"[:3])))]
    pending, kept = [[] for _ in range(slots)], []

    def same(result, expected):
        assert by_slot(result) == expected
        kept.append((result[0], plain(result[0])))
        if rng.random() < 0.5:
            kept.pop()
            scribble(result)

    same(env.reset(seed=seed), reference.reset(range(slots)))
    for _ in range(STEPS):
        if rng.random() < 0.1 and not task.get("verifier_workers"):
            env = pickle.loads(pickle.dumps(env))
        acting = [mode is not DISABLED or rng.random() < 0.9 for _ in range(slots)]
        for row in range(slots):
            pending[row] = pending[row] or list(rng.choice(turns))
        taken = [
            rng.choice([-5, 10_000]) if over or not acts else line.pop(0)
            for over, acts, line in zip(reference.done, acting, pending, strict=True)
        ]
        given = torch.tensor(taken)
        told = reference.step(list(enumerate(taken)), acting)
        same(env.step(given, **({} if all(acting) else {"acting": acting})), told)
        given.fill_(0)
        for _, reward, over, cut, info in told:
            appended = info.get("appended")
            found.update(ended=over, cut=cut, replies=appended is not None, called=info.get("reply") == "3")
            found.update({"empty": appended == 0, "paid early": reward != 0 and not over})
        restarted = [row for row in range(slots) if rng.random() < 0.1 or told[row][2]]
        if restarted and mode is DISABLED:
            mask = np.isin(np.arange(slots), restarted)
            same(env.reset(options={"reset_mask": mask}), reference.reset(restarted))
            for row in restarted:
                pending[row].clear()
    assert all(plain(result) == before for result, before in kept)
    for each in (env, *reference.envs):
        each.close()
    return found


@pytest.mark.hypothesis
@diagonal("name, mode", list(WORLDS), MODES)
def test_the_batched_environment_is_that_many_single_ones(name, mode):
    found = Counter()

    @drawn({"tools": 6, "dialogues of workers": 1}.get(name, 2))
    @given(st.integers(0, 2**31))
    def check(seed):
        found.update(played(name, mode, seed))

    check()
    wanted = {"tools": ["called"], "dialogues": ["cut", "replies", "empty", "paid early"]}.get(name, ["ended"])
    assert min(found[each] for each in wanted) > 1, found


@pytest.mark.parametrize("mode", MODES)
def test_one_slot_equals_gymnasiums_own_vector_environment_to_the_layout_of_the_infos(mode):
    def layout(info):
        pairs = info.items()
        return {key: layout(each) if isinstance(each, dict) else (each.dtype, each.shape) for key, each in pairs}

    task = {"verifier": Odd(), "max_new_tokens": 3}
    env = make_vector_env(mode, num_envs=1, **task)
    theirs = SyncVectorEnv([lambda: TextGenEnv(**task)], autoreset_mode=mode)
    rng = np.random.default_rng(0)
    assert plain(env.reset(seed=0)) == plain(theirs.reset(seed=0))
    for _ in range(80):
        action = rng.integers(5, size=1)
        ours, expected = env.step(action), theirs.step(action)
        assert plain(ours) == plain(expected) and layout(ours[4]) == layout(expected[4])
        if mode is DISABLED and ours[2].any():
            options = {"reset_mask": np.array([True])}
            assert plain(env.reset(options=options)) == plain(theirs.reset(options=options))


class Scripted(Policy):
    """Acts by what it sees alone, so that an episode is the same however long its replies take."""

    obs_from_actions = True

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def act(self, obs, state, episode_start, deterministic=False, generator=None, playing=None):
        rows = zip(obs["tokens"].tolist(), obs["length"].tolist(), strict=True)
        chances = [number_of(tokens[:length]) for tokens, length in rows]
        actions = torch.tensor([EOS if chance % 3 == 0 else 1 + chance // 3 % 5 for chance in chances])
        return actions, -actions.double(), state


def collected(slots, mode, **late):
    envs, taken, waits = talking(slots, mode, max_turns=5, group_size=3, **late), [], []
    collector = Collector(envs, torch.device("cpu"))

    def on_step(counted, local):
        taken.append(counted)
        waits.append(int(local["infos"].get("waiting", np.zeros(1)).sum()))
        return True

    collector.seed(0)
    rollout = collector.collect(Scripted(), 40, on_step=on_step)
    envs.close()
    return rollout, sum(taken), sum(waits)


@pytest.mark.parametrize(("slots", "mode"), [slow(1, DISABLED), (16, DISABLED), (16, NEXT_STEP), slow(16, SAME_STEP)])
def test_a_rollout_with_late_replies_is_the_one_with_immediate_replies(slots, mode):
    """Also in its number of actions: waiting is not one, and the step that brings a reply is not."""
    expected, steps, _ = collected(slots, mode)
    rollout, late_steps, waits = collected(slots, mode, verifier_workers=1, late_replies=True)
    for name in ("actions", "log_probs", "rewards", "mask", "positions", "groups", "terminated", "truncated", "status"):
        assert torch.equal(getattr(rollout, name), getattr(expected, name)), name
    lengths = (rollout.observations["length"], expected.observations["length"])
    assert torch.equal(*lengths)
    for row, last in enumerate(expected.positions.where(expected.mask, 0).amax(1).tolist()):
        assert torch.equal(*(each.observations["tokens"][row, : last + 1] for each in (rollout, expected)))
    assert (waits > 60) == (slots > 1) and (expected.rewards.where(expected.mask, 0)[:, :-1] > 0).any()
    if mode is DISABLED:
        assert late_steps == steps == int(expected.mask.sum())
