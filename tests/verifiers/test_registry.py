import inspect
import sys

import pytest
from refused import check_refused

import rlenv.verifiers.plugins.registry as registry
from rlenv.verifiers import Arith, Isolated, Problem, Verdict, Verifier, list_verifiers, make_verifier
from rlenv.verifiers import register_verifier as register
from rlenv.verifiers.lint.shown import summaries
from rlenv.verifiers.plugins import user_code


class Always(Verifier):
    def __init__(self, reward=1.0):
        self.reward = reward

    def verify(self, problem, completion):
        return Verdict(self.reward)


@pytest.fixture(autouse=True)
def names_of_this_test(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed distribution with one verifier behind an entry point."""
    (tmp_path / "rlenv_test_plugin.py").write_text(
        "from rlenv.verifiers import Verdict, Verifier\n"
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


def test_a_decorated_class_is_made_by_its_name_which_belongs_to_one_class():
    assert register("always")(Always) is Always
    assert "always" in list_verifiers()
    assert reward_of(make_verifier("always", reward=0.25)) == 0.25
    again = type("Always", (Verifier,), {"__module__": Always.__module__, "__qualname__": Always.__qualname__})
    register("always")(again)  # as when its module is reloaded
    assert type(make_verifier("always")) is again
    with pytest.raises(ValueError, match=r"name 'arith' is taken by rlenv\.verifiers\.builtin\.arith:Arith"):
        register("arith")(Always)


def test_without_trust_only_registered_verifiers_are_made(plugin):
    register("always")(Always)
    assert plugin in list_verifiers()
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


BROKEN = {
    "raise SystemExit(3)": "SystemExit: 3 (",
    "raise RuntimeError('no\\nlicence')": "RuntimeError: no",
    "def f(:": "invalid syntax (rlenv_test_plugin.py, line 1)",
    "import no_such_module_z": "No module named 'no_such_module_z'",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_plugin_that_fails_while_it_is_imported_is_one_line(plugin, tmp_path, source):
    (tmp_path / "rlenv_test_plugin.py").write_text(source)
    named = "verifier 'plugged' of rlenv-test-plugin 1.0 cannot be loaded: "
    for make in (make_verifier, registry.find_verifier):
        check_refused(make, {next(iter(inspect.signature(make).parameters)): plugin}, (named, BROKEN[source]))
    check_refused(make_verifier, {"spec": "rlenv_test_plugin:Plugged"}, ("'rlenv_test_plugin:Plugged' cannot be",))
    listed = {row["name"]: row["summary"] for row in summaries()}
    assert "cannot be loaded" in listed[plugin] and listed["weighted"].startswith("Several verifiers")


def test_a_name_of_two_packages_is_refused_and_a_built_in_one_is_rlenvs_which_the_list_says(plugin, tmp_path):
    other = tmp_path / "other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[rlenv.verifiers]\nplugged = its:Plugged\narith = its:Arith\n")
    offers = ("rlenv-test-plugin 1.0 (rlenv_test_plugin:Plugged)", "other 2.0 (its:Plugged)")
    check_refused(make_verifier, {"spec": plugin}, ("'plugged'", *offers))
    assert type(make_verifier("arith")) is Arith
    rows = [(row["summary"], row["from"]) for row in summaries() if row["name"] == "arith"]
    assert [origin for _, origin in rows] == ["rlenv", "other 2.0"] and "use its:Arith" in rows[1][0]


def test_ctrl_c_while_a_plugin_is_imported_is_not_held_back(plugin, tmp_path):
    (tmp_path / "rlenv_test_plugin.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        make_verifier(plugin)


@pytest.fixture
def rewards(tmp_path, monkeypatch):
    """A folder with two files of the same name, which import a neighbour; the folder is not on the search path."""
    monkeypatch.setattr(user_code.CODE, "files", {})
    monkeypatch.setattr(user_code.CODE, "folders", [])
    before = set(sys.modules)
    for folder, reward in ((tmp_path, 0.25), (tmp_path / "deep", 0.75)):
        folder.mkdir(exist_ok=True)
        (folder / "my.rewards.py").write_text(
            "def f(completions, **columns):\n"
            "    from neighbour_of_rewards import bonus\n"
            f"    return [{reward} + bonus for _ in completions]\n"
        )
    (tmp_path / "neighbour_of_rewards.py").write_text("bonus = 1.0\ndef g(completions):\n    return [2.0]\n")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield tmp_path
    assert sys.path == path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_function_in_a_file_is_found_with_its_neighbours_here_and_in_workers(rewards):
    made = make_verifier("my.rewards.py:f")
    assert reward_of(made) == 1.25
    assert reward_of(make_verifier(f"{rewards}/deep/my.rewards.py:f")) == 1.75, "another file of this name"
    pool = Isolated(made, workers=1, timeout=30.0)
    assert reward_of(pool) == 1.25
    pool.close()
    assert reward_of(make_verifier("neighbour_of_rewards:g")) == 2.0


def test_a_list_of_names_is_a_weighted_sum(rewards):
    made = make_verifier("my.rewards.py:f,deep/my.rewards.py:f=0.5,length:3=-2")
    assert made.weights == {"f": 1.0, "f-2": 0.5, "length": -2.0}
    assert reward_of(made) == pytest.approx(1.25 + 0.5 * 1.75 - 2.0)
    assert make_verifier("format:think,answer").tags == ["think", "answer"], "a comma in an argument stays there"
