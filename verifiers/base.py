"""The contract: a verifier poses problems and judges completions."""

from __future__ import annotations

import math
import os
import random
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from rlenv._checks import in_one_line, message_of
from rlenv._status import STATUSES, Status

from .conversation import Message, as_reply
from .problem import Problem, unshared

T = TypeVar("T")
MAX_REWARD = 3.4028234663852886e38  # the largest of float32, in which training keeps rewards
REASON_LENGTH = 300  # characters
CARRIED = SAMPLED, PROGRESS, CALLED, REPLIED = (
    "completion.token_ids", "completion.progress", "completion.calls", "completion.reply",
)  # fmt: skip
# Code that is not the author's: of rlenv, of Python, made from texts, and in installed packages.
INSTALLED = (str(Path(__file__).parents[1]), str(Path(os.__file__).parent), "<string>", "<frozen")
PACKAGES = f"{os.sep}site-packages{os.sep}"
ROUNDING = 1e-6  # relative; a reward this little outside its range is inside
INFOS = (  # of TextGen-v0, which counts of a dialogue must not replace
    "group", "prompt", "turn", "reply", "appended", "waiting", "completion", "messages", "turns", "verdict",
    "is_success", "verifier_failed", "verdict_status", "verdict_reason", "verdict_future", "level", "prompt_arm",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """A verifier's judgement of one completion.

    Args:
        reward: a finite number, also in float32; kept as a float.
        parts: named components of the reward, for logging.
        status: "ok", or why the reward is missing: "timeout" and "error" are failures of the verifier and are counted;
            "not_applicable" means that it does not judge this completion. These are not scored as 0:
            such episodes are left out of baselines, loss and metrics.
        reason: the failure, in one line, if the status is not "ok"; else perhaps the fault of the answer,
            feedback that the agent `sdpo` shows its teacher.
        success: whether it counts as solved; None if the verifier's `success_reward` decides.

    Raises:
        ValueError: if the reward is not a number, NaN or beyond ±3.4e38, or a field is of another kind.
    """

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    status: Status = "ok"
    reason: str = ""
    success: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward", as_reward("a verdict's reward", self.reward))
        try:
            _ = [float(value) for value in self.parts.values()]
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"a verdict's parts must be numbers by name, got {self.parts!r:.60}") from error
        if not isinstance(self.reason, str):
            raise ValueError(f"a verdict's reason must be a text, got {self.reason!r:.60}: pass str(reason)")
        if self.success not in (None, True, False):
            raise ValueError(f"a verdict's success must be True, False or None, got {self.success!r:.60}")
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}; allowed: {', '.join(STATUSES)}")


@dataclass(frozen=True)
class Reply:
    """The answer of the other side of a dialogue to a turn.

    Args:
        content: what the model reads next: a text, which in a conversation is a message of the user, or messages of
            the roles "user" and "tool".
        reward: of the turn just taken, a finite number, also in float32.
        verdict: ends the episode; its reward is added to that of the turn, and the content is not read any more.
        counts: of events in this turn, such as "tool_calls"; the infos at the end of the episode have their sums.
            Whole numbers, by names that no other info has.

    Raises:
        ValueError: for malformed messages or counts, or a reward that is NaN or beyond ±3.4e38.
    """

    content: str | list[Message] = ""
    reward: float = 0.0
    verdict: Verdict | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward", as_reward("a reply's reward", self.reward))
        for name, count in self.counts.items():
            if not isinstance(name, str) or name in INFOS or type(count) is not int:
                allowed = f"whole numbers by names other than {', '.join(INFOS)}"
                raise ValueError(f"a reply's counts must be {allowed}; got {name!r:.40}: {count!r:.40}")
        if not isinstance(self.content, str):
            object.__setattr__(self, "content", as_reply(self.content))


