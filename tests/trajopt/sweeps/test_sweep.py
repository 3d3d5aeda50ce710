"""Studies: rows equal single solves; interruptions, kills, full disks and dead workers neither lose nor repeat rows."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor, Future
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sweep_cases import VARY, cart, deadly, judged, lasting, limited, refusing, swinging

import trajopt as to
from trajopt.sweeps import rows, run, stored
from trajopt.sweeps.dataset import Dataset
from trajopt.sweeps.stored import FOLDER, ForeignDataset

zarr = pytest.importorskip("zarr")
pytest.importorskip("filelock")

SEED, SHARD = 7, 4
TOLD = ("status", "success", "reason", "cost", "iterations", "kkt", "violation", "knots", "times", "xs", "us")


def study(out, n=10, make=cart, vary=VARY, **options):
    return to.sweep(make, vary, n, out, **{"seed": SEED, "solver": "slq", "workers": 0, "shard": SHARD, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that was never interrupted."""
    return study(tmp_path_factory.mktemp("whole"))


def assert_same(found, expected):
    """Assert that two studies have the same rows with the same results, except times."""
    assert list(found.finished) == list(expected.finished)
    for name in (*TOLD, *(f"vary/{key}" for key in expected.keys)):
        np.testing.assert_array_equal(found.group[name][:], expected.group[name][:], err_msg=name)


def test_rows_are_single_solves_at_the_drawn_values(whole):
    variations = run.Variations(VARY, SEED)
    assert list(whole.finished) == list(range(10))
    trajectories = whole.trajectories()
    for row in (0, 9):
        ocp = cart(**variations.values(row))
        single = to.solve(ocp, solver="slq", check=False)
        np.testing.assert_array_equal(trajectories.xs[row], single.xs)
        np.testing.assert_array_equal(trajectories.us[row], single.us)
        assert whole.group["cost"][row] == single.cost and whole.group["status"][row] == single.status.code
    assert {"python", "numpy", "zarr"} <= set(whole.sessions[0])
    assert whole.study["seed"] == SEED and whole.study["vary"]["goal"] == "uniform(-1, 1)"


def test_a_study_that_was_stopped_goes_on_and_one_that_is_finished_does_nothing(whole, tmp_path):
    solved = []

    def stopping(progress):
        if progress.done >= 2 * SHARD and progress.total == 10 and not solved:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(tmp_path, progress=stopping)
    assert list(to.Sweep(tmp_path).finished) == list(range(8))
    found = study(tmp_path, progress=lambda p: solved.append((p.before, p.done)))
    assert solved == [(8, 8), (8, 10)]
    assert_same(found, whole)
    study(tmp_path, progress=solved.append, shard=None)
    assert (solved[2].before, solved[2].done, len(solved)) == (10, 10, 3)
    with pytest.raises(ForeignDataset, match=f"has shards of {SHARD} rows, .* remove the shard size 9"):
        study(tmp_path, shard=9)


