"""What agents refuse: a call, and what its one line must name (the setting, the value that was given, the remedy)."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting_env import IMAGE, SEEN, TWO, Somebody
from fake_engine import FakeEngine
from gymnasium import spaces
from refused import refusal
from stable_baselines3.common.callbacks import CallbackList
from tiny_models import text_envs, tiny_model, tiny_policy
from torch.nn import Linear, Parameter

from rlenv import agents
from rlenv._setting import NUMBERS
from rlenv._settings import declared_by, setting
from rlenv.agents import AGENTS, GRPO, PPO, RLOO, SDPO, Agent, Distillation, Reinforce, ReinforceBaseline, Rollout
from rlenv.agents.estimators import baselines
from rlenv.agents.estimators.pass_at_k import bootstrap_mean, maj_at_k, pass_at_k
from rlenv.agents.policies.choosing import evaluate_choices
from rlenv.agents.policies.token_extractor import TokenExtractor
from rlenv.agents.rollouts.action_probabilities import Onlooker
from rlenv.agents.rollouts.envs import find_spec, step_limit
from rlenv.agents.settings import default_of
from rlenv.agents.training.callbacks import as_callback
from rlenv.agents.training.optimizer import PolicyOptimizer

NAN, INF = float("nan"), float("inf")
ARITH = {"verifier": "arith"}
SERVED = {"engine": "vllm", "engine_url": "http://localhost:8000"}
MISTYPED = {"verifier": "exact", "problems": ["1"] * 99, "max_tokens": 9}
ONE_BY_ONE = {"verifier": lambda prompt, completions: [0.0], "problems": [{"prompt": "1", "answer": "1"}]}
SOLUTIONS = {"verifier": lambda completions, solution: [0.0], "problems": [{"prompt": "1", "answer": "1"}]}
FREE, SMALL = spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0, 255, (3, 8, 8), np.uint8)
MANY, SWAPPED = spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([3, 2])
TOKENS = spaces.Dict({"tokens": spaces.Box(0, 4, (6,), np.int64), "length": spaces.Discrete(7)})


class Raising(Somebody):
    def reset(self, *, seed=None, options=None):
        return self.nothing, {}


class Argless(Somebody):
    def step(self):
        return self.then


class Seedless(Somebody):
    def reset(self):
        return self.first


class Twofold(gym.ObservationWrapper):
    """A wrapper that says that it sees what it does not."""

    def observation(self, seen):
        return np.concatenate([seen, seen])


def stepped(**answers):
    """Return a step's five values, some in place of those that are right."""
    right = {"obs": SEEN, "reward": 1.0, "terminated": True, "truncated": False, "info": {}}
    return {"then": tuple((right | answers).values())}


ALL = "ok, timeout, error, not_applicable"  # statuses
PAIR, BOTH = spaces.Dict({"a": IMAGE, "b": TWO}), {"a": SEEN, "b": 1}
RETURNED = "(observation, reward, terminated, truncated, info)"
BOX = "Box(0.0, 1.0, (3,), float32)"
SOMEBODIES = [  # what an environment does; what is named beside its class
    ({"first": SEEN}, ("reset: too many values to unpack", "(observation, info)")),
    ({"first": (np.zeros(4), {})}, ("reset returned an observation of shape (4,)", BOX)),
    ({"then": (SEEN, 1.0, True, {})}, ("step: not enough values to unpack (expected 5, got 4)", RETURNED)),
    ({"then": [SEEN, 1.0, True, False, {}]}, ("step: Expects step result to be a tuple", "'list'", RETURNED)),
    (stepped(reward=1j), ("step: ", "complex", RETURNED)),
    (stepped(obs="left"), ("step returned an observation", "'left'", BOX)),
    (stepped(reward=[1.0]), ("step: setting an array element with a sequence; write", RETURNED, "a number as reward")),
    ({"observation_space": TWO, "first": (2, {})}, ("reset returned an observation 2", "Discrete(2)")),
    (stepped(info=None), ("step: The `info`", "dictionary", "'NoneType'")),
    ({"observation_space": PAIR, "first": (SEEN, {})}, ("reset: The obs", "must be a dict", "'numpy.ndarray'")),
    ({"observation_space": PAIR, "first": ({"a": SEEN}, {})}, ("obs keys: ['a']", "space keys: ['a', 'b']")),
    ({"observation_space": PAIR, "first": (BOTH | {"b": [1]}, {})}, ("reset returned an observation", "Discrete(2)")),
]


