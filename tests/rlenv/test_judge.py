import pytest

from rlenv.judge import Exchange, Judge
from rlenv.tokenizer import character_tokenizer, decode
from rlenv.vector_env import TextGenVectorEnv
from verifiers import Arith, Isolated, Problem, Verdict, Verifier, Weighted, isolate
from verifiers.dialogues.tools import WithTools
from verifiers.function import FunctionVerifier

SUM = Problem("12+34=", "46")
TOKENIZER = character_tokenizer("0123456789+=")


def ids(text):
    return [2 + "0123456789+=".index(character) for character in text]


def judged(verifier, tokenizer, problems, completions):
    texts = decode(tokenizer, completions)
    return texts, Judge(verifier)(problems, texts)


class Answers(Verifier):
    """Returns whatever it was made with as the verdicts of a batch."""

    def __init__(self, verdicts):
        self.verdicts = verdicts

    def verify_batch(self, problems, completions):
        return self.verdicts


@pytest.mark.parametrize("verdicts", [[], [Verdict(1.0)], [Verdict(1.0)] * 3, [1.0, 0.0], [Verdict(1.0), None]])
def test_another_number_of_verdicts_or_something_else_is_refused(verdicts):
    with pytest.raises(ValueError, match=r"Answers\.verify_batch.* 2 verdicts"):
        judged(Answers(verdicts), TOKENIZER, [SUM, SUM], [ids("4"), ids("6")])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("rewards", [[], [1.0, 1.0, 1.0]])
def test_another_number_of_rewards_is_never_flagged(rewards, workers):
    function = FunctionVerifier(lambda completions: rewards)
    for verifier in (function, WithTools(function, ["calculator"])):
        pool = Isolated(verifier, workers) if workers else None
        judge, said = Judge(verifier, pool, flag_errors=True), [Exchange(SUM, False, [], ["46"])] * 2
        wrong = rf"returned {len(rewards)} rewards for [12] completion"
        with pytest.raises(ValueError, match=wrong):
            judge([SUM] * 2, ["46", "47"])
        with pytest.raises(ValueError, match=wrong):
            judge.replies(said)
        if pool is not None:
            pool.close()


def test_a_bug_of_the_verifier_is_not_swallowed():
    class Broken(Verifier):
        def verify(self, problem, completion):
            raise ZeroDivisionError("my own bug")

    with pytest.raises(ZeroDivisionError, match="my own bug"):
        judged(Broken(), TOKENIZER, [SUM], [ids("46")])
    env = TextGenVectorEnv(1, verifier=Broken(), problems=["a"], test_fraction=0.0, max_new_tokens=1)
    env.reset(seed=0)
    with pytest.raises(ZeroDivisionError, match="my own bug"):
        env.step([2])
    assert env.step([2])[0]["length"].tolist() == [2], "its episode is over"


def test_an_exception_that_cannot_be_shown_is_an_error():
    class HostileError(Exception):
        def __str__(self):
            raise RuntimeError("str")

    class Broken(Verifier):
        def verify(self, problem, completion):
            raise HostileError

    [verdict] = Judge(Broken(), flag_errors=True)([SUM], ["46"])
    assert verdict.status == "error" and verdict.reason.startswith("HostileError (test_judge.py:")


class Generous(Arith):
    """Pays 2.5 for what is right, and declares no range."""

    def verify(self, problem, completion):
        return Verdict(2.5 * super().verify(problem, completion).reward)


HOW = {
    "here": Generous,
    "as a part": lambda: Weighted({"part": {"weight": 0.1, "verifier": Generous()}}),
    "in a worker": lambda: isolate(Generous(), workers=1),
}


@pytest.mark.parametrize("how", ["here", "as a part", pytest.param("in a worker", marks=pytest.mark.slow)])
def test_a_reward_outside_the_declared_range_is_an_error_wherever_it_is_judged(how):
    verifier = HOW[how]()
    wrong, right = Judge(verifier)([SUM] * 2, ["47", "46"])
    assert (wrong.reward, wrong.status, right.reward, right.status) == (0.0, "ok", 0.0, "error")
    said = "the reward 2.5 is outside reward_range (0.0, 1.0) of Generous; declare another reward_range"
    assert right.reason == ("part: " if "part" in how else "") + said
    verifier.close()
