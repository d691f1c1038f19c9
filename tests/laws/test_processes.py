"""W processes are one, with replicas and with shards: the same updates, problems, checkpoints; one error for all."""

import copy
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from dataclasses import replace
from datetime import timedelta
from functools import partial

import cloudpickle
import pytest
import torch
from agent_kinds import fitting
from diagonal import diagonal, slow
from dialogues import LETTERS, talking
from fake_engine import FakeEngine
from identity_checks import gapped
from inprocess import run
from tabular import T, make_agent
from tiny_models import ALPHABET, PROMPTS, text_envs, tiny_model, tiny_policy
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, LlamaConfig
from updates import sample, some_cut_off

from rlenv.agents import AGENTS, Agent, Collector, EngineError, make_envs, processes
from rlenv.agents.engines.base import StaleEngineError
from rlenv.agents.fsdp import full, gathered, local
from rlenv.agents.policies.base import weights_digest
from rlenv.agents.processes import alone
from rlenv.agents.rollout import join
from rlenv.agents.training.callbacks import as_callback
from rlenv.agents.training.proximal import PassesAgent
from rlenv.agents.training.supervised import demonstration_loss, warm_start
from rlenv.tokenizer import character_tokenizer
from rlenv.verifiers.function import FunctionVerifier

SECONDS = 120  # for one task of all processes
# Forked from the tests, which have imported everything, they start at once; an import takes seconds.
START = "fork" if sys.platform == "linux" else "spawn"


