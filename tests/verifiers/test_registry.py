import sys

import pytest

import verifiers.registry as registry
from verifiers import Arith, FunctionVerifier, Problem, Verdict, Verifier, list_verifiers, make_verifier
from verifiers import register_verifier as register


class Always(Verifier):
    def __init__(self, reward=1.0):
        self.reward = reward

    def verify(self, problem, completion):
        return Verdict(self.reward)


def half(prompts, completions):
    return [0.5 for _ in completions]


@pytest.fixture(autouse=True)
def names_of_this_test(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed distribution with one verifier behind an entry point."""
    (tmp_path / "rlenv_test_plugin.py").write_text(
        "from verifiers import Verdict, Verifier\n"
        "class Plugged(Verifier):\n"
        "    def verify(self, problem, completion):\n"
        "        return Verdict(0.75)\n"
    )
    distribution = tmp_path / "rlenv_test_plugin-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: rlenv-test-plugin\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text("[rlenv.verifiers]\nplugged = rlenv_test_plugin:Plugged\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "plugged"
    sys.modules.pop("rlenv_test_plugin", None)


def reward_of(verifier):
    return verifier.verify(Problem("p"), "c").reward


def test_a_decorated_class_is_made_by_its_name():
    assert register("always")(Always) is Always
    assert "always" in list_verifiers()
    assert reward_of(make_verifier("always", reward=0.25)) == 0.25


def test_a_name_belongs_to_one_class():
    with pytest.raises(ValueError, match=r"the verifier name 'arith' is taken by verifiers\.builtin\.arith:Arith"):
        register("arith")(Always)
    assert isinstance(make_verifier("arith"), Arith)


def test_a_class_may_be_registered_again_as_when_its_module_is_reloaded():
    register("always")(Always)
    again = type("Always", (Verifier,), {"__module__": Always.__module__, "__qualname__": Always.__qualname__})
    register("always")(again)
    assert type(make_verifier("always")) is again


def test_an_entry_point_is_listed_and_made(plugin):
    assert plugin in list_verifiers()
    assert reward_of(make_verifier(plugin)) == 0.75


def test_an_entry_point_is_suggested_for_a_name_close_to_it(plugin):
    with pytest.raises(ValueError, match="unknown verifier 'plugedd'; did you mean plugged"):
        make_verifier("plugedd")


def test_a_module_and_a_name_in_it_are_imported(plugin):
    assert reward_of(make_verifier("rlenv_test_plugin:Plugged")) == 0.75
    assert make_verifier("verifiers.builtin.arith:Arith", digits=3).digits == 3


def test_without_trust_only_registered_verifiers_are_made(plugin):
    register("always")(Always)
    with registry.trusting(False):
        for refused in ("rlenv_test_plugin:Plugged", "nowhere:Name"):
            with pytest.raises(ValueError, match=f"names the unregistered verifier '{refused}'.*pass --trust"):
                make_verifier(refused)
        with pytest.raises(ValueError, match="unregistered verifier 'nowhere:Name'"):
            make_verifier("weighted", parts={"always": 1, "nowhere:Name": 1})
        assert "rlenv_test_plugin" not in sys.modules
        assert reward_of(make_verifier(plugin)) == 0.75
        assert make_verifier("always:0.25").reward == "0.25"
        assert reward_of(make_verifier(Always)) == reward_of(make_verifier("weighted", parts={"always": 1})) == 1
    assert reward_of(make_verifier("rlenv_test_plugin:Plugged")) == 0.75


@pytest.mark.parametrize(
    ("spec", "reason"),
    [("verifiers.builtin.arith:Missing", "no attribute 'Missing'"), ("no_such_module_x:Name", "No module named")],
)
def test_a_module_or_name_that_is_not_there_is_named(spec, reason):
    with pytest.raises(ValueError, match=f"verifier '{spec}' cannot be loaded: .*{reason}"):
        make_verifier(spec)


def test_an_object_is_taken_as_it_is():
    verifier = Always()
    assert make_verifier(verifier) is verifier


def test_an_object_takes_no_further_arguments():
    with pytest.raises(ValueError, match=r"\['reward'\] given together with a finished verifier object"):
        make_verifier(Always(), reward=0.5)


def test_a_class_is_made():
    assert reward_of(make_verifier(Always, reward=0.5)) == 0.5


def test_a_plain_function_is_wrapped():
    verifier = make_verifier(half, success_reward=0.5)
    assert isinstance(verifier, FunctionVerifier)
    assert reward_of(verifier) == 0.5
    assert verifier.is_success(verifier.verify(Problem("p"), "c"))


def test_arguments_a_verifier_does_not_take_are_named():
    with pytest.raises(ValueError, match=r"verifier Arith: .*unexpected keyword argument 'digit'"):
        make_verifier("arith", digit=2)


def test_arguments_a_function_verifier_does_not_take_are_named():
    with pytest.raises(ValueError, match="unexpected keyword argument 'digits'"):
        make_verifier(half, digits=2)


def test_an_unknown_name_lists_close_matches():
    with pytest.raises(ValueError, match=r"unknown verifier 'arit'; did you mean arith\?"):
        make_verifier("arit")


def test_an_unknown_name_without_close_matches_lists_all_names():
    with pytest.raises(ValueError, match=r"unknown verifier 'zzzzzz'; known: .*arith"):
        make_verifier("zzzzzz")


BROKEN = {
    "raise SystemExit(3)": "SystemExit: 3 (",
    "import sys; sys.exit()": "rlenv_test_plugin.py, line 1)",
    "raise RuntimeError('no\\nlicence')": "RuntimeError: no",
    "1 / 0": "ZeroDivisionError: division by zero",
    "def f(:": "invalid syntax (rlenv_test_plugin.py, line 1)",
    "import no_such_module_z": "No module named 'no_such_module_z'",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_plugin_that_fails_while_it_is_imported_is_one_line(plugin, tmp_path, source):
    (tmp_path / "rlenv_test_plugin.py").write_text(source)
    for make in (make_verifier, registry.find_verifier):
        with pytest.raises(
            ValueError, match=r"verifier 'plugged' of rlenv-test-plugin 1\.0 cannot be loaded: "
        ) as caught:
            make(plugin)
        assert BROKEN[source] in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="verifier 'rlenv_test_plugin:Plugged' cannot be loaded: ") as caught:
        make_verifier("rlenv_test_plugin:Plugged")
    assert "\n" not in str(caught.value)


def test_ctrl_c_while_a_plugin_is_imported_is_not_held_back(plugin, tmp_path):
    (tmp_path / "rlenv_test_plugin.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        make_verifier(plugin)


@pytest.mark.parametrize("spec", [None, 3, 0.5, ["arith"]])
def test_anything_else_is_no_verifier(spec):
    with pytest.raises(ValueError, match="a verifier is a name, a Verifier or a reward function"):
        make_verifier(spec)
