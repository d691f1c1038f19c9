import string

import pytest
from chat_families import chatml
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from textgen_reference import demonstration
from tokenizers import Tokenizer, decoders, models, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rlenv.task import TextGenTask
from rlenv.textgen import TextGenEnv
from rlenv.tokenizer import CHATML_TOKENS, SMALLEST, character_tokenizer, control_tokens
from rlenv.vector_env import TextGenVectorEnv
from verifiers import Problem

PAD, EOS = 0, 1
ALPHABET = string.printable + "äßé字🙂\u0301\u200d\xa0"
DIGITS = "0123456789+="
SUM = {"verifier": "arith", "problems": [{"prompt": "12+34=", "answer": "46"}], "test_fraction": 0.0}
PRINTABLE = character_tokenizer(ALPHABET)


def encode(tokenizer, text):
    return tokenizer([text], split_special_tokens=True)["input_ids"][0]


def decode(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def pad_is_eos():
    tokenizer = character_tokenizer(DIGITS)
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def pairs(post_processor=None):
    """A tokenizer whose tokens are not characters: "12" and "46" are one token each, and also two."""
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *DIGITS, "12", "46"])}
    backend = Tokenizer(models.BPE(vocabulary, [("1", "2"), ("4", "6")]))
    backend.decoder = decoders.Fuse()
    if post_processor is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=post_processor, special_tokens=[("<eos>", 1), ("<pad>", 0)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")


def test_control_tokens_come_first_and_every_character_once():
    tokenizer = character_tokenizer("banana")
    assert tokenizer.get_vocab() == {"<pad>": 0, "<eos>": 1, "b": 2, "a": 3, "n": 4}
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, len(tokenizer)) == (PAD, EOS, 5)


def test_it_saves_and_reloads_with_the_same_tokens(tmp_path):
    PRINTABLE.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(str(tmp_path))
    assert again.get_vocab() == PRINTABLE.get_vocab()
    assert (again.pad_token_id, again.eos_token_id) == (PAD, EOS)
    for text in (ALPHABET, " a  b ", "<eos>", "a <pad>"):
        assert encode(again, text) == encode(PRINTABLE, text)
        assert decode(again, encode(again, text)) == text


@pytest.mark.parametrize("tokenizer", [pad_is_eos(), pairs(), character_tokenizer("=+9876543210")])
def test_any_tokenizer_can_be_answered_in(tokenizer):
    env = TextGenEnv(tokenizer=tokenizer, **SUM)
    observation, _ = env.reset(seed=0)
    assert decode(tokenizer, observation["tokens"][: observation["length"]].tolist()) == "12+34="
    for token in encode(tokenizer, "46"):
        env.step(token)
    assert env.step(tokenizer.eos_token_id)[1] == 1.0


def test_padding_with_the_end_token_ends_nothing():
    env = TextGenVectorEnv(2, tokenizer=pad_is_eos(), **SUM)
    observation, _ = env.reset(seed=0)
    assert observation["tokens"][:, 6:].eq(EOS).all()
    four, six = encode(env.task.tokenizer, "46")
    env.step([four, EOS])
    env.step([six, 2])
    observation, reward, *_, info = env.step([EOS, 2])
    assert reward.tolist() == [1.0, 0.0]
    assert info["completion"].tolist() == ["46", None]
    assert observation["length"].tolist() == [9, 7]


def test_tokens_without_a_pad_token_are_padded_with_the_end_token():
    tokenizer = character_tokenizer(DIGITS)
    tokenizer.pad_token = None
    observation, _ = TextGenEnv(tokenizer=tokenizer, **SUM).reset(seed=0)
    assert set(observation["tokens"][6:].tolist()) == {EOS}


def test_tokens_that_text_would_cut_otherwise_are_kept():
    tokenizer = pairs()
    env = TextGenEnv(tokenizer=tokenizer, **SUM)
    start = env.reset(seed=0)[0]["length"]
    said = [tokenizer.get_vocab()[digit] for digit in "46"]
    assert encode(tokenizer, "46") != said
    for token in said:
        env.step(token)
    observation, reward, *_ = env.step(EOS)
    assert observation["tokens"][start : start + 3].tolist() == [*said, EOS]
    assert reward == 1.0


@pytest.mark.parametrize("template", ["$A <eos>", "<pad> $A", "<pad> $A <eos>", "<eos> $A", "<eos> $A <eos>"])
def test_a_prompt_keeps_its_start_token_and_loses_the_end_token_that_a_tokenizer_adds(template):
    tokenizer = pairs(template)
    if template.startswith("<eos>"):  # as where one token is unknown, start and end
        tokenizer.unk_token = tokenizer.bos_token = tokenizer.eos_token
    env = TextGenEnv(tokenizer=tokenizer, **SUM)
    observation, _ = env.reset(seed=0)
    prompt = observation["tokens"][: observation["length"]].tolist()
    start = {"<pad>": [PAD], "<eos>": [EOS]}.get(template.split(" ")[0], [])
    assert prompt == start + encode(pairs(), "12+34=")
    assert demonstration(env.task, Problem("12+34=", "46")) == [*encode(pairs(), "46"), EOS], "with one end token"


