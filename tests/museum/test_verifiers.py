"""Verdicts are wrong, lost, or come from somebody who should not be asked."""

import contextlib
import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from museum import OURS, Test, load, planted

from agents.core.rollout import OK
from agents.rollouts.record import Record
from agents.trainer import evaluation
from rlenv.envs.judge import Judge, LateVerdict, LateVerdicts
from rlenv.envs.task import TextGenTask
from rlenv.envs.vector import TextGenVectorEnv
from rlenv.text.tokenizer import decode
from verifiers import Arith, Verdict, base, function, weighted
from verifiers.builtin.choice.verifier import Choice
from verifiers.builtin.code import verifier as code
from verifiers.builtin.exact import verifier as exact
from verifiers.builtin.math.verifier import Math
from verifiers.builtin.numeric.verifier import Numeric
from verifiers.builtin.reasoning_gym import verifier as reasoning_gym
from verifiers.isolation.sandbox import run as sandbox
from verifiers.isolation.workers import pool, supervisor, worker

ARITH = "verifiers/builtin/test_arith.py::test_only_the_exact_answer_is_rewarded"
FAULT = "verifiers/isolation/test_isolation.py::test_a_fault_is_counted_contained_and_cleared_away"
MISSING = "agents/trainer/test_verdicts.py::test_every_missing_verdict_is_counted_by_its_kind_and_teaches_nothing"
ALONE = "rlenv/envs/test_late_verdicts.py::test_a_failing_verifier_fails_its_verdict_alone_and_no_future_raises"
needs_sandbox = pytest.mark.skipif(bool(sandbox.unavailable()), reason="programs cannot be isolated here")


@planted(
    38,
    "huggingface/Math-Verify#50, huggingface/trl#5281, verl-project/verl#5635",
    Test("verifiers/builtin/test_math.py::test_a_thread_reaches_the_same_verdicts"),
)
def test_an_alarm_outside_the_main_thread(patch):
    """A time limit that uses signals fails outside the main thread, and every answer there is scored as wrong."""
    matches = Math.matches

    def within_a_second(self, problem, text):
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        except ValueError:
            return False
        return matches(self, problem, text)

    patch.setattr(Math, "matches", within_a_second)


@planted(39, "NVIDIA-NeMo/Gym#1354, areal-project/AReaL#1426, LLM360/Reasoning360#109", Test(FAULT, kind="os._exit"))
def test_a_dead_worker_is_kept(patch):
    """A worker process that died is not replaced, so the pool has one worker fewer from then on."""
    judge = pool._Threads._judge

    def keep(self, hired, message, read):
        result, left = judge(self, hired, message, read)
        return result, left or hired

    patch.setattr(pool._Threads, "_judge", keep)


@planted(40, "verl-project/verl#4417", Test(ALONE, workers=0), error=ZeroDivisionError)
def test_an_exception_of_the_verifier_ends_the_run(patch):
    """An exception in the verifier ends the run."""
    init = Judge.__init__
    patch.setattr(Judge, "__init__", lambda self, verifier, pool=None, flag_errors=False: init(self, verifier, pool))


@planted(40, "huggingface/open-r1#546", Test(ALONE, workers=0))
def test_one_exception_costs_the_batch(patch):
    """If the verifier fails on one completion, its whole batch gets no verdict."""

    def at_once(self, problems, completions):
        try:
            return self.verifier.verify_batch(problems, completions)
        except Exception as error:
            return [Verdict(0.0, status="error", reason=str(error))] * len(completions)

    patch.setattr(Judge, "__call__", at_once)


@planted(40, "NVIDIA-NeMo/RL#2207, NVIDIA-NeMo/Gym#2015", Test(ALONE, workers=0))
def test_a_failure_is_a_wrong_answer(patch):
    """An exception in the verifier is scored as 0."""

    def paid_nothing(self, problems, completions):
        verdicts = []
        for problem, completion in zip(problems, completions, strict=True):
            try:
                verdicts += self.verifier.verify_batch([problem], [completion])
            except Exception:
                verdicts.append(Verdict(0.0))
        return verdicts

    patch.setattr(Judge, "__call__", paid_nothing)


