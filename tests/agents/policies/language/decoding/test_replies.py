"""Contexts that grow by a reply between two actions: the cache holds what was appended, in every decoder."""

import pytest
import torch
from diagonal import slow
from identity_checks import EXACT, assert_close
from tiny_models import text_envs, tiny_policy

from agents.policies.language.decoding import cuda_graph
from agents.policies.language.decoding import decoder as decoding
from agents.policies.language.decoding.cuda_graph import CapturedDecoder, Captures
from agents.policies.language.decoding.decoder import ContextDecoder, Decoder

SLOTS, LETTERS = 6, 3
KINDS = {"own": Decoder, "shared": ContextDecoder, "captured": CapturedDecoder}
kinds = pytest.mark.parametrize("kind", KINDS)
told = pytest.mark.parametrize("tells", [True, False], ids=["told", "compared"])


def policy_with(kind, name="llama"):
    policy = tiny_policy(name, text_envs(SLOTS, max_new_tokens=52), 0.8)

    def initial_state(slots):
        parts = (policy.model, policy._step, policy._choose, slots, policy.max_length)
        return CapturedDecoder(*parts, Captures()) if kind == "captured" else KINDS[kind](*parts)

    policy.initial_state = initial_state
    return policy


class World:
    """Contexts of `SLOTS` slots in groups of 2 that begin alike, with replies after every fourth action or so."""

    def __init__(self, policy, seed=0, longest=4):
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
        starts |= self.lengths > 40
        self.begin(starts.nonzero()[:, 0].tolist())
        appended[starts] = 0
        return appended, starts

    @property
    def obs(self):
        return {"tokens": self.tokens.clone(), "length": self.lengths.clone()}


@kinds
@told
@pytest.mark.parametrize("name", ["gpt2", slow("llama"), slow("mistral")])
def test_the_running_state_equals_a_fresh_one_after_replies(kind, tells, name):
    policy = policy_with(kind, name)
    world, state = World(policy), policy.initial_state(SLOTS)
    starts, appended, restarts = torch.ones(SLOTS, dtype=torch.bool), 0, 0
    for step in range(40):
        noise = torch.Generator().manual_seed(step)
        more = {"appended": appended} if tells else {}
        actions, log_probs, state = policy.act(world.obs, state, starts, False, noise.clone_state(), **more)
        every = torch.ones(SLOTS, dtype=torch.bool)
        again, fresh, _ = policy.act(world.obs, policy_state(policy), every, False, noise)
        assert_close(log_probs, fresh, EXACT, f"running and fresh state in step {step}")
        assert torch.equal(actions, again)
        appended, starts = world.step(actions)
        restarts += int(starts.sum())
    assert world.replies > 20 and restarts > 3


def policy_state(policy):
    return Decoder(policy.model, policy._step, policy._choose, SLOTS, policy.max_length)


@kinds
def test_equal_turns_with_replies_that_end_alike_stay_apart(kind):
    """Rows of equal contexts are shared by their newest token, which is the same after different replies."""
    policy = policy_with(kind)
    tokens = torch.zeros(SLOTS, policy.max_length, dtype=torch.int64)
    state, starts = policy.initial_state(SLOTS), torch.ones(SLOTS, dtype=torch.bool)
    lengths = torch.full((SLOTS,), 4)
    _, _, state = policy.act({"tokens": tokens, "length": lengths}, state, starts, True)
    tokens[:, 4:7] = torch.tensor([2, 0, 1])
    tokens[::2, 5] = 2  # another reply, the same last token
    obs = {"tokens": tokens, "length": lengths + 3}
    _, log_probs, _ = policy.act(obs, state, ~starts, True, appended=torch.full((SLOTS,), 2))
    _, fresh, _ = policy.act(obs, policy_state(policy), starts, True)
    assert_close(log_probs, fresh, EXACT, "running and fresh state")
    assert log_probs[0] != log_probs[1]


def test_a_reply_beyond_the_captured_window_is_read_by_a_wider_one(monkeypatch):
    monkeypatch.setattr(cuda_graph, "BUCKET", 8)
    policy = policy_with("captured")
    world, state = World(policy, longest=9), policy.initial_state(SLOTS)
    starts, appended = torch.ones(SLOTS, dtype=torch.bool), 0
    for step in range(20):
        actions, log_probs, state = policy.act(world.obs, state, starts, True, None, appended=appended)
        _, fresh, _ = policy.act(world.obs, policy_state(policy), torch.ones(SLOTS, dtype=torch.bool), True)
        assert_close(log_probs, fresh, EXACT, f"running and fresh state in step {step}")
        appended, starts = world.step(actions)
    assert len(state.capture.runs) > 2


def test_who_says_that_nothing_was_appended_has_no_lengths_compared(monkeypatch):
    policy = policy_with("own")
    world, state = World(policy), policy.initial_state(SLOTS)
    starts = torch.ones(SLOTS, dtype=torch.bool)
    prefilled = []
    prefill = decoding.Decoder._prefill
    monkeypatch.setattr(
        decoding.Decoder, "_prefill", lambda self, *a, **k: prefilled.append(1) or prefill(self, *a, **k)
    )
    for appended, starting in ((0, starts), (0, ~starts), (torch.zeros(SLOTS, dtype=torch.int64), ~starts)):
        _, _, state = policy.act(world.obs, state, starting, True, appended=appended)
    assert len(prefilled) == 1, "the first contexts only"


def test_looking_at_a_policy_reads_replies():
    policy = policy_with("own")
    world, state = World(policy), None
    starts = torch.ones(SLOTS, dtype=torch.bool)
    for _ in range(12):
        law, state = policy.action_log_probs(world.obs, state, starts)
        fresh, _ = policy.action_log_probs(world.obs, None, torch.ones(SLOTS, dtype=torch.bool))
        assert_close(law, fresh, EXACT, "looking")
        _, starts = world.step(law.argmax(1))
    assert world.replies > 5