def test_a_killed_study_loses_and_repeats_nothing(whole, tmp_path):
    """The process is killed while it writes its third shard; the resumed study writes this shard again."""
    script = f"""
import os, signal
from sweep_cases import VARY, cart
import trajopt as to
from trajopt.sweeps.dataset import Dataset
write, calls = Dataset._write, []
def killing(self, name, rows, values):
    calls.append(name)
    write(self, name, rows, values)
    if rows.start == {2 * SHARD} and name == "xs":
        os.kill(os.getpid(), signal.SIGKILL)
Dataset._write = killing
to.sweep(cart, VARY, 10, {str(tmp_path)!r}, seed={SEED}, solver="slq", workers=0, shard={SHARD})
"""
    places = [str(Path(to.__file__).parents[1]), str(Path(__file__).parents[2] / "cases")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list(to.Sweep(tmp_path).finished) == list(range(8))
    done = []
    found = study(tmp_path, progress=lambda p: done.append(p.before))
    assert done[0] == 8
    assert_same(found, whole)


def test_a_full_disk_ends_with_the_finished_part_intact(whole, tmp_path, monkeypatch):
    write_atomically = stored.write_atomically

    def full(path, write):
        if "/xs/c/1" in path.as_posix():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomically(path, write)

    monkeypatch.setattr(stored, "write_atomically", full)
    with pytest.raises(OSError, match="No space left .* run the same study again"):
        study(tmp_path)
    monkeypatch.undo()
    left = to.Sweep(tmp_path)
    assert list(left.finished) == list(range(SHARD))
    np.testing.assert_array_equal(left.trajectories().xs, whole.trajectories().xs[:SHARD])
    assert_same(study(tmp_path), whole)


def test_a_study_grows(whole, tmp_path):
    study(tmp_path, n=6)
    assert_same(study(tmp_path, n=10), whole)
    assert list(study(tmp_path, n=3).finished) == list(range(10))


def test_another_study_is_refused_and_says_where_it_differs(tmp_path):
    study(tmp_path, n=1)
    with pytest.raises(ForeignDataset, match="differs in seed: choose another folder"):
        study(tmp_path, n=1, seed=8)
    with pytest.raises(ForeignDataset, match="differs in vary.goal"):
        study(tmp_path, n=1, vary={**VARY, "goal": "uniform(0, 1)"})
    with pytest.raises(ForeignDataset, match="differs in the code or data of the function, the name of the function"):
        study(tmp_path, n=1, make=refusing)


class Shifted:
    """Creates carts with different goals."""

    def __init__(self, by):
        self.by = by

    def __call__(self, goal):
        return cart(goal + self.by)

    def make(self, goal):
        return self(goal)


def closed(by):
    return lambda goal: cart(goal + by)


def defaulted(by):
    def make(goal, by=by):
        return cart(goal + by)

    return make


@pytest.mark.parametrize(
    "carrying",
    [
        lambda by: partial(cart, weight=by),
        lambda by: partial(closed(by)),
        lambda by: partial(cart, start=np.array([by, 0.0])),
        Shifted,
        lambda by: Shifted(by).make,
        closed,
        defaulted,
        lambda by: closed(Shifted(by)),
    ],
)
def test_functions_are_distinguished_by_the_values_they_carry(carrying):
    assert run.identity(carrying(1.0)) == run.identity(carrying(1.0)) != run.identity(carrying(2.0))


def test_two_lambdas_of_one_line_are_two_functions():
    near, far = (lambda goal: cart(0.1 * goal)), (lambda goal: cart(10.0 * goal))
    assert run.identity(near) != run.identity(far)


def test_a_function_of_unknown_content_asks_for_an_identity():
    make = partial(cart, start=threading.Lock())
    with pytest.raises(ValueError, match="attribute `identity`"):
        run.identity(make)
    make.identity = "one"
    assert run.identity(make) == "one"


def test_an_error_in_a_batch_of_rows_leaves_them_to_single_solves(whole, tmp_path, monkeypatch):
    def solve_batch(*_, **__):
        raise RuntimeError("no lanes")

    monkeypatch.setattr(rows, "can_batch", lambda problem: True)
    monkeypatch.setattr(rows, "solve_batch", solve_batch)
    assert_same(study(tmp_path), whole)


def test_a_study_without_a_row_gives_way(tmp_path):
    with pytest.raises(TypeError, match="gaol"):
        study(tmp_path, n=2, vary={"gaol": "uniform(-1, 1)"})
    assert study(tmp_path, n=2).study["vary"].keys() == VARY.keys()


# -- shards that are not what was written -----------------------------------------------------------------------

READERS = (
    lambda found: found.scalars(),
    lambda found: found.trajectories(),
    lambda found: [found.items()[row] for row in range(10)],
)
"""Arrays tested one by one, so that each mismatch is detected by itself."""


def all_of(folder, number=1):
    """Return the files of a shard, by array."""
    names = sorted(path.parent for path in (folder / FOLDER).rglob("c"))
    found = {path.relative_to(folder / FOLDER).as_posix(): path / "c" / str(number) for path in names}
    return {name: path for name, path in found.items() if path.exists()}


def put(source, target):
    """Replace a file or folder by another one."""
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)


