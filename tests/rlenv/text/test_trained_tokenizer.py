import pytest
from textgen_reference import demonstration
from transformers import AutoTokenizer

from rlenv.envs.task import TextGenTask
from rlenv.text.tokenizer import CHATML_TOKENS, EOS, PAD, SMALLEST, control_tokens

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
    assert control_tokens(tokenizer) == {PAD: 0, EOS: 1, CHATML_TOKENS[0]: 2, CHATML_TOKENS[1]: 3}
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
