"""The log of a replanning run: its statistics, its file, its replay."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from replanning_cases import PERIOD, TICK, goal_object, loop, mass, problem

from dynamics_backends.systems.bodies.free_body import FreeBody
from experiments.replan.faults import Failing
from problems.robots.textbook import multi_pendulum as chain
from trajopt.replanning.measurements import Sensor
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.run_log import RunLog, Solve, statistics_of
from trajopt.replanning.workers import ScriptedWorker, SimulatedWorker, ThreadWorker, Timing, WallClock

EARLY = Timing(tick=TICK, period=PERIOD, prepare_early=True)


def noisy_run(worker=None, **options):
    estimator = Sensor(problem().manifold, TICK, noise=[1e-3, 1e-2], delay=TICK, dropped=[(0.4, 0.5)], seed=7)
    objects = [goal_object(lambda t: [1.0 + 0.2 * np.sin(3 * t)], noise=1e-3, seed=8)]
    chosen = {} if worker is None else {"worker": worker}
    return loop(Failing(RealTimeSLQ(), 5), estimator=estimator, objects=objects, **chosen, **options)


def test_a_run_is_deterministic():
    one, two = (noisy_run(charge=TICK, timing=EARLY).run(1.5) for _ in range(2))
    np.testing.assert_array_equal(one.xs, two.xs)
    np.testing.assert_array_equal(one.us, two.us)
    assert one.events == two.events


def test_a_run_is_written_read_and_replayed(tmp_path):
    delays = itertools.cycle([0.5 * TICK, 2 * TICK, 7 * TICK, TICK])
    worker = SimulatedWorker(TICK, lambda respond, prepare: (next(delays), 0.6 * TICK))
    log = noisy_run(worker, timing=EARLY).run(1.5)
    log.meta = {"plant": "own"}
    log.save(tmp_path / "made" / "for it", log.statistics())
    saved = RunLog.load(str(tmp_path / "made" / "for it"))
    assert repr(saved.manifold) == repr(log.manifold) and saved.statistics() == log.statistics(mass().manifold)
    assert saved.events == log.events and saved.spells == log.spells and saved.meta == log.meta
    np.testing.assert_array_equal(saved.objects["goal"], log.objects["goal"])
    again = noisy_run(ScriptedWorker(saved.spells), timing=EARLY).run(1.5)
    np.testing.assert_array_equal(again.xs, log.xs)
    np.testing.assert_array_equal(again.us, log.us)
    assert again.events == log.events


def test_a_wall_clock_run_is_replayed():
    """The planner works in a thread; the replay repeats at which ticks its answers came, whatever these were."""
    now = itertools.count()
    clock = WallClock(
        lambda: TICK * next(now), lambda seconds: None
    )  # each look at the clock takes a tick: it is always late
    worker = ThreadWorker()
    log = noisy_run(worker, timing=EARLY, clock=clock).run(1.0)
    worker.close()
    assert log.lags[1:].min() > 0.0
    again = noisy_run(ScriptedWorker(log.spells), timing=EARLY).run(1.0)
    np.testing.assert_array_equal(again.xs, log.xs)


def test_statistics_of_a_run():
    log = loop(charge=PERIOD * 2, timing=EARLY).run(1.0)
    numbers = log.statistics(mass().manifold, {"goal": np.abs(log.xs[:, 0] - 1.0)})
    assert numbers["solves"] == len(log.solves) and numbers["late"] == len(log.solves)
    assert numbers["goal"]["smallest"] == pytest.approx(np.abs(log.xs[:, 0] - 1.0).min())
    assert list(numbers["response [ms]"]) == ["p50", "p95", "p99", "max"]
    assert numbers["iterations"]["max"] == 1.0
    off = log.xs - log.references
    miss = np.abs(log.xs[:, 0] - 1.0)
    assert numbers["goal"]["median"] == pytest.approx(np.median(miss))
    assert numbers["goal"]["rms"] == pytest.approx(np.linalg.norm(miss) / np.sqrt(len(miss)))
    rms = np.sqrt(np.mean(off**2))
    assert numbers["tracking error of the state"] == pytest.approx({"rms": rms, "largest": np.abs(off).max()})
    robot = log.statistics(FreeBody(chain(1)).manifold)
    for part, error in zip(("positions [rad, m]", "velocities [rad/s, m/s]"), off.T, strict=True):
        expected = {"rms": np.sqrt(np.mean(error**2)), "largest": np.abs(error).max()}
        assert robot[f"tracking error of {part}"] == pytest.approx(expected)


def test_failed_solves_have_no_iterations():
    failed, good = Solve(0.0, 0.0, 0.0, 0.01, 0, False, np.nan), Solve(0.0, 0.0, 0.0, 0.01, 7, True, 1.0)
    assert statistics_of([failed, good, failed], [], [])["iterations"] == dict.fromkeys(
        ("p50", "p95", "p99", "max"), 7.0
    )
    assert statistics_of([failed], [], [])["iterations"] == {}


def test_another_folder_is_no_run(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="contains no replanning run"):
        RunLog.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        RunLog.load(tmp_path / "nowhere")


def test_a_damaged_run_is_refused(tmp_path):
    """Arrays cut at any place or changed in one bit, and accounts without one of their keys."""
    log = noisy_run(charge=TICK).run(0.5)
    arrays, account = log.save(tmp_path)
    whole, contents, refused = arrays.read_bytes(), json.loads(account.read_text()), 0
    rng = np.random.default_rng(4)
    changed = [whole[:at] for at in rng.integers(0, len(whole), 20)]
    for at, bit in zip(rng.integers(0, len(whole), 100), rng.integers(0, 8, 100), strict=True):
        changed.append(whole[:at] + bytes([whole[at] ^ (1 << int(bit))]) + whole[at + 1 :])
    for content in changed:
        arrays.write_bytes(content)
        try:
            RunLog.load(tmp_path)  # bits of names, dates and permissions do not matter
        except ValueError as error:
            assert str(tmp_path) in str(error)
            refused += 1
    assert refused > 90
    arrays.write_bytes(whole)
    for key in ("format", "tick", "meta", "events"):
        account.write_text(json.dumps({k: v for k, v in contents.items() if k != key}))
        with pytest.raises(ValueError, match="contains no replanning run, or a modified one"):
            RunLog.load(tmp_path)
    account.write_text(json.dumps(contents))
    np.testing.assert_array_equal(RunLog.load(tmp_path).xs, log.xs)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("xs", lambda a: a[:-1]),
        ("us", np.ravel),
        ("estimates", lambda a: a[:, :-1]),
        ("lags", lambda a: a.astype(str)),
        ("times", lambda a: a[:0]),
        ("solves", lambda a: a[:, :-1]),
        ("solves", lambda a: np.full_like(a, np.inf)),
        ("spells", np.ravel),
        ("object: goal", lambda a: a[:-1]),
    ],
)
def test_arrays_that_do_not_agree_are_refused(tmp_path, name, change):
    log = noisy_run(charge=TICK).run(0.5)
    log.objects = {"goal": np.zeros((len(log.times), 3))}
    arrays, _ = log.save(tmp_path)
    with np.load(arrays) as data:
        found = dict(data)
    np.savez(arrays, **(found | {name: change(found[name])}))
    with pytest.raises(ValueError, match="contains no replanning run, or a modified one"):
        RunLog.load(tmp_path)


@pytest.mark.parametrize("change", [{"tick": -1.0}, {"tick": "fast"}, {"meta": []}, {"events": [1]}, {"groups": [[1]]}])
def test_accounts_of_another_kind_are_refused(tmp_path, change):
    _, account = noisy_run(charge=TICK).run(0.5).save(tmp_path)
    account.write_text(json.dumps(json.loads(account.read_text()) | change))
    with pytest.raises(ValueError, match="contains no replanning run, or a modified one"):
        RunLog.load(tmp_path)
    account.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="contains no replanning run, or a modified one"):
        RunLog.load(tmp_path)


def test_arrays_of_other_names_do_not_matter(tmp_path):
    """NumPy 2.0 takes a keyword of savez for an array."""
    log = noisy_run(charge=TICK).run(0.5)
    arrays, _ = log.save(tmp_path)
    with np.load(arrays) as data:
        np.savez(arrays, **data, other=np.array(False))
    np.testing.assert_array_equal(RunLog.load(tmp_path).xs, log.xs)


def test_a_run_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    log = noisy_run(charge=TICK).run(0.5)
    before = [path.read_bytes() for path in log.save(tmp_path)]

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(OSError, match="no space"):
        log.save(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in ("run.npz", "run.json")] == before
    assert len(list(tmp_path.iterdir())) == 2
