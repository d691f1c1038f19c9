import torch
from textgen_reference import plain

from rlenv.envs.demonstrations import demonstrate
from rlenv.envs.task import TextGenTask
from rlenv.envs.vector import TextGenVectorEnv
from rlenv.text.tokenizer import character_tokenizer
from verifiers import Arith

EOS = 1
MIXED = {"verifier": "arith", "verifier_kwargs": {"digits": 2, "operators": "+-*"}}


def test_the_observations_are_those_of_the_environments_reset():
    env = TextGenVectorEnv(8, **MIXED)
    observation, _ = env.reset(seed=3)
    assert plain(demonstrate(env.task, 0, 8).observations) == plain(observation)


def test_the_mask_comes_from_lengths_and_not_from_tokens():
    tokenizer = character_tokenizer(Arith(2, "+-*").alphabet)
    tokenizer.pad_token = tokenizer.eos_token
    plain_task, same_pad = TextGenTask(**MIXED), TextGenTask(**MIXED, tokenizer=tokenizer)
    assert torch.equal(demonstrate(plain_task, 0, 20).mask, demonstrate(same_pad, 0, 20).mask)


def test_a_later_start_goes_on_in_the_stream():
    task = TextGenTask(**MIXED)
    whole, part = demonstrate(task, 0, 10), demonstrate(task, 6, 4)
    assert torch.equal(whole.observations["tokens"][6:], part.observations["tokens"])
    width = part.actions.shape[1]
    assert torch.equal(whole.actions[6:, :width], part.actions)
    assert torch.equal(whole.mask[6:].sum(1), part.mask.sum(1))


def test_prompts_of_uneven_length_are_padded_on_the_right():
    problems = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "12+34=", "answer": "46"}]
    task = TextGenTask("arith", problems=problems, test_fraction=0.0)
    shown = demonstrate(task, 0, 2)
    assert sorted(shown.observations["length"].tolist()) == [4, 6]
    for tokens, length in zip(shown.observations["tokens"], shown.observations["length"], strict=True):
        assert tokens[length:].eq(task.pad_token_id).all()
        assert not tokens[:length].eq(task.pad_token_id).any()


def test_demonstrations_of_a_file_fit_whatever_their_length(tmp_path):
    path = tmp_path / "poems.jsonl"
    path.write_text('{"prompt": "short", "answer": "é"}\n{"prompt": "long", "answer": "' + "é<eos>" * 20 + '"}\n')
    task = TextGenTask("arith", problems=str(path), test_fraction=0.0)
    shown = demonstrate(task, 0, 2)
    assert sorted(shown.mask.sum(1).tolist()) == [2, 121]
    assert shown.actions.eq(EOS).sum(1).eq(1).all()


def test_groups_do_not_repeat_a_demonstration():
    alone, grouped = TextGenTask(**MIXED), TextGenTask(**MIXED, group_size=4)
    assert torch.equal(demonstrate(alone, 0, 6).actions, demonstrate(grouped, 0, 6).actions)