def somebodys(env=None, **does):
    """Train in an environment that does this, until its second step, whatever Gymnasium warns of before."""
    with warnings.catch_warnings(action="ignore"):
        env = env or Somebody(**does)
        pole(Reinforce, "auto", env, num_envs=1, episodes_per_update=2).learn(total_episodes=2)


class Own(agents.Policy):
    """A policy of somebody's."""


def pole(cls=ReinforceBaseline, policy="MlpPolicy", env="CartPole-v1", **settings):
    return cls(policy, env, **{"device": "cpu", "episodes_per_update": 8} | settings)


def text(cls=Reinforce, policy="tiny", size=4, **settings):
    return cls(policy, text_envs(4, group_size=size), device="cpu", **settings)


def space(observation_space, action_space, policy="auto", **policy_kwargs):
    return pole(Reinforce, policy, Somebody(observation_space, action_space), policy_kwargs=policy_kwargs, num_envs=1)


def llama(**given):
    return tiny_policy("llama", text_envs(1), **given)


def served(url, **arguments):
    """Train with an engine at an address."""
    text(GRPO, engine="vllm", engine_url=url, engine_kwargs=arguments, episodes_per_update=4).learn(total_episodes=4)


class Passing(Reinforce):
    """An agent that passes on a name that does not exist."""

    def __init__(self, policy, env):
        super().__init__(policy, env, gama=0.5)


def declare(name, value, annotation=None):
    return type("Wrong", (RLOO,), {name: value, "__annotations__": {} if annotation is None else {name: annotation}})


def mixed(**body):
    return type("Wrong", (type("Mixin", (), body), RLOO), {})


def distillation(**settings):
    return text(Distillation, tiny_model("gpt2"), **settings)


def taught(**settings):
    return pole(Distillation, teacher=pole().policy, **settings)


def fewer_copies():
    ours, others = (PolicyOptimizer(llama(dtype="bfloat16")) for _ in range(2))
    state = ours.state_dict()
    state["masters"].pop()
    others.load_state_dict(state)


def slots_of_groups():
    make = lambda: gym.make("TextGen-v0", verifier="arith", group_size=4)  # noqa: E731
    RLOO("tiny", gym.vector.SyncVectorEnv([make] * 3), device="cpu")


def predicted(space, obs):
    Reinforce("auto", Somebody(space), device="cpu").predict(obs)


def scheduled(name, first):
    """Train with a setting that is a function, which returns this and then 0."""
    pole(PPO, **{name: lambda left: first if left == 1 else 0.0}).learn(total_episodes=16)


def infos_in_a_list():
    envs = gym.wrappers.vector.DictInfoToList(gym.make_vec("CartPole-v1", num_envs=2))
    Reinforce("MlpPolicy", envs, device="cpu").learn(1)


def evaluated_elsewhere(own, other):
    Reinforce("auto", Somebody(*own), device="cpu").evaluate(Somebody(*other), 1)


