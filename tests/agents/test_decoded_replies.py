"""Contexts that grow by a reply between two actions: the cache holds what was appended, in every decoder."""

import pytest
import torch
from diagonal import slow
from identity_checks import EXACT, assert_close
from tiny_models import text_envs, tiny_policy

from agents import LanguageModelPolicy
from agents.language import cuda_graph
from agents.language import decoder as decoding

SLOTS, LETTERS = 6, 3
KINDS = ("plain", "captured")
kinds = pytest.mark.parametrize("kind", KINDS)
told = pytest.mark.parametrize("tells", [True, False], ids=["told", "compared"])


def policy_with(kind, name="llama", **kwargs):
    policy = tiny_policy(name, text_envs(SLOTS, max_new_tokens=52), 0.8, **kwargs)
    if kind == "captured":
        policy.initial_state = lambda slots: policy._captures.decoder(
            policy.model, policy._choose, slots, policy.max_length
        )
    return policy


class World:
    """Contexts of `SLOTS` slots in groups of 2 that begin alike, with replies after every fourth action or so."""

    def __init__(self, policy, seed=0, longest=12):
        self.rng = torch.Generator().manual_seed(seed)
        self.tokens = torch.zeros(SLOTS, policy.max_length, dtype=torch.int64)
        self.lengths = torch.zeros(SLOTS, dtype=torch.int64)
        self.longest, self.replies = longest, 0
        self.begin(range(SLOTS))

    def draw(self, count):
        return torch.randint(0, LETTERS, (count,), generator=self.rng)

    def begin(self, slots):
        for slot in slots:
            self.lengths[slot] = 0
            prompt = torch.arange(3 + slot // 2) % LETTERS
            self.append(slot, prompt)

    def append(self, slot, tokens):
        self.tokens[slot, self.lengths[slot] : self.lengths[slot] + len(tokens)] = tokens
        self.lengths[slot] += len(tokens)

    def step(self, actions):
        """Append actions, some replies and the restarts of long contexts; return what was appended, and who starts."""
        appended, starts = torch.zeros(SLOTS, dtype=torch.int64), torch.zeros(SLOTS, dtype=torch.bool)
        for slot, action in enumerate(actions.tolist()):
            self.append(slot, torch.tensor([action % LETTERS]))
            if torch.rand((), generator=self.rng) < 0.25:
                appended[slot] = 1 + int(torch.randint(self.longest, (), generator=self.rng))
                self.append(slot, self.draw(int(appended[slot])))
        self.replies += int((appended > 0).sum())
        starts |= self.lengths > self.tokens.shape[1] - 2 - self.longest
        self.begin(starts.nonzero()[:, 0].tolist())
        appended[starts] = 0
        return appended, starts

    @property
    def obs(self):
        return {"tokens": self.tokens.clone(), "length": self.lengths.clone()}


def check_running(policy, tells=True, limit=EXACT, steps=40, seed=0):
    """Act with a running state and with fresh ones while contexts grow by replies; return the running one."""
    world, state = World(policy, seed), policy.initial_state(SLOTS)
    starts, appended, restarts = torch.ones(SLOTS, dtype=torch.bool), 0, 0
    for step in range(steps):
        noise = torch.Generator().manual_seed(step)
        more = {"appended": appended} if tells else {}
        actions, log_probs, state = policy.act(world.obs, state, starts, False, noise.clone_state(), **more)
        every = torch.ones(SLOTS, dtype=torch.bool)
        again, fresh, _ = policy.act(world.obs, policy_state(policy), every, False, noise)
        same = actions == again  # by rounding, another token may be drawn
        assert_close(log_probs[same], fresh[same], limit, f"running and fresh state in step {step}")
        assert same.all() or limit > 1e-4
        appended, starts = world.step(actions)
        restarts += int(starts.sum())
    assert world.replies > steps / 2 and restarts > 3
    return state


@kinds
@told
@pytest.mark.parametrize("name", ["gpt2", "mistral", slow("llama")])
@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 9))])
def test_the_running_state_equals_a_fresh_one_after_replies(kind, tells, name, seed):
    check_running(policy_with(kind, name), tells, seed=seed)


def test_slots_that_do_not_play_have_replies_too():
    """Some slots rest while others are answered, and return with what was said meanwhile."""
    for kind in KINDS:
        policy = policy_with(kind)
        world, state = World(policy, longest=5), policy.initial_state(SLOTS)
        starts, appended = torch.ones(SLOTS, dtype=torch.bool), 0
        for step in range(24):
            playing = torch.rand(SLOTS, generator=torch.Generator().manual_seed(step)) < 0.7
            _, log_probs, state = policy.act(world.obs, state, starts, True, playing=playing, appended=appended)
            actions, fresh, _ = policy.act(world.obs, policy_state(policy), torch.ones_like(starts), True)
            assert_close(log_probs[playing], fresh[playing], EXACT, f"{kind} in step {step}")
            appended, starts = world.step(actions)


def test_a_reply_beyond_the_captured_window_is_read_by_a_wider_one(monkeypatch):
    monkeypatch.setattr(cuda_graph, "BUCKET", 8)
    state = check_running(policy_with("captured"), steps=20)
    assert len(state.capture.runs) > 2


def test_many_replies_are_read_in_parts(monkeypatch):
    monkeypatch.setattr(decoding, "PREFILL", 16)
    check_running(policy_with("plain"), steps=24)


def policy_state(policy):
    """Return a fresh state of the plain decoder."""
    return LanguageModelPolicy.initial_state(policy, SLOTS)


@kinds
@told
def test_a_reply_that_comes_late_is_read_after_the_turn(kind, tells):
    """All slots have one context and wait; then some get replies of one or several tokens, and others wait on."""
    policy = policy_with(kind)
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, LETTERS, (1, policy.max_length), generator=rng).repeat(SLOTS, 1)
    lengths, state = torch.full((SLOTS,), 4), policy.initial_state(SLOTS)
    none, first, others = [0] * 6, [0, 0, 1, 3, 5, 0], [0, 2, 0, 0, 0, 2]
    acting = [[1] * 6, none, none, [1, 0, 1, 1, 1, 0], [1, 0, 1, 1, 1, 0], [1] * 6, none]
    starts, before = torch.ones(SLOTS, dtype=torch.bool), none
    for acts, appended in zip(acting, (none, none, first, none, others, none, none), strict=True):
        obs = {"tokens": tokens, "length": lengths}
        more = {"appended": torch.tensor(before)} if tells else {}
        _, log_probs, state = policy.act(obs, state, starts, True, **more)
        _, fresh, _ = policy.act(obs, policy_state(policy), torch.ones_like(starts), True)
        assert_close(log_probs, fresh, EXACT, "running and fresh state")
        starts, before = torch.zeros_like(starts), appended
        lengths = lengths + torch.tensor(acts) + torch.tensor(appended)
