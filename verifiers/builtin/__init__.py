"""The built-in verifiers, one file or folder each. To add one, write a file and add its class here."""

from ..code.feedback import CodeFeedback
from ..code.verifier import Code
from ..dialogues.environment_class import EnvironmentClass
from ..dialogues.openenv import OpenEnv
from ..dialogues.program import Program
from ..dialogues.stepped import Gem, Gym
from ..dialogues.textarena import TextArena
from .arith import Arith
from .calculator_sums import CalculatorSums
from .choice import Choice
from .countdown import Countdown
from .exact import Exact
from .format import Format
from .guess import Guess
from .ifeval import IFEval
from .json_schema import JsonSchema
from .length import Length
from .math import Math
from .numeric import Numeric
from .reasoning_gym import ReasoningGym
from .regex import Regex
from .reward_model import RewardModel
from .weighted import Weighted

__all__ = [
    "Arith", "CalculatorSums", "Choice", "Code", "CodeFeedback", "Countdown", "EnvironmentClass", "Exact",
    "Format", "Gem", "Guess", "Gym", "IFEval", "JsonSchema", "Length", "Math", "Numeric", "OpenEnv",
    "Program", "ReasoningGym", "Regex", "RewardModel", "TextArena", "Weighted",
]  # fmt: skip