SETTINGS = [  # agent on CartPole, setting, value, what is named: more than each declaration says of itself
    ("reinforce-baseline", "group_size", 2, ""),
    ("reinforce-baseline", "device", "cudaa", "cannot be used"),
    ("rloo", "reply_coef", 0.5, "ControlPolicy reads no replies"),
    ("cispo", "max_ratio", None, "at least 1"),
    ("kl-cov", "max_covariance", 0, "min_covariance=0"),
    ("ppo", "mismatch_max", None, "no effect without mismatch"),
    ("rloo", "kl_ratio", "constant", "kl_in='loss'"),
    ("pkpo", "k", 9, "k=1 to 8"),
    ("gdpo", "part_weights", {"right": "1"}, "map parts to numbers"),
    ("gdpo", "part_weights", {"right": 10**400}, "map parts to numbers"),
    ("gdpo", "normalize_rewards", True, "no effect in GDPO"),
    ("rloo", "policy_kwargs", 3, "a table"),
    ("rloo", "tensorboard_log", 3, "a text"),
]
SPACES = [  # observations, actions, policy, its arguments; what is named
    (spaces.Tuple([IMAGE, IMAGE]), TWO, "auto", {}, ("observation space Tuple", "supported: Box")),
    (IMAGE, spaces.Tuple([spaces.Discrete(2)]), "auto", {}, ("action space Tuple", "supported: Box")),
    (IMAGE, spaces.Box(-1, 1, (0,)), "auto", {}, ("action space Box", "(0,)", "at least one number")),
    (spaces.Dict({"a": spaces.Dict({"b": IMAGE})}), TWO, "auto", {}, ("observation space Dict", "supported")),
    (spaces.Discrete(3, start=1), TWO, "auto", {}, ("start=1", "start=0")),
    (spaces.Box(-1, 1, ()), TWO, "auto", {}, ("observation space Box", "shape ()", "(1,)")),
    (spaces.MultiDiscrete([[2, 3]]), TWO, "auto", {}, ("space MultiDiscrete", "(1, 2)", "one dimension")),
    (IMAGE, spaces.MultiBinary([2, 3]), "auto", {}, ("space MultiBinary", "(2, 3)", "one dimension")),
    (spaces.Box(0, 255, (40, 40, 3), np.uint8), TWO, "CnnPolicy", {}, ("channels first", "VecTransposeImage")),
    (spaces.Box(0, 1, (3, 40, 40)), TWO, "CnnPolicy", {}, ("uint8", "float32", "MlpPolicy")),
    (SMALL, TWO, "CnnPolicy", {}, ("CnnPolicy", "36 x 36", "(3, 8, 8)")),
    (spaces.Dict({"a": IMAGE, "arm.left": IMAGE}), TWO, "auto", {}, ("'arm.left'", "without a dot")),
    (spaces.Dict({"a": SMALL}), TWO, "auto", {}, ("MultiInputPolicy", "36 x 36", "(3, 8, 8)")),
    (IMAGE, TWO, "auto", {"use_sde": True}, ("use_sde", "a Box", "Discrete(2)")),
    (spaces.Dict({"a": IMAGE}), TWO, "MlpPolicy", {}, ("MultiInputPolicy",)),
    (IMAGE, spaces.Box(-1, 1, (1,)), "auto", {"squash_output": True}, ("squash_output", "use_sde=True")),
    (IMAGE, FREE, "auto", {"squash_output": True, "use_sde": True}, ("squash_output", "bounds")),
    (IMAGE, TWO, "MlpPolicy", {"normalize_observations": "yes"}, ("normalize_observations", "'yes'")),
    (IMAGE, FREE, "MlpPolicy", {"sde_sample_freq": 4}, ("sde_sample_freq=4", "use_sde=True")),
    (IMAGE, FREE, "MlpPolicy", {"sde_sample_freq": 0, "use_sde": True}, ("sde_sample_freq", "0")),
    (spaces.Dict({"a": IMAGE}), TWO, "auto", {"normalize_observations": True}, ("MlpPolicy, got MultiInputPolicy",)),
    (IMAGE, TWO, "MlpPolicy", {"activation_fn": "ReLu"}, ("activation_fn 'ReLu'", "'ReLU'")),
    (IMAGE, TWO, "MlpPolicy", {"features_extractor_class": Linear}, ("features_extractor_class", "cannot be saved")),
]
ADAPTERS = [  # arguments of a language model of width 16; what is named
    ({"lora_rank": 17}, ("lora_rank=17", "1 to 16")),
    ({"lora_rank": 2, "lora_alpha": 0.0}, ("lora_alpha", "above 0", "0.0")),
    ({"lora_alpha": 2.0}, ("lora_alpha", "lora_rank")),
    ({"lora_rank": 2, "lora_targets": "q_proj,qproj"}, ("LoRA target 'qproj'", "'q_proj'", "all-linear", "v_proj")),
]
TEACHERS = [  # settings of a distillation with text; what is named
    ({"kl_coef": 0.1}, ("kl_coef=0.1", "teacher")),
    ({"teacher_temperature": 2}, ("teacher_temperature=2", "without teacher")),
    ({"teacher": "small"}, ("'small'", "random weights", "run folder")),
    ({"teacher": Path("nowhere")}, ("teacher 'nowhere'", "neither a folder that exists nor a model's id", "a trained")),
    ({"teacher": 5}, ("teacher=5", "run folder")),
]
HINTS = [  # settings of SDPO with text that have no effect, and of what
    ({"teacher_weights": "live", "average_rate": 0.5}, ("average_rate=0.5", "without averaged weights")),
    ({"teacher": "nowhere", "teacher_weights": "start"}, ("teacher_weights='start'", "with a teacher")),
    ({"estimator": "sampled", "divergence": "forward-kl"}, ("divergence='forward-kl'", "estimator='sampled'")),
]
IDLE = [  # settings of a distillation that have no effect, and of what
    ({"kl_in": "loss"}, ("kl_in='loss'", "KL anchor")),
    ({"estimator": "exact", "mismatch": "token-mask"}, ("'token-mask'", "estimator='exact'")),
    ({"normalize_rewards": True}, ("normalize_rewards=True", "reward_coef")),
]
MEANT = [  # policy, environment, settings; what is named
    ("MlpPolcy", "CartPole-v1", {}, ("'MlpPolcy'", "'MlpPolicy'")),
    ("tny", "TextGen-v0", {"env_kwargs": ARITH}, ("'tny'", "'tiny'")),
    ("./nowhere", "TextGen-v0", {"env_kwargs": ARITH}, ("'./nowhere'", "allowed: tiny")),
    ("me/tiny", "TextGen-v0", {"env_kwargs": ARITH}, ("'me/tiny'", "allowed: tiny")),  # an id, which is not misspelled
    ("tiny", "CartPole-v1", {}, ("language model", "observations")),
    ("MlpPolicy", "CartPoel-v1", {}, ("CartPole",)),
    ("MlpPolicy", 3, {}, ("an environment is an id",)),
    ("MlpPolicy", "CartPole-v1", {"env_kwargs": {"colour": "red"}}, ("colour",)),
    ("MlpPolicy", gym.make("CartPole-v1"), {"env_kwargs": {"colour": "red"}}, ("env_kwargs={'colour': 'red'}", "id")),
    ("MlpPolicy", "CartPole-v1", {"policy_kwargs": {"layers": 3}}, ("layers",)),
    ("MlpPolicy", "CartPole-v1", {"policy_kwargs": {"net_arch": 64}}, ("'MlpPolicy' with net_arch=64",)),
    ("MlpPolicy", "CartPole-v1", {"policy_kwargs": {"optimizer_kwargs": {"eps": 1}}}, ("optimizer_kwargs", "adam_eps")),
    ("MlpPolicy", gym.make("CartPole-v1"), {"num_envs": 4}, ("num_envs=4", "has 1")),
    ("tiny", "TextGen-v0", {"env_kwargs": ARITH, "policy_kwargs": {"temperature": 0}}, ("temperature", "0")),
    ("tiny", "TextGen-v0", {"env_kwargs": ARITH, "episodes_per_update": 10}, ("=4", "episodes_per_update=10")),
]
DECLARED = [  # annotation and facts of a setting tilt of a class of one's own; what is named
    ("float", {"default": None}, ("no default", "setting(default=...)", "float | None")),
    (float | Literal["auto"], {"default": "auto"}, ("names beside another type", "checked_by=...")),
    ("list", {"default": [2]}, ("share its default [2]", "a tuple")),
    ("float", {"default": 2, "low": 0, "high": 1}, ("default is wrong", "finite number", "2")),
]
WRONG_TYPES = [
    *((lambda a=a, f=f: declare("tilt", setting(**f), a), ("Wrong.tilt", *said)) for a, f, said in DECLARED),
    (lambda: declare("gamma", 0.5), ("Wrong.gamma is a setting", "gamma: float = 0.5")),
    (lambda: mixed(gamma=0.5), ("Mixin.gamma is a setting", "gamma: float = 0.5 in Wrong")),
    (lambda: mixed(tilt=setting(default=0.5)), ("Mixin.tilt is a setting", "derive Mixin from Agent")),
    *((lambda n=n: declare(n, 0.5, "float"), (f"Wrong.{n}: ", "uses this name")) for n in ("rate", "env", "update")),
    (partial(pole, PPO, num_epoch=1), ("PPO has no setting 'num_epoch'", "'num_epochs'", "allowed", "gae_lambda")),
    (partial(pole, PPO, batch_size=64), ("'batch_size'", "it is num_minibatches here (docs/appendix/names.md)")),
    (partial(pole, PPO, use_sde=True), ("it is use_sde in policy_kwargs here",)),
    (partial(pole, PPO, rollout_buffer_class=int), ("rollout_buffer_class", "docs/appendix/names.md", "allowed")),
    (partial(pole, GRPO, num_generations=4), ("'num_generations'", "it is group_size here (docs/from-trl.md)")),
    (lambda: declare("tilt", setting(default=1)), ("'tilt'", "no type annotation")),
    (lambda: declare("tilt", setting(default=1, lowest=0), "float"), ("'lowest'",)),
    (lambda: type("Wrong", (Reinforce,), {"__annotations__": {"tilt": "float"}}), ("Wrong.tilt has no default",)),
    (lambda: Passing("MlpPolicy", "CartPole-v1"), ("unexpected keyword argument 'gama'",)),
]