@planted(40, "NVIDIA-NeMo/Gym#2015", Test(FAULT, kind="os._exit"))
def test_a_dead_worker_is_a_wrong_answer(patch):
    """A completion whose worker process died gets a reward of 0."""
    patch.setattr(pool, "_failure", lambda reason, late=False: {"reward": 0.0})


@planted(40, "NVIDIA-NeMo/RL#2207", Test(MISSING))
def test_episodes_without_a_verdict_are_trained_on(patch):
    """Episodes whose verdict timed out or failed stay in baseline, loss and metrics."""
    add = Record._add_outcomes

    def all_ok(self, numbers, *args):
        add(self, numbers, *args)
        self.status[numbers] = OK

    patch.setattr(Record, "_add_outcomes", all_ok)


@planted(
    41, "huggingface/trl#4501, huggingface/trl#5775", Test("verifiers/test_function.py::test_none_means_not_applicable")
)
def test_none_is_a_reward_of_nothing(patch):
    """A reward function that returns None, because it does not apply, pays 0."""
    verdict = function.as_verdict
    patch.setattr(function, "as_verdict", lambda owner, reward: verdict(owner, reward or 0.0))


@planted(
    41,
    "modelscope/ms-swift#8123",
    Test("verifiers/test_function.py::test_a_reward_that_is_not_finite_is_an_error", nothing=float("nan")),
)
def test_a_reward_of_nan(patch):
    """A reward function's NaN is a reward: the loss becomes 0, the gradient NaN."""
    patch.setattr(Verdict, "__post_init__", lambda self: None)
    patch.setattr(function, "as_verdict", lambda owner, reward: Verdict(float(reward)))


@planted(42, "Liuziyu77/Visual-RFT#176", Test(ARITH, completion="", reward=0.0))
def test_part_of_the_answer_is_enough(patch):
    """Any part of the reference answer counts as right, even the empty text."""
    patch.setattr(Arith, "verify", lambda self, problem, text: Verdict(float(text in problem.answer)))


@planted(
    42, "BaseIntelligence/bounty-challenge#173, MakazhanAlpamys/Soup#814", Test(ARITH, completion="460", reward=0.0)
)
def test_a_beginning_is_enough(patch):
    """A completion that begins with the answer is right: 460 for 46."""
    patch.setattr(Arith, "verify", lambda self, problem, text: Verdict(float(text.startswith(problem.answer))))


@planted(42, "Liuziyu77/Visual-RFT#79", Test("verifiers/builtin/test_choice.py::test_anything_else_is_not_rewarded"))
def test_every_choice_at_once(patch):
    """A completion that names every choice names the right one."""
    patch.setattr(Choice, "matches", lambda self, problem, text: problem.answer in text)


@planted(
    42,
    "Liuziyu77/Visual-RFT#79",
    Test(
        "verifiers/builtin/test_numeric.py::test_numbers_are_compared_within_the_tolerance",
        options={},
        answer="18",
        completion="17 or 18",
        reward=0.0,
    ),
)
def test_any_number_will_do(patch):
    """One right number among many is enough."""
    patch.setattr(Numeric, "matches", lambda self, problem, text: problem.answer in text.split())


@needs_sandbox
@planted(
    43,
    "PrimeIntellect-ai/prime-envs#692, verl-project/verl#7853",
    Test("verifiers/builtin/test_code.py::test_a_forged_success_is_a_failed_test", name="exit while importing"),
)
def test_success_is_an_exit_code(patch):
    """A program that ends without an error has passed its tests: sys.exit(0) is enough."""

    def ends_well(self, tests, program):
        files = {"main.py": f"{program}\nassert f('x') == {tests[0].expected!r}\n"}
        return 0 if code.run(files, b"", self._limits, self.isolating).errors else len(tests)

    patch.setattr(code.Code, "_count", ends_well)


