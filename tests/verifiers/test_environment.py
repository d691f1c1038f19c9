"""environment: classes as TRL's GRPOTrainer takes them."""

import random
import sys

import gymnasium as gym
import pytest
from environment_classes import Later, Numbers, Unpaid, by_guesses

import rlenv  # noqa: F401  # noqa: F401
from verifiers import Problem, isolate, make_verifier
from verifiers.plugins.registry import trusting

FILE = sys.modules[Numbers.__module__].__file__
ROW = {"prompt": "Play: ", "target": 7}


def bisection(made, problem):
    """Return the replies and the verdict of an episode that bisects."""
    playing, said = made.dialogue(problem), []
    low, high = 1, 9
    try:
        while not said or said[-1] != "right":
            middle = (low + high) // 2
            said.append(playing.reply(f"guess({middle})").content[0]["content"])
            low, high = (middle + 1, high) if said[-1] == "higher" else (low, middle - 1)
        return said, playing.reply("done").verdict
    finally:
        playing.close()


@pytest.mark.parametrize("cls", [Numbers, Later])
def test_an_episode(cls):
    made = make_verifier(cls)
    problem = made.opened(Problem("Play: ", metadata={"target": 7}))
    assert problem.prompt == "Play: 1 to 9, odd? " and list(made.dialogue(problem).instance.box.by_name) == ["guess"]
    said, verdict = bisection(made, problem)
    assert said == ["higher", "right"] and verdict.reward == pytest.approx(0.9) and verdict.parts == {}


def test_calls_that_fail_are_answered():
    playing = make_verifier(Numbers).dialogue(Problem("-", metadata={"target": 7}))
    texts = [playing.reply(turn).content[0]["content"] for turn in ("guess(10)", 'guess("x")', "guess()")]
    assert texts[0] == "Error: between 1 and 9" and all(text.startswith("Error: ") for text in texts)
    reply = playing.reply("guess(1)\nreset()")
    assert [each["content"] for each in reply.content] == ["higher"] and reply.counts["tool_calls"] == 1
    assert playing.out_of_budget().reward == 0


def test_reset_gets_the_columns_of_the_problem():
    made = make_verifier(Numbers)
    problem = made.opened(Problem("Play: ", "7", {"target": 7, "hint": "odd"}))
    playing = made.dialogue(problem)
    assert playing.instance.env.resets == [{"prompt": "Play: ", "answer": "7", "hint": "odd"}] * 2
    talk = made.opened(Problem([{"role": "user", "content": "Play: "}], metadata={"target": 6}))
    assert talk.prompt == [{"role": "user", "content": "Play: 1 to 9, even? "}]


def test_without_listed_problems_a_problem_is_a_seed():
    made, before = make_verifier(Numbers), random.getstate()
    problem = made.sample(random.Random(3))
    assert random.getstate() == before and problem.prompt.startswith("1 to 9") and set(problem.metadata) == {"seed"}
    playing = [made.dialogue(problem) for _ in range(8)]
    assert len({each.instance.env.number for each in playing}) == 1
    assert made.split_key(problem) == str(problem.metadata["seed"])
    listed = [made.opened(Problem("Play: ", metadata={"seed": 1, "target": target})) for target in (7, 9, 7)]
    keys = [made.split_key(each) for each in listed]
    assert listed[0].prompt == listed[1].prompt and keys[0] == keys[2] != keys[1]
    others = [made.dialogue(made.sample(random.Random(seed))) for seed in range(20)]
    assert len({each.instance.env.number for each in others}) > 3
    assert playing[0].instance.env.resets[-1].keys() == {"prompt", "seed"}


def test_functions_beside_it():
    made = make_verifier([Numbers, by_guesses], reward_weights=[2.0, 0.25])
    _, verdict = bisection(made, Problem("-", metadata={"target": 7}))
    assert verdict.parts == pytest.approx({"Numbers": 0.9, "by_guesses": 2.0})
    assert verdict.reward == pytest.approx(2 * 0.9 + 0.25 * 2)
    assert made.part_weights == {"Numbers": 2.0, "by_guesses": 0.25}
    alone = make_verifier([Unpaid, by_guesses])
    assert bisection(alone, Problem("-", metadata={"target": 7}))[1].reward == 2


