import json
from decimal import Decimal

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Isolated, JsonSchema, Problem, isolate, make_verifier
from verifiers.builtin.json_schema import MOST_DIGITS, read_json

BOOK = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 1}, "year": {"type": "integer"}},
    "required": ["title", "year"],
    "additionalProperties": False,
}
EMMA = '{"title": "Emma", "year": 1815}'
PROBLEM = Problem("A book?", EMMA)


@pytest.mark.parametrize("text", [EMMA + " " * 100_000, '{"a":' * 1_500 + "1" + "}" * 1_500])
def test_a_document_that_is_too_long_or_too_deep_is_none(text):
    assert JsonSchema(BOOK).verify(PROBLEM, text).reward == 0.0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=20,
)


@drawn(40)
@given(JSON, st.sampled_from([None, 2]))
def test_every_document_is_read_as_it_was_written(value, indent):
    text = json.dumps(value, indent=indent)
    assert read_json(text) == json.loads(text, parse_float=Decimal)


def test_a_schema_may_stand_in_a_file(tmp_path):
    path = tmp_path / "book.json"
    path.write_text(json.dumps(BOOK))
    assert JsonSchema(str(path)).verify(PROBLEM, EMMA).reward == 1.0
    assert make_verifier(f"json_schema:{path}").verify(PROBLEM, "{}").reward == 0.0


def test_a_schema_without_end_is_an_error_not_a_crash():
    verdict = JsonSchema({"properties": {"a": {"$ref": "#/properties/a"}}}).verify(PROBLEM, '{"a": 1}')
    assert (verdict.reward, verdict.status) == (0.0, "error")
    assert "refers to itself without end" in verdict.reason


def test_a_schema_that_takes_for_ever_ends_at_the_deadline():
    schema, completion = {"pattern": "^(a+)+$"}, json.dumps("a" * 60 + "b")
    by_default = isolate(JsonSchema(schema))
    assert isinstance(by_default, Isolated)  # or the next line would not come back
    verifier = Isolated(JsonSchema(schema), workers=1, timeout=0.3)
    verdict = verifier.verify(Problem("p"), completion)
    verifier.close()
    assert (verdict.reward, verdict.status, verdict.reason) == (0.0, "timeout", "no answer within 0.3 s")


@pytest.mark.parametrize("number", ["1e308", "-1e308", "1e-320", "9" * MOST_DIGITS, "0", "-0.0"])
@pytest.mark.parametrize("schema", [{"multipleOf": 0.01}, {"multipleOf": 3}, {"multipleOf": 1e-300}, {"maximum": 1.5}])
def test_extreme_numbers_have_a_verdict(number, schema):
    assert JsonSchema(schema).verify(PROBLEM, number).status == "ok"