@planted(
    44,
    "verl-project/verl#7500, THUDM/slime#1586, harbor-framework/terminal-bench#1634, sympy/sympy#10805",
    Test("test_architecture.py::test_nothing_is_evaluated_unpickled_or_swallowed"),
)
def test_answers_are_evaluated(patch):
    """A verifier calls eval on the text of a completion."""
    read = Path.read_text

    def with_eval(self, *args, **kwargs):
        text = read(self, *args, **kwargs)
        return f"{text}\neval(completion)\n" if self.name == "countdown.py" else text

    patch.setattr(Path, "read_text", with_eval)


@needs_sandbox
@planted(
    45,
    "openai/human-eval#65, confident-ai/deepeval#3011",
    Test("verifiers/isolation/test_sandbox_probes.py::test_a_server_on_this_machine_is_not_reached", kind="abstract"),
)
def test_programs_run_as_the_user(patch):
    """Programs run as processes of the user, who may open sockets."""
    run = sandbox.run
    patch.setattr(
        sandbox, "run", lambda files, stdin=b"", limits=None, isolated=True: run(files, stdin, limits, isolated=False)
    )


# Bugs of this project.


@planted(None, OURS, Test("rlenv/envs/test_late_verdicts.py::test_the_curriculum_hears_in_every_mode", mode="SameStep"))
def test_the_curriculum_hears_at_resets_alone(patch):
    """Where slots restart by themselves, the curriculum never hears of late verdicts, and the level stays."""
    tell, reset, resetting = LateVerdicts.tell, TextGenVectorEnv.reset, []

    def noted(self, **kwargs):
        resetting.append(True)
        try:
            return reset(self, **kwargs)
        finally:
            resetting.pop()

    patch.setattr(TextGenVectorEnv, "reset", noted)
    patch.setattr(LateVerdicts, "tell", lambda self, everything: tell(self, everything) if resetting else None)


@planted(
    None,
    OURS,
    Test("rlenv/envs/test_late_verdicts.py::test_an_interrupted_batch_is_judged_by_the_next_who_asks"),
    error=TimeoutError,
)
def test_an_interrupted_batch_is_lost(patch):
    """After Ctrl-C while a batch is judged, training waits for its verdicts forever."""

    def once(self):
        waiting, self._waiting = self._waiting, []
        verdicts = self.judge([late.problem for late in waiting], [late.completion for late in waiting])
        for late, verdict in zip(waiting, verdicts, strict=True):
            self._resolve(late, verdict)

    wait = LateVerdict.result
    patch.setattr(LateVerdicts, "_judge_waiting", once)
    patch.setattr(LateVerdict, "result", lambda self, timeout=None: wait(self, timeout and 0.1))


def change_workers(patch, folder, before, after):
    """Let worker processes run another version of their source."""
    source = Path(supervisor.__file__).read_text(encoding="utf-8")
    assert before in source
    file = folder / "changed.py"
    boot = (
        "from importlib import util; spec = util.spec_from_file_location('verifiers.isolation.workers.changed', "
        f"{str(file)!r}); changed = util.module_from_spec(spec); spec.loader.exec_module(changed); work = changed.work"
    )
    source = source.replace(before, after)
    assert "from verifiers.isolation.workers.supervisor import work" in source
    file.write_text(source.replace("from verifiers.isolation.workers.supervisor import work", boot), encoding="utf-8")
    patch.setattr(worker, "supervisor", SimpleNamespace(__file__=str(file)))


@planted(None, OURS, Test("verifiers/isolation/test_worker.py::test_the_child_of_a_fork_gives_no_verdict"))
def test_the_child_of_a_fork_answers(patch, folder):
    """A verifier forks, and the verdict of the child is taken for that of the worker."""
    change_workers(patch, folder, "if os.getpid() != worker:", "if False:")


