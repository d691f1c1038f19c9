"""Self-distillation: what the teacher reads, to the token; whose weights teach; its gradient is in tests/laws."""

import copy
from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from chat_families import FAMILIES
from continued import everything, run
from diagonal import slow
from dialogues import talking
from identity_checks import collect, contexts
from tiny_models import ALPHABET, PROMPTS, text_envs, tiny_model, tiny_policy

from rlenv._status import ERROR
from rlenv.agents import SDPO, Agent, LanguageModelPolicy
from rlenv.agents.language.hints import RIGHT, WRONG, feedback_speller, spelled
from rlenv.verifiers import Execution, Verdict
from rlenv.verifiers.function import FunctionVerifier


def taught(envs, policy=None, **settings):
    settings = {"episodes_per_update": 8, "device": "cpu", "seed": 3, "learning_rate": 0.01, **settings}
    agent = SDPO(tiny_policy("llama", envs) if policy is None else policy, envs, **settings)
    agent.anchor.freeze_reference(agent.policy)
    return agent


def feedback(envs, texts, most=512):
    return torch.stack(list(map(feedback_speller(envs.metadata, most), texts)))


# What the teacher reads.


@pytest.mark.parametrize("name", [name if name == "chatml" else slow(name) for name in FAMILIES])
def test_in_a_conversation_the_hint_ends_the_last_message_and_the_answer_stays_token_by_token(name):
    tokenizer = FAMILIES[name]()
    verifier = FunctionVerifier(lambda prompts, completions: [0.0] * len(prompts))
    envs = gym.make_vec(
        "TextGen-v0", 4, verifier=verifier, problems=["What is 12+34= ?"], tokenizer=tokenizer, chat=True, group_size=4,
        test_fraction=0.0, max_new_tokens=6,
    )  # fmt: skip
    model = tiny_model("llama", len(tokenizer), context=256)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    rollout = collect(policy, envs, 4)
    tokenizer, tail = envs.metadata["tokenizer"], list(envs.metadata["prompt_tail"])
    asked = [{"role": "user", "content": "What is 12+34= ?"}]
    whole = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    shown, written = tokenizer.decode(tail), whole.split("12+34= ?")[1]
    assert "".join(shown.split()) == "".join(written.split())  # tokens may swallow spaces
    told = feedback(envs, ["no: <|im_end|>", "", "", "not 12"])
    assert (feedback(envs, ["\ud800"]) >= 0).any(), "a text that is not Unicode"
    rollout = replace(rollout, success=torch.tensor([0.0, 1.0, 1.0, 0.0])).with_extras(feedback=told)
    alone = replace(rollout, success=torch.zeros(4))
    control = {*envs.metadata["stop_token_ids"], *envs.metadata["hidden_token_ids"]}
    said = [[token for token in row[mask].tolist() if token not in control]
            for row, mask in zip(rollout.actions, rollout.mask, strict=True)]  # fmt: skip
    no, not_12 = (row[row >= 0].tolist() for row in told[[0, 3]])
    assert tokenizer.decode(no).strip() == "no: <|im_end|>" and not control & {*no}
    for played, bodies, frame in ((rollout, [said[1], said[2], said[1], said[1]], RIGHT),
                                  (alone, [no, None, None, not_12], WRONG)):  # fmt: skip
        hinted = policy.hinted(played, envs.metadata, 512)
        assert hinted.extras["taught"].tolist() == [body is not None for body in bodies]
        before, after = (spelled(tokenizer, text) for text in frame)
        read = zip(contexts(played), contexts(hinted.as_taught), bodies, strict=True)
        for row, ((tokens, columns), (seen, moved), body) in enumerate(read):
            place = int(played.observations["length"][row]) - len(tail)
            hint = [] if body is None else [*before, *body, *after]
            assert seen == [*tokens[:place], *hint, *tail, *tokens[place + len(tail) :]]
            assert moved == [column + len(hint) for column in columns]