def test_named_in_a_file():
    for spec in (f"{FILE}:Numbers", f"environment:{FILE}:Numbers", f"{FILE}:Unpaid,{FILE}:by_guesses=0.5"):
        made = make_verifier(spec)
        assert bisection(made, Problem("-", metadata={"target": 5}))[1].reward in (1, 0.5)
        with trusting(False), pytest.raises(ValueError, match="--trust"):
            make_verifier(spec)


def test_workers_replay_it():
    made = isolate(make_verifier(f"{FILE}:Later"), workers=1)
    try:
        problem = made.sample(random.Random(0))
        assert bisection(made, problem) == bisection(made.verifier, problem)
    finally:
        made.close()


def test_the_environment_renders_the_observation_and_pays():
    env = gym.make("TextGen-v0", verifier=Numbers, problems=[ROW], test_fraction=0.0)
    env.reset(seed=0)
    task = env.unwrapped.task
    assert env.unwrapped.task.stream[0].prompt == "Play: 1 to 9, odd? "
    for turn in ("guess(5)", "guess(7)", "7"):
        for token in [*task.encoder.ids([turn])[0], task.eos_token_id]:
            _, reward, over, _, info = env.step(token)
    assert over and reward == pytest.approx(0.9) and info["turns"] == 3 and info["tool_calls"] == 2


class Own:
    """Draws from a generator that no seed reaches."""

    def __init__(self):
        self.rng = random.Random(0)

    def reset(self):
        return str(self.rng.random())

    def get_reward(self):
        return 1.0


class Seeded(Own):
    def reset(self, seed):
        self.rng = random.Random(seed)
        return super().reset()


def test_an_episode_that_is_not_the_one_in_the_prompt_is_refused():
    made = make_verifier(Own)
    with pytest.raises(ValueError, match=r"Own\.reset.* seed"):
        made.dialogue(made.sample(random.Random(0)))
    made = make_verifier(Seeded)
    for problem in (made.sample(random.Random(0)), made.opened(Problem("Play: "))):
        playing = made.dialogue(problem)
        assert problem.prompt.endswith(playing.observation)
        playing.close()


def test_arguments_beside_reward_functions():
    made = make_verifier([Numbers, by_guesses], turns=3)
    assert made.max_turns == 4
    with pytest.raises(ValueError, match=r"EnvironmentClass.*guess"):
        gym.make("TextGen-v0", verifier=Numbers, tools=["calculator"])


def test_objects_are_made_once_and_reset_often():
    Numbers.made = 0
    made = make_verifier(Numbers)
    for _ in range(3):
        both = [made.dialogue(Problem("-", metadata={"target": 7})) for _ in range(2)]
        assert len({id(each.instance) for each in both}) == 2
        for each in both:
            each.close()
    assert Numbers.made == 2


def test_calls_of_the_last_turn_are_not_made():
    playing = make_verifier(Numbers, turns=1).dialogue(Problem("-", metadata={"target": 7}))
    assert playing.reply("guess(1)").verdict is None
    assert playing.reply("guess(7)").verdict.reward == 0 and playing.instance.env.guesses == 1


def test_a_choice_of_prompts_poses_the_episode_that_the_prompt_shows():
    rows = [{"prompt": f"Game {number}: "} for number in range(6)]
    env = gym.make("TextGen-v0", verifier=Numbers, problems=rows, test_fraction=0.0, prompt_choice="thompson")
    env.reset(seed=0)
    task = env.unwrapped.task
    for index in range(4):
        problem = task.stream[index]
        again = task.verifier.dialogue(problem)
        assert problem.prompt.endswith(again.observation)
        again.close()