def answering(cls=Reinforce, **methods):
    """Train an agent with some functions of an algorithm."""
    pole(type("Odd", (cls,), methods)).learn(total_episodes=8)


def acting(method, change, cls=Reinforce, **settings):
    """Train an agent with a policy of which a method's result is changed."""
    agent = pole(cls, **settings)
    inherited = getattr(agent.policy, method)
    setattr(agent.policy, method, lambda *given: change(inherited(*given)))
    agent.learn(total_episodes=8)


def only_log_probs(found):
    return {"log_probs": found["log_probs"]}


def replayed(agent, first=0):
    """Play a rollout again whose groups begin with another number."""
    rollout = agent.collect_rollout(as_callback(None, agent))
    agent.replay(replace(rollout, groups=rollout.groups + first))


def losing(change):
    """Train an agent whose loss is changed."""
    answering(loss=lambda agent, batch: change(*Reinforce.loss(agent, batch)))


def noting_of_episodes(agent, log_probs, batch):
    batch.note("train/h", batch.returns)


def uncounted(agent, callback):
    return agent.evaluate(agent.env, 8)[1]


def keeping_none(agent, rollout):
    return super(type(agent), agent).prepare(rollout.select(slice(0)))


def emptied(agent, rollout):
    return Reinforce.prepare(agent, rollout).select(slice(0))


