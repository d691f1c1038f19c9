"""Facts from a sentence as JSON, as a program would read it: `--verifier examples/real_model/records.py:Records`.

    Karim grew up in Oslo and lives in Rome now, at the age of 44.
    Write this as JSON with the keys name, age and city.

Right is {"name": "Karim", "age": 44, "city": "Rome"}, in any order and with any white space. A program takes the answer
as it is, so the whole completion has to be JSON: words around it, a code fence or a missing bracket earn nothing.
"""

from __future__ import annotations

import json
import random
from typing import Any

from rlenv.verifiers import Probes, Problem, Verdict, Verifier
from rlenv.verifiers.builtin.json_schema import read_json

NAMES = """
    Amir Anna Bella Ben Carla Cem David Dora Elena Emil Fatma Felix Gina Grace Hana Hugo Irina Ivan Jonas Julia Karim
    Kofi Laura Lena Marco Mateo Nadia Nils Olga Oscar Paula Pedro Quinn Rita Rosa Samuel Sven Tara Thea Ugo Umar Vera
    Vikram Walter Wanda Xenia Yara Yusuf Zita Zoe
"""
CITIES = """
    Athens Berlin Boston Cairo Delhi Dublin Geneva Hamburg Lima Lisbon London Madrid Milan Nairobi Oslo Paris Prague
    Rome Seoul Sydney Tokyo Toronto Vienna Warsaw
"""
SENTENCES = (
    "{name} is {age} years old and lives in {city}.",
    "{name} lives in {city} and is {age} years old.",
    "In {city} lives {name}, who is {age} years old.",
    "{name} from {city} turned {age} last week.",
    "{name}, who is {age}, moved from {other} to {city}.",
    "{name} grew up in {other} and lives in {city} now, at the age of {age}.",
)
QUESTION = "Write this as JSON with the keys name, age and city."
PER_VALUE = 0.2  # what one right value in an object earns


class Records(Verifier):
    """A person's name, age and city as a JSON object; reward 1.0 if it is exactly that.

    Another JSON object earns 0.2 for each right value, so that a model that is seldom right all over has something to
    go by; it does not count as a success. Whatever is not one JSON object, and nothing else, earns 0.0.

    The name decides between training and test, so no name of a test problem is in a training problem.
    """

    prompt_length = max(map(len, SENTENCES)) + len(QUESTION) + 20
    answer_length = 80

    def sample(self, rng: random.Random) -> Problem:
        """Return one sentence about one person; some sentences name a second city, which is wrong."""
        city, other = rng.sample(CITIES.split(), 2)
        record: dict[str, Any] = {"name": rng.choice(NAMES.split()), "age": rng.randint(18, 80), "city": city}
        sentence = rng.choice(SENTENCES).format(**record, other=other)
        return Problem(f"{sentence}\n{QUESTION}", json.dumps(record))

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Compare the object with the record, value by value."""
        record = json.loads(problem.answer)
        try:
            given = read_json(completion)
        except ValueError:
            return Verdict(0.0)
        if given == record:
            return Verdict(1.0)
        right = sum(given.get(key) == value for key, value in record.items()) if isinstance(given, dict) else 0
        return Verdict(PER_VALUE * right)

    def split_key(self, problem: Problem) -> str:
        """Return the name."""
        return str(json.loads(problem.answer)["name"])

    def extract(self, problem: Problem, completion: str) -> str | None:
        """Return the value in one spelling, so that a majority vote counts what is equal together."""
        try:
            return json.dumps(read_json(completion), sort_keys=True, default=str)
        except ValueError:
            return None

    def probes(self, problem: Problem) -> Probes:
        """Return the record in several lines and in another order, and texts that only look like it."""
        record, right = json.loads(problem.answer), problem.answer
        same = [json.dumps(record, indent=2), json.dumps(dict(reversed(record.items()))), f"\n{right}\n"]
        others = [{**record, "age": str(record["age"])}, {**record, "job": "cook"}, dict(list(record.items())[:2])]
        wrong = {
            "another record": [json.dumps(each) for each in others],
            "more than the record": [f"```json\n{right}\n```", f"Sure! {right}", f"{right}\nThat is all.", right[:-1]],
        }
        return Probes(same, wrong)
