"""The watch over several processes: who is silent, who keeps the others waiting, and who has a right to."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from _rlenv_scripts.runs.torchrun import watch
from _rlenv_scripts.runs.torchrun.watch import NOTICE, SILENT, Watch, place_of

from agents.distributed import parallel


class EndError(Exception):
    """In place of the end of this process."""


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """The main process's watch over three, none of which runs: heartbeats are made by `heard`."""

    def end(self: Watch, reason: str) -> None:
        raise EndError(reason)

    monkeypatch.setattr(Watch, "_end", end)
    monkeypatch.setenv("MASTER_ADDR", "first")
    monkeypatch.setenv("MASTER_PORT", "29500")
    return Watch(None, rank=0, size=3, limit=1800)


def heard(main: Watch, number: int, *ranks: int, **more: Any) -> None:
    """Take heartbeats of these processes."""
    main.answers += 1
    for rank in ranks:
        beat = {"number": number, "pid": 0, "waits": 0, "place": "reward (rewards.py, line 7)", "left": False}
        main.beats[rank] = json.loads(json.dumps(beat | more))


def test_a_silent_process_ends_the_job_with_where_it_was(main: Watch) -> None:
    heard(main, 1, 0, 1, 2)
    main.look()
    with pytest.raises(EndError, match=r"process 2 of 3 has not been heard of for 22 s.*reward .rewards.py, line 7."):
        for number in range(2, 60):
            assert number <= SILENT + 2
            heard(main, number, 0, 1)
            main.look()


def test_a_process_that_has_left_may_be_silent(main: Watch) -> None:
    heard(main, 1, 2, left=True)
    for number in range(60):
        heard(main, number, 0, 1)
        main.look()


def test_a_store_that_does_not_answer_ends_the_job_and_no_process_is_blamed(main: Watch) -> None:
    heard(main, 1, 0, 1, 2)
    with pytest.raises(EndError, match="meeting place of the processes, first:29500, has not answered"):
        for _ in range(60):
            main.look()


def test_without_torchrun_the_job_ends_at_once(main: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    heard(main, 1, 0, 1, 2)
    main.look()
    monkeypatch.setattr(watch.os, "getppid", lambda: 1)
    with pytest.raises(EndError, match="torchrun was killed"):
        main.look()


def test_a_process_whose_connection_is_lost_does_not_wait_to_tell_the_others() -> None:
    class Store:
        def set(self, key: str, text: str) -> None:
            raise RuntimeError("Connection reset by peer")

    alone = Watch(Store(), rank=1, size=2, limit=None)
    alone._talk()
    assert alone._told.is_set()


def test_the_process_that_others_wait_for_is_named_and_in_the_end_blamed(
    main: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""
    with pytest.raises(EndError, match=r"waited 1800 s for process 1 of 3, which is in reward .rewards.py, line 7."):
        for number in range(2000):
            heard(main, number, 1)
            heard(main, number, 0, 2, waits=number)
            main.look()
            said += capsys.readouterr().err
    waits = [NOTICE * 2**times for times in range(5)]
    lines = [line for line in said.splitlines() if line.startswith("waiting for process 1 of 3")]
    assert len(lines) == len(waits)
    assert all(f"since {2 * wait} s" in line for wait, line in zip(waits, lines, strict=True))


def test_a_process_waits_while_it_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        def set(self, key: str, text: str) -> None:
            self.beat = json.loads(text)

    store = Store()
    watched = Watch(store, rank=1, size=2, limit=1800)
    monkeypatch.setattr(parallel, "exchanges", 6)
    watched._write(1)
    assert store.beat["waits"] == 0 and store.beat["number"] == 1
    with parallel.exchange():
        for number in range(2, 5):
            watched._write(number)
    assert store.beat["waits"] == 2
    watched._write(5)
    assert store.beat["waits"] == 0


def test_the_place_is_the_users_function_and_not_a_librarys() -> None:
    found: list[str] = []

    def own(value: object) -> str:
        found.append(place_of(sys._getframe(depth)))
        return ""

    depth = 0
    own(None)
    assert found[0].startswith("own (test_watch.py, line ")
    depth = 1
    json.dumps(object(), default=own)
    assert found[1].startswith("test_the_place_is_the_users_function_and_not_a_librarys (test_watch.py")
    assert place_of(None) == "its end"


def test_only_a_process_of_this_job_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(watch.os, "kill", lambda pid, number: killed.append(pid))
    monkeypatch.setenv("MASTER_PORT", "29500")
    watch._kill(watch.os.getpid(), 1)
    watch._kill(2**22 + 1, 1)
    assert not killed