class Dialogue:
    """The other side of one episode of several turns; `Verifier.dialogue` makes it.

    Equal problems and equal turns must give equal replies, so that worker processes can replay a dialogue.

    Attributes:
        deterministic: False if they do not; an environment with worker processes refuses such a dialogue.
    """

    deterministic: bool = True

    def reply(self, turn: str) -> Reply:
        """Answer the next turn of the model, a text of any kind."""
        raise NotImplementedError(f"{type(self).__name__} does not implement reply")

    def recall(self, turn: str) -> None:
        """Take note of a turn that another process has answered; by default it is answered again."""
        self.reply(turn)

    def out_of_budget(self) -> Verdict:
        """Judge an episode whose turns or context run out, after the last reply; by default 0 and no success."""
        return UNFINISHED

    def close(self) -> None:
        """Release the dialogue's resources; called when its episode is over or given up."""


class Completion(str):
    """A completion's text, with the further inputs of verifiers that ask for them (`Verifier.inputs`).

    Attributes:
        token_ids: the sampled tokens, with the end token if there is one; None if unknown.
        progress: of the training: `num_updates` so far and `max_updates`; empty if unknown. Values may be None.
        calls: of tools, if the tokenizer says how they are written; else None.
        prompt_tokens: how many it was sampled after; set in dialogues, else None.
        cut: whether the turn ended at its limit; set in dialogues.
        reply: the messages that answered it, for verifiers that ask for it; None of the last turn.
    """

    token_ids: tuple[int, ...] | None = None
    progress: Mapping[str, Any] = {}
    calls: Sequence[Any] | None = None
    prompt_tokens: int | None = None
    cut: bool = False
    reply: list[Message] | None = None

    @classmethod
    def of(
        cls,
        text: str,
        token_ids: Sequence[int] | None,
        progress: Mapping[str, Any],
        calls: Sequence[Any] | None = None,
    ) -> Completion:
        """Return a text with these attributes."""
        made = cls(text)
        made.token_ids = None if token_ids is None else tuple(token_ids)
        made.progress, made.calls = progress, calls
        return made


def as_number(value: Any) -> float:
    """Return a number, also one of numpy or torch, as a float; a TypeError for a text."""
    return float(None if isinstance(value, (str, bytes)) else value)  # type: ignore[arg-type]


