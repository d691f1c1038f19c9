"""On-policy distillation: the teacher as a policy, and teachers that are refused; its gradient is in tests/laws."""

import json

import pytest
import torch
from diagonal import slow
from refused import refusal
from tiny_models import text_envs, tiny_model, tiny_policy, write_chat_model

from rlenv.agents import Agent, Distillation, LanguageModelPolicy, Reinforce, make_envs
from rlenv.agents.policies.base import actor_parameters, weights_digest
from rlenv.agents.training.teacher import frozen_teacher

ARITH = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
SMALL = {"episodes_per_update": 4, "num_envs": 4, "seed": 5, "device": "cpu"}


@pytest.mark.parametrize(("given", "expected"), [(None, 0.7), (2.0, 2.0)])
def test_the_teacher_is_evaluated_at_the_students_temperature_unless_another_is_given(given, expected):
    teacher = tiny_policy("llama", text_envs(), temperature=1.3, seed=4)
    student = tiny_policy("gpt2", text_envs(4), temperature=0.7)
    agent = Distillation(student, text_envs(4), teacher=teacher, teacher_temperature=given, device="cpu")
    rollout = agent.collector.collect(agent.policy, 4, agent.generator)
    found = agent.prepare(rollout).extras["teacher_log_probs"]
    for row in range(4):
        start, steps = int(rollout.observations["length"][row]), int(rollout.lengths[row])
        chosen = rollout.actions[row, :steps]
        tokens = torch.cat([rollout.observations["tokens"][row, :start], chosen])[None]
        logits = teacher.model(tokens).logits[0, start - 1 : -1, : teacher.vocab_size]  # what comes before each action
        wanted = (logits / expected).log_softmax(-1).gather(1, chosen[:, None])[:, 0]
        torch.testing.assert_close(found[row, :steps], wanted.double(), rtol=0, atol=1e-9)
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