CHAT = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|object_ref_start|>"]


@pytest.mark.parametrize("tokenizer", [None, chatml()], ids=["characters", "byte pairs"])
@drawn(40)
@given(st.lists(st.one_of(st.text(max_size=5), st.sampled_from([*CHAT, "<pad>", "<eos>"])), max_size=5).map("".join))
def test_any_text_survives_and_has_no_control_token(tokenizer, text):
    text += "-"
    task = TextGenTask(
        lambda prompts, completions: [0.0], problems=[Problem(text, text)], tokenizer=tokenizer, test_fraction=0.0
    )
    control = set(control_tokens(task.tokenizer).values())
    (prompt,) = task.prompts([0])
    *answer, end = demonstration(task, prompt.problem)
    assert end == task.eos_token_id and not control & {*prompt.tokens, *answer}
    assert decode(task.tokenizer, prompt.tokens) == decode(task.tokenizer, answer) == text


# One that is trained on the problems.


WORDS = "What is the sum of these two numbers, and how did you work it out? The answer is one more than that.\n"
LISTED = [
    {"prompt": f"{WORDS}{n}+{n}=", "answer": f"twice {n} is {2 * n}", "split": "test" if n % 5 == 0 else "train"}
    for n in range(50)
]
SIZE = 300


def task_of(problems, tokenizer=f"train:{SIZE}", **task):
    return TextGenTask("exact", problems=problems, tokenizer=tokenizer, **task)


def test_it_has_the_size_that_was_asked_for_and_spells_every_text():
    tokenizer = task_of(LISTED).tokenizer
    assert len(tokenizer) == SIZE
    assert control_tokens(tokenizer) == {"<pad>": 0, "<eos>": 1, CHATML_TOKENS[0]: 2, CHATML_TOKENS[1]: 3}
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    for text in (WORDS, "e\u0301 é 字 🙂 \x00 \u2028 <eos><|im_end|> 12+34\t  x"):
        ids = tokenizer(text, split_special_tokens=True)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert not set(ids) & {0, 1, 2, 3}
    assert len(tokenizer(WORDS)["input_ids"]) < len(WORDS) / 2
    assert len(tokenizer("1234567890")["input_ids"]) == 10


def test_it_depends_on_the_training_problems_alone():
    changed = [
        row | {"prompt": "entirely other words for testing"} if row["split"] == "test" else row for row in LISTED
    ]
    vocabulary = task_of(LISTED).tokenizer.get_vocab()
    assert task_of(changed).tokenizer.get_vocab() == vocabulary
    assert task_of(LISTED, split="test").tokenizer.get_vocab() == vocabulary
    other = [row | {"prompt": "entirely other words for testing " + row["prompt"]} for row in LISTED]
    assert task_of(other).tokenizer.get_vocab() != vocabulary


def test_a_verifier_that_poses_problems_is_sampled_with_a_seed():
    one, other = (TextGenTask("arith", {"digits": 4}, tokenizer=f"train:{SMALLEST}") for _ in range(2))
    assert one.tokenizer.get_vocab() == other.tokenizer.get_vocab()
    assert one.prompts(range(20)) == other.prompts(range(20))


def test_conversations_work_with_it_and_it_reloads(tmp_path):
    listed = [{"prompt": [{"role": "user", "content": row["prompt"]}], "answer": row["answer"]} for row in LISTED]
    task = task_of(listed, test_fraction=0.0)
    prompt = task.prompts([0])[0]
    assert prompt.text.startswith("<|im_start|>user\nWhat is")
    assert prompt.text.endswith("=<|im_end|>\n<|im_start|>assistant\n")
    assert task.tokenizer.decode(prompt.tokens) == prompt.text
    assert task.stop_token_ids == (1, 3)
    assert demonstration(task, prompt.problem)[-1] == 3
    task.tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert task_of(listed, again, test_fraction=0.0).prompts(range(9)) == task.prompts(range(9))


def test_too_little_text_is_one_clear_line():
    message = (
        r"^tokenizer 'train:2000': the training problems have text for \d+ tokens only; pass train:\d+ or less, or m"
    )
    with pytest.raises(ValueError, match=message) as error:
        task_of(LISTED, "train:2000")
    enough = str(error.value).split("pass ")[1].split(" ")[0]
    assert f"train:{len(task_of(LISTED, enough).tokenizer)}" == enough