def test_in_plain_text_a_right_answer_is_an_example_before_the_prompt():
    envs = text_envs(4, group_size=4)
    policy = tiny_policy("llama", envs)
    rollout = replace(collect(policy, envs, 8), success=torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    rollout.status[7] = ERROR
    rollout = rollout.with_extras(feedback=feedback(envs, ["", "", "", "", "abx", "", "", ""], 2))
    hinted, end = policy.hinted(rollout, envs.metadata, 12), envs.metadata["tokenizer"].eos_token_id
    assert hinted.extras["taught"].tolist() == [True, True, False, True, True, False, False, False]
    answer = [token for token in rollout.actions[2][rollout.mask[2]].tolist() if token > end]
    read = zip(contexts(rollout), contexts(hinted.as_taught), strict=True)
    for row, ((tokens, _), (seen, _)) in enumerate(read):
        prompt = tokens[: rollout.observations["length"][row]]
        hint = {4: [2, 3, end]}.get(row, [*prompt, *answer, end] if row in (0, 1, 3) else [])
        assert seen == [*hint, *tokens], "an x cannot be spelled, nor a new line"
    assert not policy.hinted(rollout, envs.metadata, len(answer) - 1).extras["taught"][:4].any(), "too long an example"


def test_the_last_turn_of_a_dialogue_is_the_example_and_replies_stay():
    envs = talking(8, group_size=4)
    policy = tiny_policy("llama", envs)
    rollout = collect(policy, envs, 16)
    rollout = replace(rollout, success=(torch.arange(16) % 4 == 1).double())
    hinted, end = policy.hinted(rollout, envs.metadata, 12), envs.metadata["tokenizer"].eos_token_id
    read = list(zip(contexts(rollout), contexts(hinted.as_taught), strict=True))
    gaps = 0
    for row, ((tokens, columns), (seen, moved)) in enumerate(read):
        shown = read[4 * (row // 4) + 1][0]
        last = max((at for at in shown[1] if at - 1 not in shown[1]), default=0)
        turn = [token for token in shown[0][last:] if token > end]
        prompt = tokens[: rollout.observations["length"][row]]
        hint = [] if row % 4 == 1 else [*prompt, *turn, end]
        assert seen == [*hint, *tokens] and moved == [column + len(hint) for column in columns]
        gaps += columns[-1] - columns[0] >= len(columns)
    assert gaps > 3


# What it teaches.


def by_hand(agent, prepared):
    """Return the loss, from plain forward passes over each episode, with the teacher's distributions as constants."""
    policy, teacher, total = agent.policy, agent.anchor.reference, 0.0
    read = zip(contexts(prepared), contexts(prepared.as_taught), prepared.extras["taught"], strict=True)
    for (tokens, columns), (seen, moved), taught in read:
        if taught:
            ours, theirs = (
                each.model(torch.tensor([ids])).logits[0, torch.tensor(at) - 1, : policy.vocab_size].log_softmax(-1)
                for each, ids, at in ((policy, tokens, columns), (teacher, seen, moved))
            )
            total = total + (ours.exp() * (ours - theirs.detach())).sum()
    return total / len(prepared)


def test_the_gradient_is_that_of_the_divergence_to_a_stopped_teacher_that_reads_the_hint():
    """Here through a language model, whose weights also teach; tests/laws has the divergences and other teachers."""
    agent = taught(talking(8, group_size=4), teacher_weights="live")
    rollout = collect(agent.policy, agent.env, 8)
    solved = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    told = feedback(agent.env, ["", "", "", "", "", "ab", "", ""])
    prepared = agent.prepare(replace(rollout, success=solved).with_extras(feedback=told))
    assert prepared.extras["taught"].tolist() == [True, False, True, True, False, True, False, False]
    weights = [weight for weight in agent.policy.parameters() if weight.requires_grad]
    wanted = torch.autograd.grad(by_hand(agent, prepared), weights)
    found = torch.autograd.grad(sum(agent.loss(part)[0] for part in prepared.split(3)), weights)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert max(float(each.abs().max()) for each in wanted) > 1e-3


def test_without_a_right_answer_or_feedback_nothing_is_taught():
    agent = taught(text_envs(8, group_size=4), teacher_weights="start")
    before = copy.deepcopy(agent.policy.state_dict())
    agent.policy.model.lm_head.weight.data *= 1.1  # away from its teacher
    rollout = collect(agent.policy, agent.env, 8)
    metrics = agent.update(replace(rollout, success=torch.zeros(8)))
    assert metrics["train/taught_frac"] == metrics["train/grad_norm"] == 0.0 and metrics["train/kl_teacher"] > 1e-6
    assert not torch.equal(before["model.lm_head.weight"], agent.policy.model.lm_head.weight)


# Whose weights.


def paying(prompts, completions):
    return [float(completion.count("a") > 1) for completion in completions]


@pytest.mark.parametrize("dtype", [slow("float32"), "bfloat16"])
def test_the_mean_of_the_weights_is_continued_to_the_bit(dtype, tmp_path):
    def made():
        envs = text_envs(8, paying, group_size=4)
        policy = tiny_policy("llama", envs, dtype=dtype, layers=2)
        return SDPO(policy, envs, episodes_per_update=8, device="cpu", seed=3, learning_rate=0.01, average_rate=0.1)

    whole, first = made(), made()
    wanted = run(whole, 3)
    begun = run(first, 2)
    teacher, weights = first.teaching, first.policy_optimizer.weights
    old = [mean.detach().clone() for mean in teacher.mean.masters]
    teacher.follow()
    for mean, before, present in zip(teacher.mean.masters, old, weights.masters, strict=True):
        torch.testing.assert_close(mean, before + 0.1 * (present - before))
        assert mean.dtype == torch.float32
    for mean, before in zip(teacher.mean.masters, old, strict=True):
        mean.data.copy_(before)
    teacher.mean.copy_down()
    first.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", env=text_envs(8, paying, group_size=4), continue_env=True, device="cpu")
    assert begun + run(again, 1) == wanted and wanted[-1]["train/taught_frac"] > 0
    assert everything(again) == everything(whole)
    means = zip(again.teaching.mean.masters, whole.teaching.mean.masters, strict=True)
    assert all(torch.equal(*pair) for pair in means)


def test_the_teacher_begins_where_training_begins_after_a_warm_start():
    envs = text_envs(8, paying, group_size=4)
    agent = SDPO(tiny_policy("llama", envs), envs, episodes_per_update=8, device="cpu")
    agent.check_ready()
    agent.policy.model.lm_head.weight.data *= 1.1
    begun = agent.policy.model.lm_head.weight.detach().clone()
    next(agent.updates(total_episodes=8))
    assert torch.equal(agent.anchor.reference.model.lm_head.weight, begun)


def test_the_live_teacher_is_the_policy_also_after_loading(tmp_path):
    agent = taught(text_envs(8, paying, group_size=4), teacher_weights="live")
    agent.learn(total_episodes=8).save(tmp_path / "agent")
    assert not (tmp_path / "agent" / "reference").exists()
    again = Agent.load(tmp_path / "agent", env=text_envs(8, paying, group_size=4), device="cpu")
    assert again.anchor.reference is again.policy
    again.learn(total_episodes=8)


class Telling(FunctionVerifier):
    """Says of an answer with an a that it has one."""

    def __init__(self):
        super().__init__(paying, alphabet=ALPHABET)

    execution = Execution(prefers_batches=True)

    def verify_batch(self, problems, completions):
        return [Verdict(0.0, reason="ab" if "a" in completion else "") for completion in completions]


@pytest.mark.parametrize("late", [False, True])
def test_the_reasons_of_verdicts_are_the_feedback(late):
    more = {"problems": PROMPTS, "test_fraction": 0.0, "max_new_tokens": 12, "late_verdicts": late}
    envs = gym.make_vec("TextGen-v0", 8, verifier=Telling(), **more)
    assert envs.metadata["late_verdicts"] == late
    agent = taught(envs, tiny_policy("llama", envs, layers=2), group_size=1, max_hint_tokens=1)
    rollout = agent.collector.collect(agent.policy, 8, agent.generator)
    said = [2 in row[mask] for row, mask in zip(rollout.actions, rollout.mask, strict=True)]
    assert rollout.extras["feedback"].tolist() == [[2 if each else -1] for each in said] and {*said} == {True, False}
    assert agent.prepare(rollout).extras["taught"].tolist() == said
    envs.close()
