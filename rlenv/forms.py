"""The arguments of TextGen-v0 by topic, each declared once: prompts, lengths, the stream of problems, the judge.

`gym.make` takes them flat; `parted` puts each where it belongs. The configs of jobs inherit those that a user chooses
(`scripts/config/options.py`). Nothing here imports torch, so that `--help` need not.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ._settings import Converted, WithSettings, check_names, declared_by, setting, with_settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlenv.verifiers import Problem

LONGEST = 1 << 20  # tokens of a prompt or a completion: each slot of an environment has room for both


def located(path: str) -> str:
    """Return a path as an absolute one, for a run continued elsewhere; hf:NAME and the text of a template as it is.

    `~` is the home folder, which shells leave as it is in --problems=~/x. A link stays one: the hub's cache has links
    with an ending to files without one.
    """
    if path.startswith("hf:") or is_template(path):
        return path
    return str(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111  # which leaves ~x.csv as it is


def is_template(text: str) -> bool:
    """Tell whether a text is a chat template, and not the path of a file with one."""
    return "{" in text and not os.path.exists(text)  # noqa: PTH110  # which bears a long text


@with_settings
class Form(WithSettings):
    """How prompts are written, and which tokens and texts end a turn."""

    heading: ClassVar[str] = "Prompts, tokens and precision (text)"
    tokenizer: str | Path | PreTrainedTokenizerBase | None = setting(
        default=None,
        help="Folder, id, or train:2000 for a preset.",
        more="Or a tokenizer object. train:2000 trains one of 2000 tokens on the training problems. Characters are "
        "those of the verifier's alphabet and of the listed problems.",
        shown="the model's, else characters",
    )
    system_prompt: str | None = setting(
        default=None, help="System message of prompts that have none; turns --chat on.", shown="none"
    )
    chat_template: str | Path | None = setting(
        default=None,
        help="Jinja file; turns --chat on.",
        more="Or the text of a chat template.",
        checked_by=located,
        shown="the tokenizer's",
    )
    chat: bool | None = setting(
        default=None,
        help="Make plain prompts messages of the user, as conversations always are.",
        shown="whether there is a system prompt or a chat template",
    )
    ask: bool = setting(
        default=False,
        help="Ask for the place of the answer in prompts in words, such as \\boxed{}.",
        more="See docs/verifiers.md.",
        flag="--ask/--no-ask",
    )
    cue: str | None = setting(
        default=None, help="End of prompts without a chat template, such as $'\\nSolution:'.", shown="none"
    )
    stop_tokens: Converted[str | int | Sequence[str | int], tuple[str | int, ...]] = setting(
        default=(),
        help="A further token that ends an episode: its text, or its id.",
        more="Beside those of the tokenizer, the chat template and the model's configs in its folder.",
        flag="--stop-token",
    )
    stop_strings: Converted[str | Sequence[str], tuple[str, ...]] = setting(
        default=(),
        help="A text that ends a turn, found where special tokens are spelled out.",
        more="What follows it in the last token is cut from its text.",
        flag="--stop-string",
        shown="the verifier's",
    )

    @property
    def chats_texts(self) -> bool:
        """Whether the chat template renders plain texts, too."""
        return (self.system_prompt is not None or self.chat_template is not None) if self.chat is None else self.chat


@with_settings
class Limits(WithSettings):
    """How long the parts of an episode may be, in tokens and turns."""

    heading: ClassVar[str] = Form.heading
    max_prompt_tokens: int | None = setting(
        default=None,
        help="Longest prompt; see --long-prompts.",
        more="The context has room for the longest prompt of up to 20,000 listed problems that is not longer.",
        high=LONGEST,
        shown="1024, or the verifier's",
    )
    long_prompts: Literal["skip", "error"] = setting(
        default="skip",
        help="What is done with longer prompts.",
        more="Skipped ones are counted in `encoding.skipped_prompts`.",
    )
    max_new_tokens: int | None = setting(
        default=None,
        help="Longest completion, or turn, in tokens.",
        more="With its end token. Without it: what the verifier declares (else 64), or the longest demonstration of up "
        "to 20,000 listed problems if that is longer.",
        high=LONGEST,
        shown="what the answers need, at most 4096",
    )
    max_turns: int | None = setting(default=None, help="Turns of a dialogue.", shown="the verifier's")
    max_reply_tokens: int | None = setting(
        default=None,
        help="Longest reply; longer ones end the episode.",
        more="With the chat template's tokens around it.",
        high=LONGEST,
        shown="the verifier's, or 128",
    )
    max_context_tokens: int | None = setting(
        default=None, help="Longest dialogue, all included.", high=LONGEST, shown="all that an episode can need"
    )


@with_settings
class ProblemFile(WithSettings):
    """Listed problems: a file or a data set, and how its rows become problems."""

    heading: ClassVar[str] = "Problems (text)"
    problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None = setting(
        default=None,
        help="File of problems: .jsonl, .json, .csv, .tsv, .parquet, a folder of datasets, or hf:org/name of the hub.",
        more="Or a list of problems: Problem, prompt, conversation or mapping; see `rlenv.problems.load_problems`.",
        checked_by=lambda value: located(str(value)) if isinstance(value, (str, Path)) else value,
        shown="the verifier's own",
    )
    columns: dict[str, str] = setting(default=(), help="Name of a column, as in prompt=question.", flag="--column")
    prompt_template: str | None = setting(
        default=None, help="Prompts from columns, as in 'Q: {question} A:'.", shown="the prompt column"
    )


@with_settings
class ProblemSplit(WithSettings):
    """How problems are split."""

    heading: ClassVar[str] = ProblemFile.heading
    test_fraction: float = setting(
        default=0.2,
        help="Share of the problems in the test split.",
        more="Unless the problems themselves name their split.",
        low=0,
        high=1,
    )


@with_settings
class ProblemOrder(WithSettings):
    """Which problems a training prefers."""

    heading: ClassVar[str] = ProblemFile.heading
    curriculum: float | None = setting(
        default=None,
        help="Add the next level at this success rate, such as 0.8.",
        more="See `rlenv.curriculum.Curriculum`.",
        above=0,
        high=1,
        shown="all levels at once",
    )
    prompt_choice: Literal["thompson"] | None = setting(
        default=None,
        help="thompson: prefer problems solved half of the time.",
        more="See `rlenv.curriculum.ThompsonChoice`.",
        shown="every problem in turn",
    )


@with_settings
class Posing(ProblemFile, ProblemSplit, ProblemOrder):
    """Which problems are posed, in which order."""

    split: Literal["train", "test"] = setting(
        default="train", help="Disjoint, unless the problems themselves name their split."
    )
    group_size: int = setting(default=1, help="K consecutive episodes share a prompt.")
    first_problem: int = setting(
        default=0,
        help="Number of the first group's problem in the stream; a warm start uses up the problems before it.",
        low=0,
    )
    share: tuple[int, int] | None = setting(
        default=None,
        help="(r, W): poses only the groups r, r + W, r + 2W, ... of the stream, for process r of W.",
        more="A curriculum then gets verdicts only by `TextGenVectorEnv.record_outcomes`.",
        shown="all",
    )


@with_settings
class VerifierArguments(WithSettings):
    """The arguments of a verifier."""

    heading: ClassVar[str] = "Verifier (text)"
    verifier_kwargs: dict[str, Any] = setting(default=(), help="Argument of the verifier.", flag="--verifier-arg")


@with_settings
class VerifierProcesses(WithSettings):
    """The tools around a verifier, and the processes that run both."""

    heading: ClassVar[str] = VerifierArguments.heading
    tools: Converted[Sequence[Callable[..., Any] | str], tuple[Any, ...]] = setting(
        default=(),
        help="A tool: calculator, python or file.py:function.",
        more="Functions, or module:name, that the model may call before it answers; see "
        "`rlenv.verifiers.dialogues.tools.WithTools`.",
        flag="--tool",
    )
    verifier_workers: int | None = setting(
        default=None,
        help="Processes that run the verifier; 0 for none.",
        more="One per core if the verifier asks for workers or one of the next two is given, else none.",
        low=0,
        shown="the verifier's",
    )
    verifier_timeout: float | None = setting(
        default=None, help="Seconds per verdict; a later one is a timeout.", above=0, shown="the verifier's"
    )
    verifier_memory_mb: int | None = setting(default=None, help="Memory of a worker process, in MiB.", shown="2048")


@with_settings
class Judging(VerifierArguments, VerifierProcesses):
    """How the verifier is made and run."""

    flag_errors: bool = setting(
        default=False,
        help='Whether an exception of a verifier without worker processes becomes a verdict with the status "error", '
        "as it does with them.",
    )
    trust: bool = setting(
        default=True,
        help="False refuses verifiers that are not registered, tools of files and modules, and data sets of the hub "
        "that no task of `rlenv.tasks` names; for names that come from a checkpoint.",
    )


PARTS: tuple[Any, ...] = (Form, Limits, Posing, Judging)
OWNERS = {name: part for part in PARTS for name in declared_by(part)}  # which part has an argument
PARAMETERS = [parameter for part in PARTS for parameter in inspect.signature(part).parameters.values()]


def parted(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the parts of `PARTS` that flat arguments make.

    Raises:
        TypeError: for an unknown name, with the closest match and the allowed ones.
        ValueError: for a value that is not allowed.
    """
    check_names("TextGen-v0", arguments, ["verifier", *OWNERS])
    return [part(**{name: value for name, value in arguments.items() if OWNERS[name] is part}) for part in PARTS]
