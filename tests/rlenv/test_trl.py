"""What TRL's trainer is given, without TRL: rows, a reward function and an environment class."""

from types import SimpleNamespace

import pytest
from dialogues import Talker, Twice

from rlenv.trl import environment, reward_function, rows
from rlenv.verifiers import Reply, Verdict, Verifier

ASKED = [{"role": "user", "content": ""}]


def said(text):
    return [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]


def test_rows_are_problems_of_the_verifier():
    made = rows("arith", 20, first_seed=5)
    assert [row["problem_seed"] for row in made] == list(range(5, 25))
    assert made == rows("arith", 20, first_seed=5) and len({row["prompt"][0]["content"] for row in made}) > 10
    reward = reward_function("arith")
    columns = {name: [row[name] for row in made] for name in ("answer", "problem_seed")}
    prompts = [row["prompt"] for row in made]
    assert reward(prompts, [said(row["answer"]) for row in made], **columns) == [1.0] * 20
    assert reward(prompts, [said("x")] * 20, **columns) == [0.0] * 20


def test_rows_of_a_dataset():
    reward = reward_function("numeric", tolerance=0.1)
    logged = []
    given = {"answer": ["12", 13], "log_metric": lambda *pair: logged.append(pair), "log_extra": None}
    assert reward(["How many?", said("-")[:1]], ["12.05", said("12")], **given) == [1.0, 0.0]
    assert reward.__name__ == "numeric" and logged == [("numeric/success", 0.5)]


class Sure(Verifier):
    inputs = ("completion.token_ids", "completion.progress")

    def verify(self, problem, completion):
        if completion == "crash":
            raise RuntimeError("no")
        if completion == "-":
            return Verdict(0.0, status="not_applicable")
        if completion.token_ids is None:
            return Verdict(0.0)
        assert problem.metadata == {"hint": "h"} and completion.progress == {"num_updates": 3, "max_updates": 9}
        return Verdict(len(completion.token_ids) / 4, {"length": len(completion.token_ids)})


def test_a_row_without_an_answer_has_no_verdict():
    with pytest.warns(UserWarning, match="^exact: 2 of 3 completions have no verdict, the first: .*answer"):
        paid = reward_function("exact")(["a", "b", "c"], ["None", "", "x"], answer=[None, None, "x"])
    assert paid == [None, None, 1.0]


def test_verdicts_that_could_not_be_reached_are_none_and_parts_are_logged():
    reward, logged = reward_function(Sure), []
    state = SimpleNamespace(global_step=3, max_steps=9)
    given = {"completion_ids": [[1], [1, 2, 3, 4], [1]], "trainer_state": state, "hint": ["h"] * 3}
    with pytest.warns(UserWarning, match=r"^Sure: 1 of 3 completions .* RuntimeError: no \(test_trl.py"):
        paid = reward(["?"] * 3, ["crash", "yes", "-"], log_metric=lambda *pair: logged.append(pair), **given)
    assert paid == [None, 1.0, None]
    assert logged == [("Sure/success", 1.0), ("Sure/length", 4.0)]


def test_a_dialogue_is_played_by_calls():
    cls = environment("guess")
    first, second = cls(), cls()
    assert cls.__name__ == "Guess" and first.get_reward() is None
    (row,) = rows("guess", 1)
    assert first.reset(**row) is None and second.reset(prompt=ASKED, problem_seed=0) == "1-64:"
    assert first.say(32) == ">" and second.say("x")  # TRL does not check the types of arguments
    answers = [first.say(text) for text in ("48", "56", "52", row["answer"])]
    assert answers[-1] == "The dialogue is over." and first.get_reward() == 1.0
    with pytest.raises(ValueError, match="the episode is over"):
        first.say("1")
    assert second.get_reward() == 0.0
    assert first.reset(**row) is None and first.get_reward() == 0.0


def test_turns_run_out_and_verifiers_fail(monkeypatch):
    monkeypatch.setattr(Twice, "reply", lambda self, turn: Reply({"a": "go on"}[turn], 0.25))
    playing = environment(Talker)()
    playing.reset(problem_seed=1)
    assert [playing.say("a") for _ in range(4)] == [*["go on"] * 3, "go on\nThe dialogue is over."]
    assert playing.get_reward() == 1.0
    playing.reset(problem_seed=1)
    playing.say("a turn that fails")
    with pytest.warns(UserWarning, match="^Talker: 1 of 1 completions have no verdict, the first: KeyError"):
        assert playing.get_reward() is None