def as_reward(what: str, value: Any) -> float:
    """Return a reward as a float.

    Raises:
        ValueError: for anything but a number, for NaN, and for numbers beyond float32.
    """
    try:
        reward = as_number(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # of several numbers; beyond float64
        reward = math.nan
    if not abs(reward) <= MAX_REWARD:
        raise ValueError(f"{what} must be a finite number in float32, got {in_one_line(value):.60}")
    return reward


def describe(error: BaseException) -> str:
    """Return an exception and the place that raised it, in one line; of unknown fields of a Verdict, the known ones.

    The place is the last one outside of rlenv and installed packages, if there is one.
    """
    text = message_of(error)
    if isinstance(error, TypeError) and text.startswith("Verdict.__init__()"):
        text += f"; the fields of a Verdict are {', '.join(one.name for one in fields(Verdict))}"
    text = " ".join(text.split())[:REASON_LENGTH]
    places, traceback = [], error.__traceback__
    while traceback is not None:
        places.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    authors = [each for each in places if not (each[0].startswith(INSTALLED) or PACKAGES in each[0])]
    where = "".join(f" ({Path(file).name}:{line})" for file, line in (authors or places)[-1:])
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


RIGHT, WRONG = Verdict(1.0), Verdict(0.0)  # shared, because making one costs more than a comparison
UNFINISHED = Verdict(0.0, success=False)  # where rewards are costs, 0 may be enough for a success


@dataclass(frozen=True)
class Execution:
    """How a verifier is run.

    Args:
        isolated: in worker processes by default, because it may hang, crash or take long; see `Isolated`.
        timeout: seconds per verdict in a worker process.
        slow: a verdict may take longer than 5 ms, because it runs a program or a model.
        prefers_batches: one large batch is cheaper than several small ones.
        waits: its dialogues wait for something outside this process, such as a server; without worker processes,
            those whose turns end together reply in threads.
        needs: optional modules that it imports, each with the extra of this package that installs it.
    """

    isolated: bool = False
    timeout: float = 5.0
    slow: bool = False
    prefers_batches: bool = False
    waits: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Turns:
    """The turns of an episode in which a verifier answers.

    Args:
        max_turns: turns of the model.
        reply_length: longest reply in characters; None if unknown.
        tools: functions that the model may call; chat templates show it what they are, from their docstrings or, if a
            function has one, from its JSON `schema`.
        instead: returns the reply to a turn in place of one that cannot be used, given the turn and the fault: the
            worker process that made the reply died or took too long, or the reply is longer than `max_reply_tokens`,
            or the tokenizer cannot spell it. Without it, or if it returns None or a verdict, the episode ends.
        stop_strings: texts that end a turn, unless the environment is given others.
    """

    max_turns: int = 1
    reply_length: int | None = None
    tools: Sequence[Callable[..., Any]] = ()
    instead: Callable[[str, str], Reply | None] | None = None
    stop_strings: Sequence[str] = ()

    def in_place(self, turn: str, fault: str) -> Reply | None:
        """Return the reply in place of one that cannot be used; None to end the episode.

        Raises:
            ValueError: for anything else, and whatever `instead` raises.
        """
        made = None if self.instead is None else self.instead(turn, fault)
        return None if made is None else returned(self, "instead", made, Reply, "a Reply or None")


@dataclass(frozen=True)
class Probes:
    """Completions of one problem with which lint tries a verifier, beside its own attacks.

    Args:
        right: right completions that differ from the demonstration.
        wrong: wrong completions that could fool this kind of verifier, by name of the attack.
    """

    right: Sequence[str] = ()
    wrong: Mapping[str, Sequence[str]] = field(default_factory=dict)


class NoProblemsError(NotImplementedError, ValueError):
    """A verifier makes no problems, and there are none of a list."""


class Poser:
    """Poses problems: the half of a verifier that comes before a completion.

    Attributes:
        alphabet: the characters of prompts and answers; the default tokenizer has one token for each.
        prompt_length: longest prompt in characters, of a conversation its last message; None if unknown.
        answer_length: longest right answer in characters; None if unknown.
        turns: how many, and how long the replies are, for verifiers with dialogues; see `Turns`.
        levels: number of difficulty levels. With more than one, a problem has `metadata["level"]`, from 1.
    """

    alphabet: str = string.printable
    prompt_length: int | None = None
    answer_length: int | None = None
    turns: Turns = Turns()
    levels: int = 1

    def sample(self, rng: random.Random) -> Problem:
        """Return a random problem, which depends on `rng` only; override it, or `sample_at`, unless they are listed."""
        if type(self).sample_at is Poser.sample_at:
            name = getattr(self, "name", type(self).__name__)  # of a reward function its own
            raise NoProblemsError(f"{name} does not make problems: pass problems (--problems FILE)")
        return self.sample_at(rng, 1 if self.levels == 1 else rng.randint(1, self.levels))

    def sample_at(self, rng: random.Random, level: int) -> Problem:
        """Return a problem of one level, 1 to `levels`; override it if there is more than one level."""
        return self.sample(rng)

    def examples(self) -> list[Problem]:
        """Return problems to show and to lint the verifier with; override it if `sample` is not implemented."""
        return sample_each(self, [random.Random(0)] * 16)

    def dialogue(self, problem: Problem) -> Dialogue | None:
        """Return the other side of an episode in which the environment answers; None for one completion, then judged.

        Override it for tasks of several turns.
        """
        return None

    def demonstration(self, problem: Problem) -> str:
        """Return a right completion for the supervised warm start; the reference answer by default."""
        return problem.answer

    def demonstration_turns(self, problem: Problem, rng: random.Random) -> Sequence[str]:
        """Return the model's turns in a right episode; `rng` is for verifiers that choose one of several.

        The dialogue is asked for the replies in between. By default, `demonstration` is the only turn. A problem may
        have other ones in a column `turns`; see `right_turns`.
        """
        return [demonstration_of(self, problem)]

    def extract(self, problem: Problem, completion: str) -> str | None:
        """Return the answer that a completion gives, None if it gives none, for a majority vote over completions.

        Completions that give the same answer should return the same text; by default the whole completion, stripped.
        """
        return completion.strip()

    def split_key(self, problem: Problem) -> str:
        """Return the text whose hash decides between training and test split.

        Problems that a learner cannot tell apart (12+34 and 34+12) should share a key.
        """
        return problem.text


class Scorer:
    """Judges completions: the other half of a verifier.

    Attributes:
        success_reward: the least reward that counts as a success, if the verdict does not say whether it is one.
        reward_range: lowest and highest possible reward of an episode, which in a dialogue is the sum over its turns;
            a reward outside is an error of the verifier.
        part_weights: if the reward is a weighted sum of named parts of the verdict, their weights by name.
        execution: how it is run; see `Execution`.
        does_not_catch: known holes: the name of an attack in `lint/attacks.py` or in `probes`, or
            "wrong-answer", and why wrong completions of that kind are rewarded.
        inputs: what it judges by, beside prompt, answer and text: names of metadata, without which problems are
            refused, and "completion.token_ids", "completion.progress", "completion.calls" and "completion.reply"; see
            `Completion`.
        request: a sentence that asks a model to put its answer where this verifier looks for it; empty if it does not.
    """

    success_reward: float = 1.0
    reward_range: tuple[float, float] = (0.0, 1.0)
    part_weights: Mapping[str, float] = {}
    execution: Execution = Execution()
    does_not_catch: Mapping[str, str] = {}
    inputs: tuple[str, ...] = ()
    request: str = ""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion."""
        if type(self).verify_batch is Scorer.verify_batch:
            raise NotImplementedError(f"{type(self).__name__} implements neither verify nor verify_batch")
        return checked(self, self.verify_batch([problem], [completion]), 1)[0]

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many completions, in order; override it if a batch is cheaper than one at a time."""
        return [self.verify(problem, completion) for problem, completion in zip(problems, completions, strict=True)]

    def probes(self, problem: Problem) -> Probes:
        """Return the verifier's own right and wrong completions, for lint."""
        return Probes()

    def close(self) -> None:
        """Release the verifier's resources, such as worker processes or a model."""


class Verifier(Poser, Scorer):
    """Poses problems and judges completions; subclass it and override the methods that you need.

    It returns a verdict for every text, however bad (reward 0), and raises an exception for its own bugs. `Poser` and
    `Scorer` say what its attributes are.
    """

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion; by default, of a verifier with dialogues, as an episode of one turn."""
        batched = type(self).verify_batch is not Scorer.verify_batch
        if batched or (dialogue := self.dialogue(unshared(problem))) is None:
            return super().verify(problem, completion)
        with closing(dialogue):
            reply = dialogue.reply(completion)
            verdict = dialogue.out_of_budget() if reply.verdict is None else reply.verdict
        return replace(verdict, reward=reply.reward + verdict.reward, success=is_success(self, verdict))


def has_dialogues(poser: Poser) -> bool:
    """Return whether the poser has dialogues, which answer the model's turns, for at least some problems."""
    return type(poser).dialogue is not Poser.dialogue


def right_turns(poser: Poser, problem: Problem, rng: random.Random) -> Sequence[str]:
    """Return the model's turns in a right episode: of a dialogue those in the column `turns`, else the poser's.

    Raises:
        ValueError: for something else than a list of texts.
    """
    turns: Any = problem.metadata.get("turns") if has_dialogues(poser) else None
    what = f"the column 'turns' of {problem.text!r:.60} must be"
    if turns is None:
        turns, what = poser.demonstration_turns(problem, rng), f"{type(poser).__name__}.demonstration_turns must return"
    if not isinstance(turns, (list, tuple)) or not all(isinstance(turn, str) for turn in turns):
        raise ValueError(f"{what} a list of texts, got {turns!r:.60}")
    return turns


def is_success(scorer: Scorer, verdict: Verdict) -> bool:
    """Tell whether a verdict counts as solved: as it says itself, else by the scorer's `success_reward`."""
    solved = verdict.reward >= scorer.success_reward if verdict.success is None else verdict.success
    return verdict.status == "ok" and bool(solved)


def check_inputs(scorer: Scorer, problems: Sequence[Problem]) -> None:
    """Refuse problems of which none has a column that a scorer judges by.

    Raises:
        ValueError: with the missing and the present columns.
    """
    asked = [name for name in scorer.inputs if name not in CARRIED]
    if lacking := [name for name in asked if not any(name in each.metadata for each in problems)]:
        allowed = ", ".join(["answer", *sorted({name for each in problems for name in each.metadata})])
        lists = {"prompt", "completion"} & {*lacking}
        advice = "; a reward function takes lists: f(prompts, completions, **columns)" if lists else ""
        advice = "; an agent is a function solve(problem, client)" if "client" in lacking else advice
        advice = f"; of completions: {', '.join(CARRIED)}" if any("completion." in name for name in lacking) else advice
        raise ValueError(f"the verifier asks for the columns {lacking}; the problems have: {allowed}{advice}")


def returned(owner: Any, method: str, value: Any, kind: type[T], allowed: str, hint: str = "") -> T:
    """Return the value that a method of a plugin has returned.

    Args:
        owner: of the method.
        method: its name, for the message.
        value: anything.
        kind: that it must be of.
        allowed: in words.
        hint: what to do, if that helps.

    Raises:
        ValueError: if it is of another kind.
    """
    if not isinstance(value, kind):
        raise ValueError(f"{type(owner).__name__}.{method} must return {allowed}, got {value!r:.60}{hint}")
    return value


def demonstration_of(poser: Poser, problem: Problem) -> str:
    """Return a right completion of a problem, empty if the poser knows none; a ValueError for anything but a text."""
    return returned(poser, "demonstration", poser.demonstration(problem), str, "a text, perhaps empty")


def extracted(poser: Poser, problem: Problem, completion: str) -> str | None:
    """Return the answer that a completion gives, if any; a ValueError for anything but a text or None."""
    found = poser.extract(problem, completion)
    return None if found is None else returned(poser, "extract", found, str, "a text or None")


def split_key_of(poser: Poser, problem: Problem) -> str:
    """Return the split key of a problem; a ValueError for anything but a text."""
    return returned(poser, "split_key", poser.split_key(problem), str, "a text", ": return str(...)")


def checked_problem(poser: Poser, made: Any) -> Problem:
    """Return the problem that `sample` has made; a ValueError for anything else."""
    return returned(poser, "sample", made, Problem, "a Problem(prompt, answer)")


def sample_each(poser: Poser, generators: Sequence[random.Random]) -> list[Problem]:
    """Return a problem from each of these generators, of all levels in turn."""
    levels = (1 + index % poser.levels for index in range(len(generators)))
    return [checked_problem(poser, poser.sample_at(*each)) for each in zip(generators, levels, strict=True)]


class MiscountError(ValueError):
    """A batch with more or fewer rewards or verdicts than completions, which cannot be matched to each other.

    Unlike a verifier's own exceptions, it never becomes a verdict: it is raised where the verdicts are requested.
    """


def checked(verifier: Scorer, verdicts: object, count: int) -> list[Verdict]:
    """Check the result of `verify_batch` and return it as a list of `count` verdicts.

    A verdict whose reward is outside the verifier's `reward_range`, by more than rounding, becomes an error.

    Raises:
        MiscountError: if there are more or fewer.
        ValueError: if they are something else.
    """
    made = list(verdicts) if isinstance(verdicts, Iterable) else [verdicts]
    right = [verdict for verdict in made if isinstance(verdict, Verdict)]
    if len(right) != len(made) or len(made) != count:
        kind = ValueError if len(made) == count else MiscountError
        wanted = f"verify must return a Verdict, and verify_batch one for each of {count} completions"
        raise kind(f"{type(verifier).__name__}: {wanted}; got {len(made)}: {made!r:.200}")
    return [in_range(verifier, verdict) for verdict in right]


def in_range(verifier: Scorer, verdict: Verdict, paid: float = 0.0) -> Verdict:
    """Return a verdict, or an error in its place if the reward of the episode is outside the `reward_range`.

    Args:
        verifier: that judged.
        verdict: on an episode.
        paid: the rewards of its turns.
    """
    low, high = verifier.reward_range
    reward = float(paid + verdict.reward)
    if low <= reward <= high:
        return verdict
    slack = ROUNDING * max((abs(end) for end in (low, high) if math.isfinite(end)), default=0.0)
    if verdict.status != "ok" or low - slack <= reward <= high + slack:
        return verdict
    what = f"the reward {reward}" + (f" (of its turns: {float(paid)})" if paid else "")
    reason = f"{what} is outside reward_range ({float(low)}, {float(high)}) of {type(verifier).__name__}"
    return Verdict(0.0, status="error", reason=f"{reason}; declare another reward_range")
