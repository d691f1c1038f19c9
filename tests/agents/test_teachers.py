"""Self-distillation: what the teacher reads, to the token, and whose weights teach; other teachers; laws/ has more."""

import copy
import json
from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from chat_families import FAMILIES
from continued import everything, run
from diagonal import slow
from dialogues import talking
from identity_checks import assert_close, collect, contexts, plain_laws
from refused import refusal
from tiny_models import ALPHABET, PROMPTS, text_envs, tiny_model, tiny_policy, write_chat_model

from rlenv._status import ERROR
from rlenv.agents import SDPO, Agent, Distillation, LanguageModelPolicy, Reinforce, make_envs
from rlenv.agents.language.hints import RIGHT, WRONG, feedback_speller, spelled
from rlenv.agents.policies.base import actor_parameters, weights_digest
from rlenv.agents.training.teacher import frozen_teacher
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
    teacher, weights = first.anchor, first.policy_optimizer.weights
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
    means = zip(again.anchor.mean.masters, whole.anchor.mean.masters, strict=True)
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


# On-policy distillation: the teacher as a policy, and teachers that are refused.


ARITH = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
SMALL = {"episodes_per_update": 4, "num_envs": 4, "seed": 5, "device": "cpu"}


@pytest.mark.parametrize(("given", "expected"), [(None, 0.7), (2.0, 2.0)])
def test_the_teacher_is_evaluated_at_the_students_temperature_unless_another_is_given(given, expected):
    teacher = tiny_policy("llama", text_envs(), temperature=1.3, seed=4)
    student = tiny_policy("gpt2", text_envs(4), temperature=0.7)
    agent = Distillation(student, text_envs(4), teacher=teacher, teacher_temperature=given, device="cpu")
    rollout = agent.collector.collect(agent.policy, 4, agent.generator)
    found = agent.prepare(rollout).extras["teacher_log_probs"]
    wanted = plain_laws(tiny_policy("llama", text_envs(), temperature=expected, seed=4), rollout)["log_probs"]
    assert_close(found[rollout.mask], wanted[rollout.mask], 1e-9, "the teacher and a plain forward pass")
    assert teacher.temperature == 1.3, "the policy that was given stays as it is"


def test_a_loaded_agent_has_its_teacher(tmp_path):
    folder = tmp_path / "teacher"
    tokenizer = write_chat_model(folder)
    envs = {**ARITH, "tokenizer": str(folder)}
    agent = Distillation("tiny", "TextGen-v0", env_kwargs=envs, teacher=str(folder), teacher_temperature=1.7, **SMALL)
    agent.learn(total_episodes=4).save(tmp_path / "saved")
    (folder / "model.safetensors").unlink()
    again = Agent.load(tmp_path / "saved", device="cpu")
    teacher = again.anchor.reference
    assert isinstance(teacher, LanguageModelPolicy) and "teacher" not in again.settings
    assert teacher.temperature == 1.7 and teacher.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert weights_digest(teacher) == weights_digest(agent.anchor.reference)
    again.learn(total_episodes=4)


def test_a_run_a_checkpoint_and_a_folder_name_the_same_teacher(tmp_path):
    run = tmp_path / "run"
    trained = Reinforce(tiny_model("llama"), text_envs(4), episodes_per_update=4, device="cpu")
    trained.save(run / "checkpoint")
    digest = weights_digest(trained.policy.model)
    for name in (run, run / "checkpoint", run / "checkpoint" / "policy" / "model"):
        teacher = frozen_teacher(str(name), tiny_policy("gpt2", text_envs(), dtype="float32"), text_envs())
        assert weights_digest(teacher.model) == digest
    agent = Distillation(tiny_model("gpt2"), text_envs(4), teacher=run, episodes_per_update=4, device="cpu")
    assert agent.learn(total_episodes=4).num_updates == 1
    damaged = run / "checkpoint" / "policy" / "policy.json"
    damaged.write_text(damaged.read_text() + " ")
    with pytest.raises(ValueError, match=r"damaged|changed"):
        Distillation(tiny_model("gpt2"), text_envs(4), teacher=run, device="cpu")


@pytest.mark.parametrize("rank", [None, slow(2), 3])
def test_a_teacher_on_the_base_of_the_students_adapter_shares_it(rank, tmp_path):
    """The teacher is an adapter, of the student's rank of 2 or of another, or the base itself."""
    base, saved = tmp_path / "base", tmp_path / "saved"
    write_chat_model(base)
    settings = {"env_kwargs": ARITH, **SMALL}
    name = base if rank is None else tmp_path / "trained"
    if rank is not None:
        trained = Reinforce(str(base), "TextGen-v0", policy_kwargs={"lora_rank": rank}, **settings)
        with torch.no_grad():
            for weight in actor_parameters(trained.policy):
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
        trained.save(name)
    agent = Distillation(str(base), "TextGen-v0", teacher=str(name), policy_kwargs={"lora_rank": 2}, **settings)
    teacher = agent.anchor.reference
    held = {weight.data_ptr() for weight in agent.policy.parameters()}
    own = [key for key, weight in teacher.named_parameters() if weight.data_ptr() not in held]
    assert all(".lora_" in key for key in own) and bool(own) == (rank is not None)
    rollout = agent.collector.collect(agent.policy, 4, agent.generator)
    found = agent.prepare(rollout).extras["teacher_log_probs"]
    if rank is not None:
        wanted = trained.policy.evaluate(rollout)["log_probs"]
        torch.testing.assert_close(found, wanted.detach(), rtol=0, atol=1e-6)
    agent.learn(total_episodes=4)
    agent.save(saved)
    again = Agent.load(saved, device="cpu")
    torch.testing.assert_close(again.anchor.reference.evaluate(rollout)["log_probs"].detach(), found)


@pytest.fixture
def student(tmp_path):
    """Return a folder with a model, environments with its tokens, and a policy of the model."""
    folder = tmp_path / "teacher"
    write_chat_model(folder)
    envs = make_envs("TextGen-v0", 4, {**ARITH, "tokenizer": str(folder)})
    return folder, envs, LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, str(folder))


def test_a_teacher_with_other_tokens_is_refused_though_there_are_as_many(student):
    folder, envs, policy = student
    assert frozen_teacher(str(folder), policy, envs).tokenizer is not None
    file = folder / "tokenizer.json"
    described = json.loads(file.read_text(encoding="utf-8"))
    words = described["model"]["vocab"]
    words["0"], words["1"] = words["1"], words["0"]
    file.write_text(json.dumps(described), encoding="utf-8")
    said = rf"has other tokens than its student: token {words['1']} is '1' for the teacher and '0' for the student"
    with pytest.raises(ValueError, match=said):
        frozen_teacher(str(folder), policy, envs)
    file.unlink()
    (folder / "tokenizer_config.json").unlink()
    refusal(lambda: frozen_teacher(str(folder), policy, envs), "has no tokenizer to compare with the student's")


def test_a_teacher_that_ends_its_answers_with_another_token_is_refused(student):
    folder, envs, policy = student
    known = envs.metadata["stop_token_ids"]
    end = next(token for token in range(9) if token not in known)
    config = policy.model.generation_config
    config.eos_token_id = [*known, end]
    config.save_pretrained(folder)
    with pytest.raises(ValueError, match=rf"^the teacher ends its answers with token {end}, .*--stop-token"):
        frozen_teacher(str(folder), policy, envs)
    more = make_envs("TextGen-v0", 4, {**ARITH, "tokenizer": str(folder), "stop_tokens": [end]})
    assert frozen_teacher(str(folder), policy, more).model is not policy.model