def forgetful(self, *args, **settings):
    """Stand in for a constructor, and forget that of the parent."""


def scheduled_by_torch():
    agent = pole()
    torch.optim.lr_scheduler.StepLR(agent.optimizer, 1)
    agent.learn(8)


def learns_in_advantages():
    def setup(agent, env, group_size):
        agent.log_temperature = Parameter(torch.zeros(()))

    advantages = lambda agent, rollout: Reinforce.advantages(agent, rollout) * agent.log_temperature.exp()  # noqa: E731
    answering(setup=setup, advantages=advantages)


WRONG_TYPES += [
    (lambda: pole(Reinforce).learn(1, callback=[CallbackList]), ("CallbackList'> is not a callback", "an instance")),
    (lambda: losing(lambda loss, _: loss), ("Odd.loss returns a Tensor", "return the loss and a dictionary")),
    (lambda: losing(lambda loss, figures: (loss.expand(2), figures)), ("Odd.loss returns the loss of shape (2,)",)),
    (lambda: losing(lambda loss, _: (loss, {"train/h": loss.expand(5)})), ("returns train/h of shape (5,)",)),
    (lambda: losing(lambda loss, _: (loss, {"train/h": "x"})), ("returns train/h str",)),
    (lambda: losing(lambda loss, _: (loss, {})), ("Odd.loss returns no train/logp_gap_max", "super().loss(batch)")),
    (lambda: losing(lambda loss, figures: (loss.detach(), figures)), ("Odd.loss", "no gradient", "log_probs")),
    (lambda: answering(reductions={"train/h": "mean"}), ("reductions", "'mean'", "Reduce.MEAN")),
    (lambda: answering(__init__=forgetful), ("Odd", "__init__", "super()")),
    (lambda: answering(__post_init__=forgetful), ("Odd", "__post_init__", "super()")),
]
LACKING = [
    (lambda: answering(Agent), ("Odd lacks advantages(rollout)",)),
    (lambda: answering(Agent, advantages=Reinforce.advantages), ("Odd lacks weights, such as staticmethod",)),
]
ONE_STEP = Rollout.of_demonstrations(torch.zeros(1), torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))
OTHERS = [
    (lambda: agents.as_vec_env(Somebody()), ("as_vec_env takes a gymnasium VectorEnv", "Somebody", "DummyVecEnv")),
    (partial(evaluated_elsewhere, (IMAGE, MANY), (IMAGE, SWAPPED)), ("[3 2]", "is not that of the policy")),
    *(
        (partial(evaluated_elsewhere, (PAIR,), (spaces.Dict(other),)), (said, "not that of the policy"))
        for other, said in (({"a": IMAGE, "c": TWO}, "'c'"), ({"a": FREE, "b": TWO}, "(1,)"))
    ),
    (lambda: pole(Reinforce).evaluate("CartPole-v1", 1, seed=-1), ("seed must be", "at least 0", "-1")),
    (learns_in_advantages, ("Odd.advantages", "gradient", "surrogate or loss")),
    (lambda: answering(advantages=lambda agent, rollout: rollout.returns), ("Odd.advantages", "(8,)", "[N, T]")),
    (lambda: answering(surrogate=lambda agent, log_probs, batch: log_probs[:1]), ("Odd.surrogate", "(1, ", "(8, ")),
    (lambda: answering(weights=lambda agent, mask: 1 / len(mask)), ("Odd.weights returns float", "[N, T]")),
    (lambda: answering(surrogate=noting_of_episodes), ("'train/h'", "(8,)", "[N, T] = (8, ")),
    (lambda: answering(prepare=lambda _, rollout: rollout), ("Odd.prepare returns <Rollout", "prepare(rollout)")),
    *(
        (lambda cls=cls: answering(cls, prepare=keeping_none), ("Odd.prepare got no episode", "one or more"))
        for cls in (Reinforce, GRPO, PPO)
    ),
    (lambda: answering(prepare=emptied), ("Odd.prepare returns <Batch of 0 episodes", "one episode or more")),
    (lambda: answering(batches=lambda agent, batch: iter(())), ("Odd.batches", "no batch")),
    (lambda: answering(collect_rollout=uncounted), ("Odd.collect_rollout", "num_episodes stays 0", "super()")),
    (lambda: answering(PPO, critic_loss=lambda _, values, batch: values.mean()), ("Odd.critic_loss returns ()",)),
    (lambda: acting("values", lambda found: found[:, 0], PPO), ("ControlPolicy.values returns (8,)", "[N, T]")),
    (lambda: acting("evaluate", only_log_probs, ent_coef=0.1), ("ControlPolicy.evaluate returns no entropy", "want")),
    (lambda: acting("evaluate", lambda found: found["log_probs"]), ("ControlPolicy.evaluate returns no log_probs",)),
    *((lambda n=n: ONE_STEP.with_extras(**{n: 1}), (repr(n), "another name")) for n in ("rewards", "advantages")),
    (lambda: agents.find_agent("grop"), ("unknown agent 'grop'", "'grpo'", "rloo")),
    (partial(pole, PPO, Own), ("policy Own is a class", "instance")),
    (partial(text, RLOO, policy_kwargs={"critic": "separate"}), ("critic='separate'", "no critic")),
    (partial(text, GRPO, tiny_model("gpt2"), size=1), ("group_size must be at least 2", "gym.make_vec")),
    (partial(text, GRPO, tiny_model("gpt2"), size=1, group_size=4), ("has group_size=1", "make it with group_size=4")),
    (partial(text, agents.ReinforcePlusPlus, size=1, baseline="group-mean"), ("ReinforcePlusPlus", "group_size")),
    (partial(pole, agents.VAPO, value_warmup=5, vf_coef=0.0), ("value_warmup=5", "vf_coef=0")),
    (partial(pole, Reinforce, shard=True), ("shard", "processes")),
    (partial(text, engine_url="http://localhost:8000"), ("engine_url='http://localhost:8000'", "without engine")),
    (partial(text, engine="vlm"), ("unknown engine 'vlm'", "did you mean 'vllm'?")),
    (lambda: text(engine=FakeEngine(llama()), engine_url="http://a"), ("engine_url='http://a'", "made already")),
    (partial(served, "localhost:8000"), ("'localhost:8000'", "http://localhost:8000")),
    (partial(served, "http://x", tensor_parallel_size=4), ("'tensor_parallel_size'", "folder or patience")),
    (partial(served, "http://x", patience=0), ("patience must be",)),
    (partial(text, policy_kwargs={"temperature": 2.5}, **SERVED), ("temperature=2.5", "0.01 to 2")),
    (lambda: pole(engine=FakeEngine(llama())), ("an engine writes text", "FakeEngine", "for a ControlPolicy")),
    (partial(pole, env="Pendulum-v1", baseline="optimal-token"), ("baseline='optimal-token'", "Box", "leave-one-out")),
    (partial(taught, env="Acrobot-v1"), ("the teacher's actions", "Discrete(3)", "Discrete(2)")),
    (partial(TokenExtractor, spaces.Dict({"tokens": TOKENS["tokens"]})), ("Dict of tokens", "got Dict")),
    (lambda: llama().export("nowhere", merge=False), ("no adapter", "merge=False")),
    (partial(evaluate_choices, None, None, ("kl",)), ("exact KL", "k1, k2 or k3")),
    (fewer_copies, ("master weights do not fit", "16 bits")),
    (lambda: step_limit(Somebody(), None), ("pass max_steps",)),
    (lambda: find_spec("maze.py"), ("'maze.py'", "name the class in the file, as in 'maze.py:Maze'")),
    (lambda: find_spec("TextGn-v0"), ("'TextGn-v0'", "rlenv:TextGn-v0", "import rlenv")),
    (lambda: Onlooker(pole(env="Pendulum-v1").policy, "cpu").look(SEEN), ("actions in Box", "supported: Discrete")),
    (lambda: replayed(pole()), ("replay plays the prompts", "CartPole", "use an environment of text")),
    (partial(pole, baseline="greedy"), ("baseline='greedy' plays", "CartPole")),
    *((lambda n=n: replayed(text(episodes_per_update=8), n), (f"those from 0 to 1; got [{n}",)) for n in (3, -1)),
    (lambda: setattr(taught(), "estimator", "exact"), ("estimator='exact'", "'sampled'")),
    (lambda: pole().set_env("Acrobot-v1"), ("set_env", "observation space")),
    (lambda: pole().set_random_seed(-1), ("seed", "whole number")),
    (partial(pole, Distillation, teacher="nowhere"), ("'nowhere' is neither a run folder", "'control'")),
    (lambda: torch.no_grad()(pole().learn)(8), ("needs gradients", "no_grad")),
    (scheduled_by_torch, ("scheduler", "no effect", "learning_rate=...")),
    (lambda: answering(extras=("teacher_kl",)), ("Odd.extras names what a teacher makes", "kl_coef")),
    (lambda: acting("evaluate", lambda _: {}, ReinforceBaseline, baseline="optimal-token"), ("no score_norms", "want")),
    (lambda: answering(extras=("values",)), ("Odd.extras names 'values'", "allowed: score_norms")),
    (lambda: pole(Distillation).learn(total_episodes=8), ("no teacher", "teacher=", "--teacher")),
    (partial(pole, SDPO), ("reads text", "ControlPolicy", "rloo")),
    (lambda: pole().learn(), ("total_timesteps", "total_episodes")),
    (lambda: pole().learn(total_episodes=1.5), ("total_episodes", "at least 1", "1.5")),
]
FOUR = spaces.Box(-1.0, 1.0, (4,), np.float32)
KEYED, ZEROS = spaces.Dict({"seen": FOUR}), np.zeros(4, np.float32)
SHAPES = [((5,), "(5,)"), ((3, 5), "(5,)"), ((1, 2, 4), "(2, 4)"), ((3,), "(3,)")]  # of an observation; what is named
FORMS = [({"seen": ZEROS}, {}), (ZEROS, {}), {"other": ZEROS}, {}, None]  # of what is no observation
OTHERS += [
    *((partial(predicted, FOUR, np.zeros(s)), (f"an observation has shape {n}; allowed: (4,)",)) for s, n in SHAPES),
    *((partial(predicted, KEYED, {"seen": np.zeros(s)}), (f"'seen' has shape {n}; allowed: (4,)",)) for s, n in SHAPES),
    (partial(predicted, FOUR, ZEROS * NAN), ("predict: the log-probability of an action is NaN", "must be finite")),
    *((partial(predicted, FOUR, form), ("predict: got", "array of shape (4,)", "env.reset")) for form in FORMS),
    *((partial(predicted, KEYED, form), ("predict: got", "dictionary of 'seen'", "env.reset")) for form in FORMS),
    *(
        (partial(scheduled, name, first), (f"{name} must be a finite number above 0",))
        for name in ("clip_range", "clip_range_high", "clip_range_vf")
        for first in (-1.0, 0.2)
    ),
    (partial(default_of, "gamma", PPO, "mine"), ("gamma has no default for a policy of kind 'mine'", "pass gamma=")),
]
FIGURES = [
    (partial(pass_at_k, 4, 2, 5), ("k must be from 1 to the number of samples (4)", "5")),
    (partial(pass_at_k, 4, 5, 1), ("from 0 to 4", "5")),
    (partial(maj_at_k, ((1001, 1),), 0, (1,)), ("at most 1000 samples",)),
    (partial(bootstrap_mean, [], np.random.default_rng(0)), ("no values",)),
    (partial(baselines.value, torch.ones(1, 1), ONE_STEP), ("'value'", "needs a policy with a critic")),
    (partial(baselines.optimal_token, torch.ones(1, 1), ONE_STEP), ("no score_norms", "extras")),
    (infos_in_a_list, ("DictInfoToList", "list", "dictionary")),
    (slots_of_groups, ("group_size=4", "each slot has its own", "gym.make_vec")),
    (lambda: pole(RLOO, "tiny", "TextGen-v0", env_kwargs=SOLUTIONS), ("asks for the columns ['solution']", "answer")),
    (lambda: pole(RLOO, "tiny", "TextGen-v0", env_kwargs=MISTYPED), ("'TextGen-v0': ", "has no setting 'max_tokens'")),
    (lambda: pole(RLOO, "tiny", "TextGen-v0", env_kwargs=ONE_BY_ONE), ("columns ['prompt']", "f(prompts, completions")),
]
WORLDS = [
    *((partial(somebodys, **does), ("environment Somebody", *said)) for does, said in SOMEBODIES),
    (partial(somebodys, observation_space=[0, 1]), ("environment Somebody: observation space", "Discrete(2)")),
    (lambda: somebodys(Raising()), ("environment Raising", "reset raised AttributeError", "'nothing'")),
    (lambda: somebodys(Argless()), ("environment Argless: step: ", "2 were given", "step(self, action)")),
    (lambda: somebodys(Seedless()), ("environment Seedless", "'seed'", "reset(self, *, seed=None, options=None)")),
    (lambda: somebodys(Twofold(Somebody())), ("environment Twofold", "shape (6,)", BOX)),
    (partial(somebodys, **stepped(info={"is_success": "yes"})), ("info['is_success']", "True or False", "'yes'")),
    (partial(somebodys, **stepped(info={"verdict_status": "no"})), (f"verdict_status 'no'; allowed: {ALL}",)),
    (lambda: find_spec("tiny_models:text_envs"), ("text_envs' is a function", "derived from gymnasium.Env")),
]
ROWS = [
    *(
        (partial(pole, AGENTS[agent], **{name: wrong}), (name, repr(wrong), said))
        for agent, name, wrong, said in SETTINGS
    ),
    *((partial(space, *given, **kwargs), said) for *given, kwargs, said in SPACES),
    *((partial(llama, **given), said) for given, said in ADAPTERS),
    *((partial(distillation, **given), said) for given, said in TEACHERS),
    *((partial(taught, **given), said) for given, said in IDLE),
    *((partial(text, SDPO, tiny_model("gpt2"), **given), said) for given, said in HINTS),
    *((partial(pole, ReinforceBaseline, *given, **settings), said) for *given, settings, said in MEANT),
    *OTHERS,
    *FIGURES,
    *WORLDS,
]


