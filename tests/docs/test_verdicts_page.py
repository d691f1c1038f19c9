"""The disagreements of verifiers with a reader, on answers of a real model, are those of docs/verdicts/."""

from collections import Counter

import pytest
from loaded import loaded
from tiny_models import write_chat_model

from verifiers.isolation.sandbox import run as sandbox

MAKER = loaded("docs/make_verdicts.py")
PROBLEMS, ANSWERS, READER = (MAKER.read(name) for name in ("problems", "answers", "reader"))
SLOW = ("math", "code")  # milliseconds per verdict
needs_sandbox = pytest.mark.skipif(bool(sandbox.unavailable()), reason="see test_sandbox.py")


def family(answer):
    return PROBLEMS[answer["problem"]]["family"]


def test_the_tables_are_those_of_the_files():
    for path, text in MAKER.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/make_verdicts.py"


def test_each_family_has_as_many_answers_and_as_many_that_were_read():
    assert Counter(map(family, ANSWERS)) == dict.fromkeys(MAKER.FAMILIES, 200)
    assert all(list(answer["paid"]) == list(MAKER.FAMILIES[family(answer)]) for answer in ANSWERS)
    read = [ANSWERS[row["answer"]] for row in READER]
    assert Counter(map(family, read)) == dict.fromkeys(MAKER.FAMILIES, 2 * MAKER.READ)
    assert len({(answer["problem"], answer["text"]) for answer in read}) == len(read)
    assert all(isinstance(row["right"], bool) for row in READER)


def test_what_was_read_was_drawn_by_the_first_verdicts():
    first = [answer | {"paid": answer["paid"] | answer.get("then", {})} for answer in ANSWERS]
    assert [row["answer"] for row in READER] == MAKER.to_read(PROBLEMS, first)


def assert_kept(answers):
    assert {key: answer["paid"] for key, answer in enumerate(MAKER.judged(answers))} == {
        key: answer["paid"] for key, answer in enumerate(answers)
    }


def test_verifiers_still_say_what_is_kept_about_a_sample():
    assert_kept([ANSWERS[row["answer"]] for row in READER if family(ANSWERS[row["answer"]]) != "code"][::8])


@pytest.mark.slow
@needs_sandbox
def test_verifiers_still_say_what_is_kept_about_all_answers():
    assert_kept(ANSWERS)


def test_answers_are_sampled_in_the_same_way_again(tmp_path, monkeypatch):
    write_chat_model(tmp_path / "model")
    for name, value in {"DATA": tmp_path, "CONTEXT": 54, "TOKENS": (3, 6), "SAMPLES": SAMPLES}.items():
        monkeypatch.setattr(MAKER, name, value)
    posed = [PROBLEMS[0] | {"prompt": "ab"}, PROBLEMS[180] | {"prompt": "cd"}, PROBLEMS[1] | {"prompt": "ef"}]
    MAKER.write("problems", posed)
    answers = list(MAKER.sample(str(tmp_path / "model"), ("numbers", "code")))
    assert [answer["problem"] for answer in answers] == [0, 2, 0, 0, 2, 2, 1, 1, 1]
    assert Counter(answer["temperature"] for answer in answers) == {"greedy": 3, "1.0": 6}
    assert len({answer["text"] for answer in answers}) > 3
    assert list(MAKER.sample(str(tmp_path / "model"), ("code",))) == answers[6:]


SAMPLES = {"greedy": 1, "1.0": 2}
