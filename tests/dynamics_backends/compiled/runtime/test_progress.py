"""A script gets one message about a long compilation; a registered listener gets it instead."""

import logging
import threading

import pytest

from dynamics_backends.compiled.runtime import progress


class Heard(logging.Handler):
    """The lines of the logger, and an event with the first."""

    def __init__(self):
        super().__init__()
        self.lines, self.any = [], threading.Event()

    def emit(self, record):
        self.lines.append(record.getMessage())
        self.any.set()


@pytest.fixture
def heard(monkeypatch):
    monkeypatch.setattr(progress, "WORTH_A_LINE", 0.01)
    for last in ("_logged", "_idle_since"):  # nothing was compiled before
        monkeypatch.setattr(progress, last, -progress.LOGGED_AGAIN)
    handler = Heard()
    progress._LOG.addHandler(handler)
    yield handler
    progress._LOG.removeHandler(handler)


def test_a_script_is_told_once(heard):
    with progress.counted(3):
        assert heard.any.wait(10.0)
    with progress.counted(2):  # another library of the same solve
        assert not threading.Event().wait(0.1)
    (line,) = heard.lines
    assert line.startswith("compiling (") and line.endswith("3 to go; cached for later runs")


def test_whoever_listens_is_told_alone(heard):
    said, any_said = [], threading.Event()
    with progress.reported(lambda line: (said.append(line), any_said.set())), progress.counted(2):
        assert any_said.wait(10.0)
    assert said and not heard.lines


def test_short_work_is_not_told(heard, monkeypatch):
    monkeypatch.setattr(progress, "WORTH_A_LINE", 60.0)
    with progress.counted(1):
        pass
    assert not heard.lines