def assert_refused(folder, name, whole):
    """The study can neither be read nor resumed, except after its remedy."""
    message = f"{name} of rows 4 to 7 in .* {name}/c/1 .* delete .*mark/c/1 and run the study again"
    with pytest.raises(ForeignDataset, match=message):
        for read in READERS:
            read(to.Sweep(folder))
    with pytest.raises(ForeignDataset, match=message):
        study(folder)
    mark = folder / FOLDER / "mark" / "c" / "1"
    shutil.rmtree(mark) if mark.is_dir() else mark.unlink()
    assert list(to.Sweep(folder).finished) == [0, 1, 2, 3, 8, 9]
    assert_same(study(folder), whole)


@pytest.fixture
def mine(whole, tmp_path):
    """A copy of a study for a test to damage."""
    return shutil.copytree(whole.folder, tmp_path / "mine")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Another study with shards of the same shape."""
    return study(tmp_path_factory.mktemp("theirs"), make=partial(cart, weight=2.0), vary={**VARY, "weight": [2.0]})


@pytest.mark.parametrize("other", ["study", "place"])
@pytest.mark.parametrize("with_marks", [True, False])
def test_a_shard_of_elsewhere_is_refused(other, with_marks, whole, theirs, mine):
    source = all_of(theirs.folder) if other == "study" else all_of(whole.folder, 0)
    for name, target in all_of(mine).items():
        if name != "mark" or with_marks:
            put(source[name], target)
    with pytest.raises(ForeignDataset, match="of rows 4 to 7 in"):
        to.Sweep(mine).scalars()
    assert_refused(mine, "(vary/goal|vary/weight)", whole)


@pytest.mark.parametrize("name", ["cost", "vary/weight", "xs", "us"])
def test_an_array_of_another_study_is_refused(name, whole, theirs, mine):
    put(all_of(theirs.folder)[name], all_of(mine)[name])
    assert_refused(mine, name, whole)


@pytest.mark.parametrize("name", ["cost", "reason", "success", "knots", "times", "us"])
def test_a_file_that_is_gone_is_noticed(name, whole, mine):
    path = all_of(mine)[name]
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert_refused(mine, name, whole)


def test_an_array_that_is_gone_is_noticed(mine):
    shutil.rmtree(mine / FOLDER / "xs")
    with pytest.raises(ForeignDataset, match="xs of rows 0 to 3"):
        to.Sweep(mine).trajectories()
    with pytest.raises(ForeignDataset, match="xs of rows 0 to 3"):
        study(mine)


@pytest.mark.parametrize("name", ["cost", "status", "vary/goal", "xs", "mark"])
@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: bytes(len(b))])
def test_a_damaged_file_is_reported_as_such(name, damage, whole, mine):
    path = all_of(mine)[name]
    file = next(p for p in (path, *path.rglob("*")) if p.is_file())
    file.write_bytes(damage(file.read_bytes()))
    assert_refused(mine, name, whole)


@pytest.mark.parametrize("name", ["zarr.json", "cost/zarr.json"])
@pytest.mark.parametrize("text", ["", '{"zarr_format": 3,'])
def test_a_damaged_description_is_reported_as_such(name, text, mine):
    (mine / FOLDER / name).write_text(text)
    for read in (lambda at: to.Sweep(at).scalars(), study):
        with pytest.raises(ForeignDataset, match=f"{name} cannot be read .* restore it, or choose another folder"):
            read(mine)


@pytest.mark.parametrize(
    "change",
    [
        *({"attributes": {key: None}} for key in ("format_version", "digest", "study", "shard", "sessions")),
        *({"attributes": {"shard": value}} for value in (0, -4, 1.5, "4", True, 2**40)),
        {"attributes": {"format_version": "2"}},
        {"attributes": {"arrays": [1]}},
        {"attributes": {"sessions": ["1"]}},
        {"attributes": 3},
        {"node_type": "array"},
    ],
)
def test_a_changed_description_is_refused(change, mine):
    file = mine / FOLDER / "zarr.json"
    found = json.loads(file.read_text())
    inner = change.get("attributes")
    if isinstance(inner, dict):
        found["attributes"] = {k: v for k, v in (found["attributes"] | inner).items() if v is not None}
    else:
        found |= change
    file.write_text(json.dumps(found))
    with pytest.raises(ForeignDataset):
        to.Sweep(mine)


@pytest.mark.parametrize("name", ["mark", "xs", "cost"])
@pytest.mark.parametrize("rows", [10**12, 0])
def test_arrays_that_claim_other_sizes_are_refused_before_memory_is_taken(name, rows, mine):
    file = mine / FOLDER / name / "zarr.json"
    found = json.loads(file.read_text())
    found["shape"][0] = rows
    file.write_text(json.dumps(found))
    if name == "mark" and not rows:
        assert not len(to.Sweep(mine).finished)
        return
    with pytest.raises(ForeignDataset, match=f"{name}/zarr.json cannot be read .*(claims|the study)"):
        to.Sweep(mine)


def test_a_dataset_of_another_study_is_rejected_by_its_definition(mine):
    group = zarr.open_group(mine / FOLDER, mode="r+")
    group.attrs["study"] = {**group.attrs["study"], "seed": SEED + 1}
    for at in (to.Sweep, study):
        with pytest.raises(ForeignDataset, match="belongs to another study"):
            at(mine)


def test_rows_that_are_empty_have_no_files_and_miss_none(tmp_path):
    """Rows without a solution have no trajectories, also after more rows, wider rows, and another interruption."""
    first = study(tmp_path, n=2, make=lasting, vary={"goal": [1.0], "knots": "each(-1, 3, 9)"}, shard=2)
    assert list(first.scalars()["status"]) == ["error", "converged"]
    for n in (3, 4, 9):
        found = study(tmp_path, n=n, make=lasting, vary={"goal": [1.0], "knots": "each(-1, 3, 9)"}, shard=2)
    assert list(found.scalars()["knots"]) == [0, 3, 9] * 3
    assert found.trajectories(success=False).xs.shape == (9, 10, 2) and len(found.trajectories().rows) == 6


def test_what_a_killed_process_left_of_a_row_is_not_taken_for_its_result(tmp_path, monkeypatch):
    """The row was solved but not marked; now it has no solution and no trajectory."""
    write = Dataset._write

    def killed(self, name, rows, values):
        if name == "mark" and rows.start == 1:
            raise KeyboardInterrupt
        write(self, name, rows, values)

    options = {"make": lasting, "vary": {"goal": [1.0], "knots": [3]}, "shard": 2}
    study(tmp_path, n=1, **options)
    monkeypatch.setattr(Dataset, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        study(tmp_path, n=2, **options)
    monkeypatch.undo()
    monkeypatch.setattr(run, "solve_rows", lambda _, rows: [run.failed(row, "died", "no memory") for row in rows])
    found = study(tmp_path, n=2, **options)
    assert list(found.scalars()["status"]) == ["converged", "died"]
    assert np.isnan(found.trajectories(success=False).xs[1]).all()
    assert study(tmp_path, n=2, **options).n == 2


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux lists the open files of a process")
def test_each_file_is_on_the_disk_before_its_mark(tmp_path, monkeypatch):
    """Each file is synced under its final name; the mark is the last file of its shard."""
    events, fsync, replace = [], os.fsync, Path.replace

    def settling(descriptor):
        events.append(("on disk", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def renaming(self, target):
        events.append(("named", str(target)))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", settling)
    monkeypatch.setattr(Path, "replace", renaming)
    study(tmp_path, n=1)
    files = [Path(path) for kind, path in events if kind == "named" and "/c/" in path]
    assert len(files) >= 16 and files[-1].relative_to(tmp_path / FOLDER).parts[0] == "mark"
    for file in files:
        at = events.index(("named", str(file)))
        assert events[at - 1][0] == "on disk" and Path(events[at - 1][1]).name.startswith(f".{file.name}.")
        assert events[at + 1] == ("on disk", str(file.parent))
        settled = {path for kind, path in events[: at + 2] if kind == "on disk"}
        assert {str(folder) for folder in file.parents if folder.is_relative_to(tmp_path)} <= settled


def test_a_dataset_of_the_first_version_is_read_but_not_gone_on_with(whole, mine):
    group = zarr.open_group(mine / FOLDER, mode="r+")
    marks = group["mark"][:, 0]
    group.attrs.update({"format_version": 1})
    del group.attrs["arrays"], group["duration"]
    group.create_array("mark", data=marks, chunks=(SHARD,), overwrite=True)
    found = to.Sweep(mine)
    assert list(found.finished) == list(range(10)) and "duration" not in found.scalars()
    np.testing.assert_array_equal(found.trajectories().xs, whole.trajectories().xs)
    assert found.items()[2]["cost"] == whole.items()[2]["cost"]
    with pytest.raises(ForeignDataset, match="another version of this package.* choose another folder"):
        study(mine)


def test_two_processes_cannot_write_one_study(tmp_path):
    def meanwhile(progress):
        if progress.done == 0:
            with pytest.raises(OSError, match="another process is writing"):
                study(tmp_path, n=5)

    assert len(study(tmp_path, n=4, progress=meanwhile).finished) == 4


def test_failures_are_rows_with_their_reason(tmp_path):
    found = study(tmp_path, n=8, make=refusing, gains=True)
    goals, table = found.values("goal"), found.scalars()
    assert (goals < 0).any() and (goals >= 0).any()
    np.testing.assert_array_equal(table["success"], goals >= 0)
    for row in np.flatnonzero(goals < 0):
        assert table["status"][row] == "error" and table["reason"][row] == f"ValueError: {goals[row]} is on the left"
        assert np.isnan(found.group["xs"][int(row)]).all()
    assert found.group["K"].shape == (8, 5, 1, 2)
    assert list(found.trajectories().rows) == list(np.flatnonzero(goals >= 0))
    assert len(found.trajectories(success=False).rows) == 8


def test_an_optimum_that_does_not_do_what_was_asked_for_is_no_success(tmp_path):
    found = study(tmp_path, n=8, make=judged, vary={"goal": VARY["goal"]})
    table, left = found.scalars(), found.values("goal") < 0
    assert left.any() and not left.all()
    np.testing.assert_array_equal(table["success"], ~left)
    np.testing.assert_array_equal(table["status"], np.where(left, "goal_missed", "converged"))
    for row in np.flatnonzero(left):
        message = f"A goal is missed: ends at {found.group['xs'][int(row)][-1, 0]:.3f}; on the left."
        assert table["reason"][row].startswith(message)
    assert list(found.trajectories().rows) == list(np.flatnonzero(~left))


def test_if_no_row_can_be_built_the_first_error_is_raised(tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'gaol'"):
        study(tmp_path, vary={"gaol": "uniform(0, 1)"})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            "a problem",
            "returned a str: return an OCP, an OCP and a guess, or a SweepProblem",
        ),
        (None, "returned a NoneType"),
        (("a", "b"), r"returned a tuple \(str, str\)"),
        (to.SweepProblem("a problem"), "returned a SweepProblem"),
    ],
)
def test_a_wrong_return_value_is_reported_with_the_expected_types(made, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        study(tmp_path, make=lambda goal: made, vary={"goal": "uniform(0, 1)"})


def test_a_problem_may_come_with_its_guess(tmp_path):
    def make(goal):
        ocp = cart(goal)
        return ocp, to.constant_guess(ocp)

    assert study(tmp_path, n=1, make=make, vary={"goal": "uniform(0, 1)"}).scalars()["success"].all()


def test_rows_of_several_lengths_lie_in_one_array(tmp_path):
    found = study(tmp_path, n=8, vary={"goal": "uniform(0, 1)", "knots": "each(3, 9)"}, shard=1)
    knots = found.scalars()["knots"]
    assert list(knots) == [3, 9] * 4 and found.group["xs"].shape == (8, 10, 2)
    trajectories = found.trajectories()
    for row in range(8):
        assert np.isfinite(trajectories.xs[row, : knots[row] + 1]).all()
        assert np.isnan(trajectories.xs[row, knots[row] + 1 :]).all()
        assert found.items()[row]["us"].shape == (knots[row], 1)


def test_the_readers_agree(whole):
    table = whole.scalars()
    np.testing.assert_array_equal(table["start[1]"], whole.values("start")[:, 1])
    assert list(table.index) == list(range(10)) and table["success"].all()
    items, trajectories = whole.items(rows=[4, 2]), whole.trajectories(rows=[4, 2])
    assert len(items) == 2 and list(trajectories.rows) == [4, 2]
    for again in (items, pickle.loads(pickle.dumps(items))):
        item = again[1]
        np.testing.assert_array_equal(item["xs"], trajectories.xs[1])
        np.testing.assert_array_equal(item["start"], whole.values("start")[2])
        assert item["row"] == 2 and item["cost"] == table["cost"][2]
    with pytest.raises(IndexError):
        items[2]
    with pytest.raises(IndexError, match="row 99 is not among"):
        whole.trajectories(rows=[99])


def test_a_folder_without_a_study_is_no_study(tmp_path):
    with pytest.raises(FileNotFoundError, match="no study"):
        to.Sweep(tmp_path)
    zarr.create_group(tmp_path / FOLDER)
    with pytest.raises(ForeignDataset, match="is not the dataset of a study"):
        to.Sweep(tmp_path)


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "filelock", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'urdf-trajopt\[sweep\]'"):
        study(tmp_path, n=1)


@pytest.mark.parametrize(
    ("changes", "message"), [({"n": 0}, "n = 0"), ({"shard": 0}, "shard = 0"), ({"seed": -1}, "-1")]
)
def test_bad_numbers_are_refused(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        study(tmp_path, **changes)


def test_a_varied_value_that_is_called_as_a_result_hides_none(tmp_path):
    found = study(tmp_path, n=2, make=lambda cost: cart(cost), vary={"cost": "uniform(1, 2)"})
    table, single = found.scalars(), to.solve(cart(found.values("cost")[0]), solver="slq")
    assert table["cost"][0] == single.cost != table["vary/cost"][0] == found.values("cost")[0]
    item = found.items()[0]
    assert item["cost"] == single.cost and item["vary/cost"] == table["vary/cost"][0]


def test_ends_of_ranges_may_be_a_list_and_a_number(tmp_path):
    found = study(tmp_path, n=3, vary={"goal": "uniform(-1, 1)", "start": "normal([0, 1], 0.1)"})
    drawn = run.Variations({"start": "normal([0, 1], 0.1)"}, SEED)
    np.testing.assert_array_equal(found.values("start"), [drawn.values(row)["start"] for row in range(3)])


def test_rows_in_lanes_report_their_defects(tmp_path):
    """Multiple shooting that is stopped early leaves defects."""
    options = to.solver_options("gnms", max_iterations=1)
    found = study(
        tmp_path, n=3, make=partial(swinging, engine="compiled"), vary={"q": "uniform(1, 2)"}, options=options
    )
    trajectories = found.trajectories(success=False)
    for row, xs, us in zip(trajectories.rows, trajectories.xs, trajectories.us, strict=True):
        step = swinging(found.values("q")[row]).phases[0].dynamics
        gap = np.abs(step.step(xs[:-1], us, 0.0, 0.1) - xs[1:]).max()
        assert found.group["violation"][row] == pytest.approx(gap, rel=1e-9) and gap > 1e-4


@pytest.mark.parametrize("solver", ["fddp", "ddp", "ipm", "auto"])
def test_rows_of_one_structure_are_solved_together_as_alone(solver, tmp_path, monkeypatch):
    """Also with constraints; one row has a posture that its velocity cannot reach."""
    vary = {"angle": "uniform(-0.1, 0.1)", "speed": [1.2, 1.6, 0.3]}
    options = {"n": 6, "make": limited, "vary": vary, "solver": None}
    options["options"] = to.solver_options(solver, max_iterations=60)
    found = study(tmp_path / "together", **options)
    batches, solve_batch = [], rows.solve_batch
    monkeypatch.setattr(rows, "solve_batch", lambda *a, **k: batches.append(len(a[0])) or solve_batch(*a, **k))
    study(tmp_path / "again", **options)
    assert batches == [4, 2]  # two shards
    monkeypatch.setattr(rows, "can_batch", lambda problem: False)
    alone = study(tmp_path / "alone", **options)
    assert not found.group["success"][:].all() and found.group["success"][:].any()
    for name in ("status", "success", "iterations"):
        np.testing.assert_array_equal(found.group[name][:], alone.group[name][:], err_msg=name)
    done = found.group["success"][:]
    for name, atol in (("cost", 1e-9), ("xs", 1e-6), ("us", 1e-5), ("violation", 1e-8), ("kkt", 1e-8)):
        np.testing.assert_allclose(found.group[name][:][done], alone.group[name][:][done], rtol=1e-6, atol=atol)
    for own, other in zip(found.group["reason"][:], alone.group["reason"][:], strict=True):
        assert own.split(":")[0] == other.split(":")[0]


# -- workers -------------------------------------------------------------------------------------------------


def test_a_row_that_kills_its_process_is_a_failure_and_stops_no_other(tmp_path):
    pytest.importorskip("loky")
    found = study(tmp_path, n=4, make=deadly, vary={"goal": "each(1, 2, 3, 4)"}, workers=1, shard=2)
    table = found.scalars()
    assert list(table["status"]) == ["converged", "converged", "died", "converged"]
    assert "died" in table["reason"][2]


def test_workers_that_die_while_idle_are_restarted():
    """The pool is broken when the next rows are submitted; no row is lost."""

    class Broken:
        max_jobs = 1

        def __init__(self):
            self.refused = 0

        def submit(self, job, *arguments):
            if self.refused % 2 == 0:
                self.refused += 1
                raise BrokenExecutor("a worker has died")
            self.refused += 1
            future = Future()
            future.set_result(job(*arguments))
            return future

        def died(self, error):
            return isinstance(error, BrokenExecutor)

    own = run.Study(cart, run.Variations(VARY, SEED), "slq")
    solved = partial(run.solve_rows, own)
    found = [result.row for _, results in run.run_jobs(Broken(), solved, [range(2), range(2, 3)]) for result in results]
    assert sorted(found) == [0, 1, 2]


def test_a_cluster_whose_worker_is_killed_in_the_middle_finds_the_same(whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        killed = []

        def killing(progress):
            if 0 < progress.done < 10 and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        found = study(tmp_path, workers=None, scheduler=client, shard=2, progress=killing)
        threads = set(client.run(lambda: os.environ["TRAJOPT_THREADS"]).values())
    assert killed and threads == {"1"}
    assert_same(found, whole)


def test_workers_of_several_threads_are_refused(tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        with pytest.raises(ValueError, match="--nthreads 1"):
            study(tmp_path, n=1, workers=None, scheduler=client)
        with pytest.raises(ValueError, match="remove one of the two options"):
            study(tmp_path, n=1, workers=2, scheduler=client)
