"""Dialogues: what a reply may be, one turn as a completion, and worker processes that replay all turns."""

import pytest
from dialogues import Echoing, Hashing

from verifiers import Dialogue, Isolated, Problem, Reply, Verdict, Verifier, isolate
from verifiers.dialogues import begin, reply_to, verdict_without_budget

TURNS = ["a", "bb", "", "dcba", "c"]


def live(verifier, problem, turns=TURNS):
    """Return the replies of one dialogue, up to its end."""
    dialogue, replies = begin(verifier, problem), []
    for turn in turns:
        replies.append(reply_to(dialogue, turn))
        if replies[-1].verdict is not None:
            break
    return replies


def test_a_completion_is_a_dialogue_of_one_turn():
    class Guess(Verifier):
        def dialogue(self, problem):
            class Yes(Dialogue):
                def reply(self, turn):
                    return Reply("no", 0.25, Verdict(0.5) if turn == problem.answer else None)

            return Yes()

    problem = Problem("?", "7")
    assert Guess().has_dialogues and not Verifier().has_dialogues
    assert [Guess().verify(problem, turn).reward for turn in ("7", "8")] == [0.75, 0.25]
    assert Verifier().dialogue(problem) is None
    (reply,) = live(Echoing(alone=True), Problem("ab"))
    assert reply.verdict == Echoing().verify(Problem("ab"), "a")


@pytest.mark.parametrize(("low", "high", "least"), [(0.0, 1.0, 0.0), (0.5, 2.0, 0.5), (-2.0, -1.0, -1.0)])
def test_without_an_answer_a_verifier_of_completions_pays_what_is_nearest_to_nothing(low, high, least):
    verifier = Verifier()
    verifier.reward_range = (low, high)
    assert verdict_without_budget(begin(verifier, Problem("?"))) == Verdict(least)


def test_verify_closes_a_dialogue_that_fails():
    closed = []

    class Failing(Dialogue):
        def reply(self, turn):
            raise OSError("gone")

        def close(self):
            closed.append(self)

    class Talking(Verifier):
        def dialogue(self, problem):
            return Failing()

    with pytest.raises(OSError, match="gone"):
        Talking().verify(Problem("?"), "a")
    assert len(closed) == 1


def test_workers_give_the_replies_of_live_dialogues_and_a_wrapped_verifier_is_asked_there():
    verifier = Echoing(alone=True)
    problems = [Problem(text) for text in ("ab", "b", "cd", "dd", "bcd")]
    expected = [live(verifier, problem) for problem in problems]
    assert len({len(replies) for replies in expected}) > 1
    isolated = isolate(verifier, workers=1)
    try:
        assert [live(isolated, problem) for problem in problems] == expected
        asked = [(problem, TURNS[: len(replies)], False) for problem, replies in zip(problems, expected, strict=True)]
        assert [future.result() for future in isolated.ask(asked)] == [replies[-1] for replies in expected]
        hashing = Hashing(problems[1])
        hashing.reply("a")
        dialogue = isolated.dialogue(problems[1])
        dialogue.reply("a")
        assert type(dialogue) is not Hashing and dialogue.out_of_budget() == hashing.out_of_budget()
        assert isolated.max_turns == 4 and isolated.has_dialogues
    finally:
        isolated.close()


class Random(Verifier):
    """Its dialogues draw anew at every replay."""

    def dialogue(self, problem):
        class Draws(Dialogue):
            deterministic = False

            def reply(self, turn):
                return Reply("go on")

        return Draws()


def test_a_dialogue_that_cannot_be_replayed_is_an_error_in_a_worker():
    pool = Isolated(Random(), workers=1)
    try:
        (future,) = pool.ask([(Problem("?"), ["", ""], False)])
        reply = future.result()
        assert reply.verdict.status == "error" and "not deterministic" in reply.verdict.reason
    finally:
        pool.close()