class Ranks:
    """`size` processes that wait for work, and find each other by a file in a folder."""

    def __init__(self, size, folder):
        context = multiprocessing.get_context(START)
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            serve = (theirs, rank, size, f"file://{folder / 'store'}")
            self.processes.append(context.Process(target=_serve, args=serve, daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.pipes.append(ours)

    def __call__(self, work, *args):
        """Call this in every process at once; return the results in order of rank."""
        for pipe in self.pipes:
            pipe.send_bytes(cloudpickle.dumps((work, args)))
        outcomes = []
        for rank, pipe in enumerate(self.pipes):
            assert pipe.poll(SECONDS), f"process {rank} did not answer"
            outcomes.append(cloudpickle.loads(pipe.recv_bytes()))
        failures = [f"process {rank}: {said}" for rank, (said, _) in enumerate(outcomes) if said]
        assert not failures, "\n".join(failures)
        return [result for _, result in outcomes]

    def close(self):
        for process in self.processes:  # all at once: one that is left alone in an exchange aborts with a long message
            process.kill()
        for process in self.processes:
            process.join()


def _end_with(parent):
    """End this process once its parent has ended, however it ended: a fork holds the other ends of its own pipes."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(pipe, rank, size, store):
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    gc.freeze()  # what the tests have made would be looked through at every collection
    torch.set_num_threads(1)
    torch.manual_seed(0)  # a fork begins with the state that it finds
    patience = timedelta(seconds=SECONDS)
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=patience)
    while True:
        work, args = cloudpickle.loads(pipe.recv_bytes())
        try:
            pipe.send_bytes(cloudpickle.dumps(("", work(*args))))
        except BaseException:
            pipe.send_bytes(cloudpickle.dumps((traceback.format_exc(), None)))


def started(size):
    @pytest.fixture(scope="module")
    def ranks(tmp_path_factory):
        ranks = Ranks(size, tmp_path_factory.mktemp("ranks"))
        yield ranks
        ranks.close()

    return ranks


two, four = started(2), started(4)

# Updates.

OPTIONS = {
    "KL in the reward": {"kl_coef": 0.3, "gamma": 0.9},
    "KL in the loss": {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "exact", "ent_coef": 0.1},
    "another policy acted": {
        "mismatch": "sequence-truncate", "kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "k3", "kl_ratio": "constant",
    },
}  # fmt: skip
SETTINGS = {"episodes_per_update": 16, "micro_batch_tokens": 22, "learning_rate": 1e-2, "gamma": 0.9}
CASES = {  # with shards: agent, its settings, the policy's
    "REINFORCE": ("reinforce", {}, {}),
    "tied embeddings, recomputed": ("rloo", {}, {"name": "gpt2", "activation_checkpointing": True}),
    "PPO with a separate critic": ("ppo", {"num_minibatches": 2, "kl_coef": 0.1}, {"critic": "separate"}),
    "PPO with a head": ("ppo", {"num_epochs": 2}, {"critic": "head"}),
    "exact KL in the loss": ("grpo", {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "exact", "ent_coef": 0.1}, {}),
    "exact KL in the reward": ("rloo", {"kl_coef": 0.3, "kl_estimator": "exact", "weight_decay": 0.1}, {}),
    "score norms": ("reinforce-baseline", {"baseline": "optimal-token"}, {}),
    "a head that warms up": ("vapo", {"value_warmup": 1, "length_alpha": 1.0}, {"critic": "head"}),
    "an adapter": ("grpo", {"kl_coef": 0.1, "kl_in": "loss"}, {"lora_rank": 2}),
    "a teacher": ("distillation", {}, {}),
    "the mean of its weights teaches": ("sdpo", {"average_rate": 0.5}, {}),
    "it teaches itself": ("sdpo", {"teacher_weights": "live", "reply_coef": 0.2}, {}),
    "the mean of an adapter teaches": ("sdpo", {"average_rate": 0.5}, {"lora_rank": 2}),
    "an adapter with a critic": ("ppo", {"kl_coef": 0.1}, {"lora_rank": 2, "critic": "separate"}),
}


def replicas(name, options, together):
    """Return an agent of the tiny world, and a rollout."""
    cls = AGENTS[name]
    more = {"num_epochs": 2, "num_minibatches": 2} if issubclass(cls, PassesAgent) else {}
    more |= {"max_steps": T} if name == "dr-grpo" else {}
    more |= fitting(name, options) | ({"estimator": "centred"} if cls.needs_teacher else {})
    rollout = some_cut_off(sample())
    if "mismatch" in options:
        moved = 0.3 * torch.sin(torch.arange(rollout.mask.numel())).view_as(rollout.mask)
        rollout.log_probs = rollout.log_probs + moved
    return make_agent(cls, 4, episodes_per_update=32, micro_batch_size=2 if together else None, **more), rollout


def sampled():
    """Return the same 16 episodes in every process, half of which have replies, from a policy that no agent has."""
    with alone():
        policy = tiny_policy("llama", text_envs(num_envs=4, group_size=4), seed=2)
        parts = [gapped(policy, 8), gapped(policy, 8, gaps=False, seed=1)]
    return join([replace(part, groups=part.groups + 2 * number) for number, part in enumerate(parts)], True)


def shards(case, together):
    """Return an agent with a language model, which is dealt out if processes work together, and a rollout."""
    name, settings, of_policy = CASES[case]
    envs = text_envs(num_envs=4, group_size=4)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # of the critic's head and the adapter
        policy = tiny_policy(envs=envs, **{"name": "llama", **of_policy})
        for parameter in policy.parameters():
            if parameter.requires_grad and not parameter.any():  # B of an adapter, with which its A has a gradient
                torch.nn.init.normal_(parameter, std=0.1)
    if name == "distillation":
        settings = {**settings, "teacher": tiny_policy("llama", envs, seed=1)}
    agent = AGENTS[name](policy, envs, device="cpu", shard=together, **SETTINGS, **settings)
    agent.anchor.freeze_reference(agent.policy)
    return agent, replace(sampled(), success=(torch.arange(16) % 3 == 0).float())


def weights_of(agent):
    trained = [p for p in agent.policy.parameters() if p.requires_grad]
    return torch.cat([full(p).detach().flatten().clone() for p in trained])


def updated(make, together=True, updates=1, rows=None):
    """Return the weights after updates and before, and the metrics of each.

    Args:
        make: returns an agent and its rollout.
        together: whether several processes make the updates.
        updates: on the same rollout.
        rows: the rows of the rollout that remain, of which the first alone has a reward.
    """
    agent, rollout = make(together=together)
    start, metrics = weights_of(agent), []
    if rows is not None:
        rollout = rollout.select(torch.tensor(rows))
        first = torch.arange(len(rows))[:, None] == 0
        rollout = replace(rollout, rewards=torch.ones_like(rollout.rewards).where(first, 0))
    for _ in range(updates):
        if isinstance(rollout.observations, dict):  # a language model's: as if the policy had sampled it
            with gathered(agent.policy), torch.no_grad():
                rollout.log_probs = agent.policy.evaluate(rollout)["log_probs"]
        metrics.append(agent.update(rollout))
    return weights_of(agent), start, metrics


def check_updates(ranks, exact, make, least=1e-3, **more):
    """Compare the weights and metrics of processes with those of this one."""
    single, start, expected = updated(make, False, **more)
    assert (single - start).abs().max() > least
    for ours, _, metrics in ranks(partial(updated, make, **more)):
        assert (ours - single).abs().max() < exact
        for found, wanted in zip(metrics, expected, strict=True):
            assert found == pytest.approx(wanted, rel=1e3 * exact, abs=exact)


# Their surrogates, which are of single rows, are all that GRPO has not.
OF_ROWS = ("dr-grpo", "gspo", "luspo", "gmpo", "cispo", "maxrl", "sapo", "vespo", "dppo", "topr", "delightful")


@diagonal("name, options", list(AGENTS), OPTIONS, rare=OF_ROWS)
def test_two_processes_make_the_update_of_one(two, name, options):
    check_updates(two, 1e-12, partial(replicas, name, options))


def test_two_processes_end_the_passes_of_an_update_at_the_same_step(two):
    """The KL is that of the rows of all; with these targets there are two of four steps, and one."""
    for target in (1e-4, 1e-5):
        check_updates(two, 1e-12, partial(replicas, "grpo", {"target_kl": target}), least=1e-5)


class WithHead(AGENTS["grpo"]):
    """Has a module that is trained with the policy."""

    def setup(self, env, group_size):
        super().setup(env, group_size)
        self.head = torch.nn.Linear(1, 1)

    def loss(self, batch):
        loss, figures = super().loss(batch)
        returns = batch.returns.float()[:, None]
        return loss + (self.head(returns) - returns).square().sum(), figures


def head():
    """Return the weights of the head before and after an update of four steps, and the gradient of the last one."""
    agent = make_agent(WithHead, 4, episodes_per_update=32, num_epochs=2, num_minibatches=2, seed=1)
    before, parameters = copy.deepcopy(agent.head), list(agent.head.parameters())
    agent.update(sample())
    return [*before.parameters()], parameters, [parameter.grad for parameter in parameters]


def test_two_processes_train_the_module_of_one(two):
    with alone():
        single = head()
    assert all((old != new).all() for old, new, _ in zip(*single, strict=True))
    for ours in two(head):
        torch.testing.assert_close(ours, single)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_with_shards_make_the_updates_of_one(two, case):
    check_updates(two, 1e-10, partial(shards, case), updates=3)


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (partial(replicas, "reinforce", {}), range(24)),
        slow(partial(shards, "REINFORCE"), range(16)),
        slow(partial(shards, "PPO with a head"), range(1)),
    ],
)
def test_a_process_may_have_nothing_to_learn(two, make, rows):
    check_updates(two, 1e-12 if len(rows) == 24 else 1e-10, make, least=1e-4, rows=rows)


def imitated():
    """Return the weights after a warm start, and its losses."""
    envs = text_envs(num_envs=4)
    policy, collector = tiny_policy("llama", envs), Collector(envs, torch.device("cpu"))
    with alone():
        collector.seed(0)
        shown = collector.collect(policy, 7, torch.Generator())
    assert len(set(shown.lengths.tolist())) > 2
    before = demonstration_loss(policy, shown, 3)
    losses = warm_start(policy, lambda size: shown, 3, len(shown), 1e-3, max_grad_norm=0.1, micro_batch_size=2)
    after = demonstration_loss(policy, shown, micro_batch_tokens=20)
    return torch.cat([p.detach().flatten() for p in policy.parameters()]), [before, *losses, after]


def test_a_warm_start_is_shared(two):
    single, expected = imitated()
    assert expected[-1] < expected[0]
    for weights, losses in two(imitated):
        assert (weights - single).abs().max() < 1e-12
        assert losses == pytest.approx(expected, rel=1e-12)


# Episodes, and decisions by which a loop goes on: where processes decide otherwise, they end in an error.

ARITH = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}


def text_agent(name="grpo", env_kwargs=ARITH, **settings):
    chosen = {"episodes_per_update": 8, "num_envs": 4, "group_size": 2, "seed": 3, "device": "cpu", **settings}
    return AGENTS[name]("tiny", "TextGen-v0", env_kwargs=env_kwargs, **chosen)


def played(updates, path, begin=True):
    """Return the prompts of each update, the hash of the weights at the end, and the steps counted; save there."""
    agent, prompts = text_agent() if begin else Agent.load(path), []
    for rollout, _ in agent.updates(total_episodes=8 * updates, reset_num_timesteps=begin):
        rows = zip(rollout.observations["tokens"], rollout.observations["length"].tolist(), strict=True)
        prompts.append([agent.env.task.encoding.tokenizer.decode(row[:n]) for row, n in rows])
    agent.save(path)
    return prompts, weights_digest(agent.policy), agent.num_timesteps


def test_the_problems_of_an_update_do_not_depend_on_the_number_of_processes(two, tmp_path):
    """Also where another number goes on."""
    single, _, _ = played(3, tmp_path / "one")
    (first, *end), (second, *same_end) = two(played, 2, tmp_path / "two")
    assert first == second == single[:2]
    assert end == same_end and end[1] > 0
    assert played(1, tmp_path / "two", begin=False)[0] == single[2:]


def played_again(shard=False):
    """Return the groups, returns, prompts and greedy answers of a rollout and of some of its rows, and the steps."""
    agent, found = text_agent(shard=shard and processes.size() > 1), []
    rollout = agent.collect_rollout(as_callback(None, agent))
    before = agent.num_timesteps
    for rows in (slice(None), torch.tensor([7, 2, 6])):  # of the last, one process has posed none
        again = agent.replay(rollout.select(rows))
        parts = again.groups, again.returns, again.observations["tokens"], again.actions.where(again.mask, -1)
        found.append(list(zip(*(part.tolist() for part in parts), strict=True)))
    assert [row[0] for row in found[1]] == [3, 1, 3]
    return found, agent.num_timesteps - before


def greedy(*numbers):
    envs = make_envs("TextGen-v0", 4, {**ARITH, "split": "test"})
    return [text_agent().evaluate(envs, num_episodes, seed=5)[0] for num_episodes in numbers]


def by_prompt(prompts, completions, **columns):
    return [float(prompt[0] in "01234") for prompt in prompts]


def chosen(**how):
    """Return where the choice of problems stands after five updates."""
    problems = [{"prompt": f"{number}+1=", "level": 1 + (number > 4)} for number in range(9)]
    world = {"verifier": by_prompt, "problems": problems, "test_fraction": 0.0, "max_new_tokens": 1, **how}
    agent = text_agent("reinforce", world, num_envs=64, episodes_per_update=64, group_size=None)
    agent.learn(total_episodes=5 * 64)
    state = agent.env.state_dict()["stream"]["curriculum"]
    assert state["level"] == 2 if "curriculum" in how else state["counts"]
    return state


ALIKE = {
    "a replay": played_again,
    "a replay with shards": partial(played_again, True),
    "an evaluation": partial(greedy, 11, 1),  # of one episode, the second process plays none
    "a curriculum": partial(chosen, curriculum=1.0),
    "Thompson draws": partial(chosen, prompt_choice="thompson"),
}


@pytest.mark.parametrize("name", [slow(name) if "shards" in name else name for name in ALIKE])
def test_two_processes_find_what_one_does(two, name):
    single = ALIKE[name]()
    assert two(ALIKE[name]) == [single, single]


def cartpole():
    agent = AGENTS["ppo"]("MlpPolicy", "CartPole-v1", episodes_per_update=8, num_envs=4, num_epochs=1, seed=1)
    firsts = [str(rollout.observations[:, 0].tolist()) for rollout, _ in agent.updates(total_episodes=16)]
    return weights_digest(agent.policy), firsts, agent.num_episodes


def test_control_is_played_with_other_seeds_and_trained_alike(two):
    (weights, firsts, episodes), other = two(cartpole)
    assert (weights, firsts, episodes) == other
    assert episodes == 16
    assert len(set(firsts[0].replace("]", "").split("["))) > 8, "every episode begins in another state"


def split_reward(prompts, completions):
    """Return a reward that depends on the completion for short prompts only."""
    return [len(text) * (len(prompt) < 4) / 8 for prompt, text in zip(prompts, completions, strict=True)]


def refilled():
    """Return the episodes and the weights of updates for some of which DAPO collects several times."""
    world = {"verifier": FunctionVerifier(split_reward, alphabet=ALPHABET), "problems": PROMPTS, "test_fraction": 0.0}
    agent = text_agent("dapo", env_kwargs={**world, "max_new_tokens": 6, "max_prompt_tokens": 8}, max_rounds=3, seed=2)
    return [(len(rollout), weights_digest(agent.policy)) for rollout, _ in agent.updates(total_episodes=32)]


def test_refilling_is_decided_together(two):
    first, second = two(refilled)
    assert first == second
    assert len({episodes for episodes, _ in first}) > 1


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(("count", "unit"), [(7, 1), (28, 4), (30, 4), (3, 4)])
def test_groups_are_dealt_out_whole(size, count, unit, monkeypatch):
    monkeypatch.setattr(processes, "size", lambda: size)
    shares = []
    for rank in range(size):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        shares.append(processes.share(count, unit))
    groups = [min(unit, count - first) for first in range(0, count, unit)]
    assert shares == [sum(groups[rank::size]) for rank in range(size)]


def refused(*command):
    outcome = run(*command)
    return outcome.exit_code, outcome.stderr


@pytest.mark.parametrize(
    ("command", "split"), [("train --sft-steps 0", "test"), ("sft", "train"), ("evaluate model --split test", "test")]
)
def test_fewer_held_out_problems_than_processes_name_the_split_and_what_to_do(two, command, split, tmp_path):
    sums = tmp_path / "sums.csv"
    sums.write_text("prompt,answer,split\n" + "1+1=,2,test\n" * (split == "test") + "1+2=,3,train\n")
    tokenizer = character_tokenizer("+=0123456789")
    for part in (tiny_model("llama", len(tokenizer)), tokenizer):
        part.save_pretrained(tmp_path / "model")
    words = [tmp_path / word if word == "model" else word for word in command.split()]
    place = () if "model" in command else ("--log-dir", tmp_path / "run")
    more = ("--problems", sums, "--verifier", "exact", "--device", "cpu", "--max-new-tokens", 4, *place)
    for code, said in two(refused, *words, *more):
        assert code == 2 and f"1 episode of the {split} split for 2 processes" in said, said
        assert "episodes" in said.partition("2 processes")[2]


def refused_with_own(path, command):
    """Have each process read a problem file of its own."""
    own = path / f"{processes.rank()}.csv"
    own.write_text("prompt,answer,split\n1+2=,3,train\n" + f"1+1=,{processes.rank()},test\n" * 2)
    place = [path / "saved"] if command == "evaluate" else ["--log-dir", path / "run"]
    return refused(command, *place, "--problems", own, "--verifier", "exact", "--device", "cpu")


@pytest.mark.parametrize("command", ["train", "sft", "evaluate"])
def test_processes_with_different_problems_are_refused(two, command, tmp_path):
    text_agent().save(tmp_path / "saved")
    for code, said in two(refused_with_own, tmp_path, command):
        assert code == 2 and "the problem file of process 1 is not that of process 0: give all machines" in said, said


# One error for all.


def failing(rank, held=None):
    def work():
        if processes.rank() == rank:
            error = ValueError("the disk is full")
            error.held = held and held()
            raise error
        return processes.rank()

    try:
        return str(processes.on_all(work))
    except (ValueError, RuntimeError) as error:
        return f"{error} {getattr(error, '__notes__', [])}"


def test_an_error_of_one_process_is_raised_in_all(two):
    assert two(failing, 1) == ["the disk is full ['in process 1']", "the disk is full []"]
    assert two(failing, 2) == ["[0, 1]", "[0, 1]"]
    unsendable = two(failing, 1, threading.Lock)
    assert unsendable == ["ValueError: the disk is full ['in process 1']", "the disk is full []"]


def save_other_weights(path):
    agent = text_agent()
    if processes.rank() == 1:
        next(agent.policy.parameters()).data.add_(1)
    agent.save(path)


def control(path):
    AGENTS["ppo"]("MlpPolicy", "CartPole-v1", episodes_per_update=8, num_envs=4, shard=True, device="cpu")


REFUSED = {
    "groups": (lambda path: text_agent(episodes_per_update=6), ("episodes_per_update=6", "multiple of 4")),
    "weights that came apart": (save_other_weights, ("the policy of process 1 is not that of process 0",)),
    "another policy": (control, ("shard is for language models", "ControlPolicy")),
    "a policy of another agent": (lambda path: sharded(policy=sharded().policy), ("dealt out already", "load")),
    "weights by name": (lambda path: sharded().get_parameters(), ("get_parameters", "save and load")),
}


def refusal(of, path):
    with pytest.raises((ValueError, RuntimeError)) as error:
        REFUSED[of][0](path)
    return str(error.value)


@pytest.mark.parametrize("of", REFUSED)
def test_every_process_refuses(two, tmp_path, of):
    for said in two(refusal, of, tmp_path / "saved"):
        assert "\n" not in said and all(word in said for word in REFUSED[of][1])


# With shards: acting, memory and checkpoints.


def sharded(name="rloo", policy="tiny", **settings):
    chosen = {"episodes_per_update": 8, "seed": 3, "device": "cpu", "learning_rate": 1e-2, "shard": True, **settings}
    return AGENTS[name](policy, talking(4, group_size=2), **chosen)


def learned(updates):
    """Return how often weights were gathered in so many updates, the gap to acting, and whether the weights moved."""
    agent, gathered_in = sharded(), []
    unshard, before = agent.policy.unshard, weights_of(agent)
    agent.policy.unshard = lambda: gathered_in.append(agent.num_updates) or unshard()
    gaps = [metrics["train/logp_gap_max"] for _, metrics in agent.updates(total_episodes=8 * updates)]
    return len(set(gathered_in)), max(gaps), bool((weights_of(agent) != before).any())


@pytest.mark.slow
def test_weights_are_gathered_once_per_rollout_and_are_those_that_were_trained(two):
    for rollouts, gap, moved in two(learned, 3):
        assert rollouts == 3
        assert gap < 1e-4
        assert moved


def tensor_bytes():
    """Return the size of all tensors of this process."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and each.device.type != "meta"]
    storages = [local(each).untyped_storage() for each in found]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def loaded(path, lora_rank):
    """Return the most bytes while weights are dealt out, those after training, and what of them is there for good."""
    gc.freeze()  # what was imported meanwhile would be looked through at every count
    before, used, start = tensor_bytes(), [], processes.same_start
    processes.same_start = lambda unit: used.append(tensor_bytes() - before) or start(unit)
    try:
        agent = sharded(policy=path, kl_coef=0.1, policy_kwargs={"lora_rank": lora_rank})
        agent.anchor.freeze_reference(agent.policy)
    finally:
        processes.same_start = start
    agent.learn(total_episodes=8)
    weights = [*agent.policy.parameters(), *agent.anchor.reference.parameters()]
    moments = [state[name] for state in agent.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    moments += [p.grad for p in agent.policy.parameters() if p.grad is not None]
    parts, wholes = zip(*((local(each).nbytes, each.nbytes) for each in (*weights, *moments)), strict=True)
    layer = sum(p.nbytes for p in agent.policy.model.model.layers[0].parameters())
    return max(used), tensor_bytes() - before, sum(parts[: len(weights)]), sum(parts), sum(wholes), layer


@pytest.mark.parametrize("lora_rank", [None, slow(2)])
def test_a_process_holds_its_share_and_the_main_one_alone_the_whole_model_while_it_is_loaded(two, tmp_path, lora_rank):
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    untied = LlamaConfig(vocab_size=2 + len(LETTERS), max_position_embeddings=64, **sizes)
    AutoModelForCausalLM.from_config(untied).save_pretrained(tmp_path)
    (peak, *_), (others_peak, *_, whole, layer) = found = two(loaded, str(tmp_path), lora_rank)
    assert sum(share for *_, share, _, _ in found) == whole
    for _, after, _, share, _, _ in found:
        assert share < 0.51 * whole and after < share + layer
    weights = found[1][2]
    assert peak > weights and others_peak < weights + 2 * layer < 2 * weights


def states(agent):
    """Return the whole weights and, in the main process, the optimizer's whole state."""
    from rlenv.agents.sharding import unsharded  # slow

    optimizer = unsharded(agent.policy_optimizer.state_dict())
    return weights_of(agent), copy.deepcopy(optimizer) if processes.is_main() else None


def trained_on(agent, updates):
    steps = agent.updates(10**6 - agent.num_timesteps, reset_num_timesteps=agent.num_updates == 0)
    for _ in range(updates):
        next(steps)
    steps.close()
    return agent


def saved(path, options):
    """Train, save, train on; return the state at the first moment and the weights at the second."""
    agent = trained_on(sharded(**options), 1)
    agent.save(path)
    return states(agent), weights_of(trained_on(agent, 1))


def load(path, shard):
    return Agent.load(path, talking(4, group_size=2), "cpu", continue_env=True, shard=shard)


def continued(path, shard):
    agent = load(path, shard)
    return states(agent), weights_of(trained_on(agent, 1))


def equal(one, other):
    """Whether two nested states are the same; the main process alone has that of an optimizer."""
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


SAVED = {
    "PPO in bfloat16": {"name": "ppo", "policy_kwargs": {"dtype": "bfloat16", "critic": "separate"}},
    "an adapter and its reference": {"kl_coef": 0.1, "policy_kwargs": {"lora_rank": 2}},
}


def test_a_sharded_checkpoint_continues_bit_for_bit(two, tmp_path):
    expected = two(saved, str(tmp_path / "saved"), {})
    assert equal(two(continued, str(tmp_path / "saved"), True), expected)


@pytest.mark.slow
@pytest.mark.parametrize("options", SAVED.values(), ids=SAVED)
def test_a_sharded_checkpoint_loads_on_any_number(two, four, tmp_path, options):
    path = str(tmp_path / "saved")
    expected = two(saved, path, options)
    assert equal(two(continued, path, True), expected)
    (middle, _), *_ = expected
    assert equal(states(load(path, shard=False)), middle)
    found, *others = (state for state, _ in four(continued, path, True))
    assert equal(found, middle) and all(torch.equal(weights, middle[0]) for weights, _ in others)
    assert torch.equal(two(continued, path, False)[0][0][0], middle[0]), "as replicas"


# Engines.


def through_an_engine(staleness, shard, fault=None, updates=3):
    """Return what updates made of an agent with an engine, and a fault in the second process."""
    envs = talking(4, group_size=4)
    policy = tiny_policy("llama", envs, 0.7)
    engine = FakeEngine(policy)
    settings = {"device": "cpu", "episodes_per_update": 16, "learning_rate": 1e-2, "warmup_updates": 0}
    agent = AGENTS["grpo"](policy, envs, engine=engine, staleness=staleness, shard=shard, **settings)
    if fault and processes.rank() == 1:
        engine.write = fault(engine, engine.write)
    lengths, metrics = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            for rollout, figures in agent.updates(total_episodes=16 * updates):
                lengths.append(rollout.lengths.tolist())
                metrics.append({name: each for name, each in figures.items() if name.startswith("train/")})
                agent.evaluate(talking(4, group_size=4), 4, seed=1)
        except EngineError as error:
            return str(error), agent.num_updates
    return lengths, metrics, weights_of(agent), agent.num_timesteps


def lost_once(engine, write, load):
    """Have an engine lose the weights that it was sent as this one in turn."""
    rounds = itertools.count()

    def writing(requests):
        if engine.loads == load and next(rounds) == 1:
            raise StaleEngineError("started again")
        return write(requests)

    return writing


def hot(engine, write):
    """Have an engine draw at another temperature."""
    engine.temperature = 1.3
    return write


@pytest.mark.parametrize(("staleness", "shard"), [(1, False), (0, True), slow(0, False), slow(1, True)])
def test_engines_of_two_processes_write_for_one_agent(staleness, shard, two):
    ours, others = two(through_an_engine, staleness, shard)
    assert ours[:2] == others[:2] and torch.equal(ours[2], others[2]) and ours[3] == others[3]
    assert len(ours[1]) == 3 and ours[3] == sum(map(sum, ours[0]))
    assert all(each["train/engine_gap"] < 1e-6 and each["train/engine_dropped"] == 0 for each in ours[1])


@pytest.mark.parametrize("staleness", [slow(0), 1])
def test_a_fault_of_one_engine_is_that_of_all_processes(staleness, two):
    second_rollout = 2 if staleness else 3  # the evaluation after an update sends weights, too
    ours, others = two(through_an_engine, staleness, False, partial(lost_once, load=second_rollout), 2)
    assert ours[:2] == others[:2] and torch.equal(ours[2], others[2])
    assert ours[1][-1]["train/engine_dropped"] == 1 and ours[3] == sum(map(sum, ours[0]))
    (said, updates), other = two(through_an_engine, staleness, False, hot, 1)
    assert (said, updates) == other and "also after the weights were sent again" in said and updates == 0