@planted(
    None,
    OURS,
    Test("verifiers/isolation/test_worker.py::test_an_answer_to_an_earlier_question_is_not_taken_for_this_one"),
)
def test_a_late_answer_is_taken_for_this_one(patch):
    """The answer to an earlier completion is taken for the verdict on this one."""

    def first(self, deadline):
        _, length = worker.HEADER.unpack(self._receive(worker.HEADER.size, deadline))
        return json.loads(self._receive(length, deadline))

    patch.setattr(worker.Worker, "_answer", first)


@planted(None, OURS, Test(FAULT, kind="daemon"))
def test_daemons_are_left_behind(patch, folder):
    """A daemon that a verifier has started keeps running."""
    change_workers(patch, folder, "while os.waitpid(-1, os.WNOHANG)[0]:\n            pass", "return False")
    module = load("verifiers/isolation/test_isolation.py")
    wait = module.eventually
    patch.setattr(module, "eventually", lambda condition: wait(condition, 1.0))  # instead of a minute


@planted(
    None,
    OURS,
    Test(
        "verifiers/builtin/test_exact.py::test_forgiven_punctuation_never_makes_another_number",
        answer="314",
        forgiven=["314."],
        other=["3.14"],
    ),
)
def test_a_sign_is_punctuation(patch):
    """Where punctuation is forgiven, 3.14 is 314 and -5 is 5."""
    patch.setattr(exact, "_NOT_FORGIVEN", exact.re.compile("(?!)"))


@planted(
    None,
    OURS,
    Test("agents/learner/test_metrics.py::test_an_evaluation_without_a_single_verdict_is_a_fault_and_no_zero"),
)
def test_an_evaluation_of_failures_is_zero(patch):
    """An evaluation in which the verifier failed on every episode reports a success rate of 0."""
    patch.setattr(
        evaluation, "evaluation_metrics", lambda rollout, failure="": {"mean_reward": 0.0, "success_rate": 0.0}
    )


@planted(
    None, OURS, Test("verifiers/test_weighted.py::test_a_sum_beyond_a_float_is_a_failed_verdict"), error=ValueError
)
def test_a_sum_that_no_float_holds(patch):
    """A weighted sum of rewards beyond float32 becomes infinite in training."""
    patch.setattr(weighted, "MAX_REWARD", float("inf"))


@planted(
    None,
    OURS,
    Test(
        "verifiers/builtin/test_reasoning_gym.py::test_global_randomness_is_neither_used_nor_changed",
        task="list_functions",
    ),
)
def test_global_randomness(patch):
    """A verifier's problems depend on Python's global random state, and reseed it."""
    patch.setattr(reasoning_gym, "_global_random", lambda seed: contextlib.nullcontext())


@planted(
    None,
    OURS,
    Test(
        "verifiers/test_base.py::test_a_reward_outside_the_declared_range_is_an_error",
        low=0.0,
        high=1.0,
        reward=-1.0,
        inside=False,
    ),
)
def test_rewards_may_leave_their_range(patch):
    """A verifier that declares rewards from 0 to 1 pays -1, and thresholds mean something else."""
    patch.setattr(base, "in_range", lambda verifier, verdict: verdict)


@planted(
    None,
    OURS,
    Test("reliability/test_determinism.py::test_the_number_of_verifier_workers_changes_nothing", name="reinforce"),
)
def test_a_curriculum_learns_at_other_moments(patch):
    """Without workers the curriculum learns of a verdict at once, with workers at the next reset."""
    init = TextGenVectorEnv.__init__

    def at_once(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if self._late is not None and not LateVerdicts.help(self.task.judge):
            self._late, self.metadata["late_verdicts"] = None, False

    patch.setattr(TextGenVectorEnv, "__init__", at_once)


@planted(
    None,
    OURS,
    Test("rlenv/text/test_special_tokens.py::test_texts_have_no_special_tokens_as_in_transformers", name="characters"),
)
def test_special_tokens_are_spelled_out(patch):
    """A padding token is judged by its name: <pad> earns what a reward function pays for an "a"."""
    patch.setattr(TextGenTask, "shown", lambda self, completions: decode(self.tokenizer, completions))