KINDS = [*((ValueError, *row) for row in ROWS), *((TypeError, *row) for row in WRONG_TYPES)]
KINDS += [(NotImplementedError, *row) for row in LACKING]


@pytest.mark.parametrize(("kind", "call", "named"), KINDS, ids=[" ".join(row[2]) for row in KINDS])
def test_a_refusal_is_one_line_that_names_the_setting_and_the_value(kind, call, named):
    line = refusal(call, *named, kind=kind)
    assert kind is TypeError or len(line) < 600, line


SETTING = {repr(one): (cls, one) for cls in AGENTS.values() for one in declared_by(cls).values()}
CHECKED = [(cls, one) for cls, one in SETTING.values() if one.one_of or one.kind in ("bool", *NUMBERS)]


@pytest.mark.parametrize(("cls", "one"), CHECKED, ids=[f"{cls.name} {one.name}" for cls, one in CHECKED])
def test_what_a_setting_declares_is_checked_before_the_policy_is_made(cls, one):
    wrong = ["nothing", 3] if one.one_of else [1, "yes"]
    if not one.one_of and one.kind != "bool":
        low, high, above, below = one.bounds
        wrong = ["1", True, NAN, INF, *[1.5] * (one.kind == "int")]
        wrong += [low - (not above)] * (low > -INF) + [high + (not below)] * (high < INF)
        for limit in [low] * (low > -INF and not above) + [high] * (high < INF and not below):
            assert one.check(limit) == limit
    for value in wrong:
        refusal(partial(cls, "no-such-model", "CartPole-v1", **{one.name: value}), one.name, repr(value), *one.one_of)
