"""Solutions, their files, and guesses made from them."""

import json
import random
import tracemalloc
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import textbook_systems as textbook
from slq_solve import solve

from dynamics_backends.registry import make_backend
from experiments.attacks.archives import mutated_solution
from trajopt import (
    OCP,
    SampledSystem,
    Solution,
    SolutionFileError,
    constant_guess,
    control_cost,
    free_time,
    interpolated_guess,
    quasi_static_guess,
    resampled_guess,
    state_cost,
)
from trajopt.results import archive


def _ocp(horizon=20, dt=0.1):
    system = textbook.spinning_body()
    goal = system.manifold.integrate(system.manifold.identity()[:, None], np.r_[1.0, 0.5, 0, 0, 0, 0][:, None])[:, 0]
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "rk4")
    terminal = [state_cost(system.manifold, goal, 10.0)]
    return OCP.single_phase(dynamics, system.manifold.identity(), horizon, dt, [control_cost(3)], terminal, name="slew")


@pytest.fixture(scope="module")
def solution():
    return solve(_ocp())


def test_numbers_of_numpy_may_stand_in_meta(tmp_path):
    s = solve(_ocp())
    values = {"seed": np.int64(7), "share": np.float32(0.5), "goal": np.arange(3.0), "on": np.bool_(True)}
    saved = Solution.load(replace(s, meta={**s.meta, **values}).save(tmp_path / "s.npz"))
    assert {key: saved.meta[key] for key in values} == {"seed": 7, "share": 0.5, "goal": [0.0, 1.0, 2.0], "on": True}
    with pytest.raises(TypeError, match="meta contains a set, which a solution file cannot store; use numbers"):
        replace(s, meta={"seen": {1}}).save(tmp_path / "t.npz")
    assert not (tmp_path / "t.npz").exists()


def test_shapes_and_account(solution):
    assert solution.xs.shape == (21, 7)
    assert solution.us.shape == solution.k.shape == (20, 3)
    assert solution.K.shape == (20, 3, 6)
    np.testing.assert_allclose(solution.times, 0.1 * np.arange(21))
    assert len(solution.history) == solution.iterations + 1
    assert solution.history[-1].cost == solution.cost
    assert list(solution.time_total) == ["derivatives", "backward", "rollout", "other"]
    assert solution.meta["problem"] == "slew"
    assert solution.meta["backends"] == ["forward_ad"]
    assert solution.meta["options"]["shooting"] == "all"


def test_policy_holds_the_trajectory_against_a_disturbance(solution):
    """Closed loop from a disturbed start ends nearer to the planned end than open loop."""
    ocp = _ocp()
    manifold, step = ocp.manifold, ocp.phases[0].dynamics.step
    disturbed = manifold.integrate(ocp.x0[:, None], np.r_[0.2, -0.1, 0.1, 0.1, 0, 0][:, None])[:, 0]
    distance = {}
    for closed in (False, True):
        x = disturbed
        for k, u in enumerate(solution.us):
            off = manifold.difference(solution.xs[k][:, None], x[:, None])[:, 0]
            x = step(x[None], (u + closed * solution.K[k] @ off)[None], ocp.times[k], 0.1)[0]
        distance[closed] = np.linalg.norm(manifold.difference(solution.xs[-1][:, None], x[:, None]))
    assert distance[True] < 0.5 * distance[False]


# -- files --------------------------------------------------------------------------------------------------------------


def test_file_gives_back_everything(solution, tmp_path):
    loaded = Solution.load(solution.save(tmp_path / "slew.npz"))
    for name in ("xs", "us", "K", "k", "times"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(solution, name))
    assert loaded.status == solution.status
    assert loaded.cost == solution.cost
    assert loaded.iterations == solution.iterations
    assert loaded.history == solution.history
    assert loaded.meta == json.loads(json.dumps(dict(solution.meta)))


def test_file_is_readable_without_this_package(solution, tmp_path):
    with np.load(solution.save(tmp_path / "slew.npz"), allow_pickle=False) as data:
        metadata = json.loads(str(data["metadata"]))
        assert data["xs"].shape == (21, 7)
    assert metadata["format"] == "trajopt.solution"
    assert "quaternion x y z w" in metadata["conventions"]["state"]
    assert metadata["conventions"]["policy"].startswith("u = us + K (x (-) xs), within the bounds on u")
    assert metadata["versions"]["numpy"] == np.__version__


def test_save_leaves_no_other_file_and_keeps_the_old_one_if_it_fails(solution, tmp_path, monkeypatch):
    path = solution.save(tmp_path / "slew.npz")
    before = path.read_bytes()

    def broken(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(OSError, match="no space"):
        solution.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["slew.npz"]


def test_an_error_of_saving_names_the_target(solution, tmp_path):
    path = tmp_path / "slew.npz"
    path.mkdir()
    with pytest.raises(OSError) as caught:
        solution.save(path)
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as missing:
        solution.save(tmp_path / "nowhere" / "slew.npz")
    assert missing.value.filename == str(tmp_path / "nowhere" / "slew.npz")


def _truncated(path):
    path.write_bytes(path.read_bytes()[:-200])


def _damaged(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    path.write_bytes(data)


def _text(path):
    path.write_text("not an archive")


def _empty(path):
    path.write_bytes(b"")


def _other_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


def _other_arrays(path):
    np.savez(path, a=np.zeros(3))


def _array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


@pytest.mark.parametrize("spoil", [_truncated, _damaged, _text, _empty, _other_archive, _other_arrays, _array])
def test_foreign_and_broken_files_are_refused(solution, tmp_path, spoil):
    path = solution.save(tmp_path / "slew.npz")
    spoil(path)
    with pytest.raises(
        SolutionFileError, match=r"slew.npz is (not a trajopt|an incomplete or damaged) solution file"
    ) as caught:
        Solution.load(path)
    assert "pickle" not in str(caught.value)


def test_pickles_are_never_opened(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, xs=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(SolutionFileError):
        Solution.load(path)


def _rewritten(solution, path, **changes):
    solution.save(path)
    with np.load(path) as data:
        arrays = dict(data)
    metadata = json.loads(str(arrays["metadata"])) | changes
    np.savez(path, **(arrays | {"metadata": np.array(json.dumps(metadata))}))


def test_other_formats_and_newer_versions_are_named(solution, tmp_path):
    path = tmp_path / "slew.npz"
    _rewritten(solution, path, format="other")
    with pytest.raises(SolutionFileError, match="lack the format 'trajopt.solution'"):
        Solution.load(path)
    _rewritten(solution, path, format_version=99)
    with pytest.raises(SolutionFileError, match="newer version"):
        Solution.load(path)


def test_the_first_format_is_read(solution, tmp_path):
    path = tmp_path / "slew.npz"
    _rewritten(solution, path, format_version=1, curvature=["exact"] * len(solution.history), hessian=None)
    assert {record.hessian for record in Solution.load(path).history} == {"exact"}


def test_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Solution.load(tmp_path / "nowhere.npz")


# -- hostile files ------------------------------------------------------------------------------------------------------


def _arrays_of(solution, path):
    with np.load(solution.save(path)) as data:
        return dict(data)


def _without(*keys):
    def change(metadata):
        at = metadata
        for key in keys[:-1]:
            at = at[key]
        del at[keys[-1]]

    return change


def _with(value, *keys):
    def change(metadata):
        at = metadata
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


REQUIRED = ("format_version", "status", "iterations", "history_columns", "hessian", "phase_times", "meta")
METADATA = {
    **{f"without {key}": _without(key) for key in REQUIRED},
    "without a code": _without("status", "code"),
    "without a message": _without("status", "message"),
    "unknown code": _with("solved", "status", "code"),
    "unknown key of the status": _with(1, "status", "color"),
    "status of another kind": _with([], "status"),
    "message of another kind": _with(3, "status", "message"),
    "iterations of another kind": _with("three", "iterations"),
    "iterations below zero": _with(-1, "iterations"),
    "version of another kind": _with("2", "format_version"),
    "fewer columns": _without("history_columns", 0),
    "unknown columns": _with("color", "history_columns", 0),
    "fewer hessians": _without("hessian", 0),
    "hessian of another kind": _with(7, "hessian", 0),
    "times of another kind": _with({"rollout": "long"}, "phase_times", 0),
    "meta of another kind": _with("meta", "meta"),
    "clock of another kind": _with(["a"], "meta", "clock"),
    "solve time of another kind": _with("long", "meta", "solve_time"),
    "backends of another kind": _with(3, "meta", "backends"),
    "model of another kind": _with("ur5", "meta", "model"),
    "robot of another kind": _with("ur5", "robot"),
    "robot without bodies": _with({"name": "r", "frames": [], "coupling": None}, "robot"),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_are_changed_are_refused(solution, tmp_path, case):
    path = tmp_path / "slew.npz"
    arrays = _arrays_of(solution, path)
    metadata = json.loads(str(arrays["metadata"]))
    METADATA[case](metadata)
    np.savez(path, **(arrays | {"metadata": np.array(json.dumps(metadata))}))
    with pytest.raises(
        SolutionFileError, match=r"slew.npz is an incomplete or damaged solution file \(.+\); solve and save again"
    ):
        Solution.load(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "", "7", "null"])
def test_metadata_that_are_no_table_or_nested_deep_are_refused(solution, tmp_path, text):
    path = tmp_path / "slew.npz"
    np.savez(path, **(_arrays_of(solution, path) | {"metadata": np.array(text)}))
    with pytest.raises(SolutionFileError):
        Solution.load(path)
    metadata = json.loads(str(_arrays_of(solution, path)["metadata"]))
    nested = json.dumps(metadata)[:-1] + f', "x": {text if text.endswith("]") else "[" * 60 + "]" * 60}}}'
    np.savez(path, **(_arrays_of(solution, path) | {"metadata": np.array(nested)}))
    with pytest.raises(SolutionFileError, match="levels"):
        Solution.load(path)


ARRAYS = {
    "fewer states": ("xs", lambda a: a[:-1]),
    "more states": ("xs", lambda a: np.vstack([a, a])),
    "flat states": ("xs", np.ravel),
    "states without entries": ("xs", lambda a: a[:, :0]),
    "no knots": ("us", lambda a: a[:0]),
    "another number of controls": ("k", lambda a: a[:, :-1]),
    "gains of fewer knots": ("K", lambda a: a[:-1]),
    "gains of other controls": ("K", lambda a: a[:, :-1]),
    "times of fewer knots": ("times", lambda a: a[:-1]),
    "times that fall": ("times", lambda a: a[::-1]),
    "times that are not finite": ("times", lambda a: a * np.nan),
    "several costs": ("cost", lambda a: np.array([a, a])),
    "fewer records": ("history", lambda a: a[:-1]),
    "fewer columns": ("history", lambda a: a[:, :-1]),
    "iterations that are not finite": ("history", lambda a: a * np.nan),
    "complex": ("xs", lambda a: a.astype(complex)),
    "texts": ("us", lambda a: a.astype(str)),
    "dates": ("us", lambda a: np.zeros(a.shape, "M8[s]")),
    "bytes": ("metadata", lambda a: a.astype(bytes)),
    "several texts": ("metadata", lambda a: np.array([a, a])),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_do_not_agree_are_refused(solution, tmp_path, case):
    path, (name, change) = tmp_path / "slew.npz", ARRAYS[case]
    arrays = _arrays_of(solution, path)
    np.savez(path, **(arrays | {name: change(arrays[name])}))
    with pytest.raises(
        SolutionFileError, match=r"slew.npz is an incomplete or damaged solution file \(.+\); solve and save again"
    ):
        Solution.load(path)


def test_archives_of_other_programs_are_no_damaged_solutions(tmp_path):
    """Such as the run.npz of `trajopt replan`."""
    np.savez(tmp_path / "run.npz", xs=np.zeros((3, 2)), us=np.zeros((3, 1)), times=np.zeros(3))
    with pytest.raises(
        SolutionFileError, match="run.npz is not a trajopt solution file; give the solution.npz of a solve"
    ):
        Solution.load(tmp_path / "run.npz")


@pytest.mark.parametrize("name", ["xs", "us", "K", "k", "times", "cost", "history", "metadata"])
def test_missing_arrays_are_named(solution, tmp_path, name):
    path = tmp_path / "slew.npz"
    arrays = _arrays_of(solution, path)
    del arrays[name]
    np.savez(path, **arrays)
    with pytest.raises(SolutionFileError, match=f"it has no array '{name}'"):
        Solution.load(path)


def _npy(shape, descr="<f8", content=b"", order=False):
    head = repr({"descr": descr, "fortran_order": order, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + content


HEADERS = {
    "30 GB": _npy((4_000_000_000,)),
    "more than there is": _npy((10**9, 10**9, 10**9)),
    "less than there is": _npy((1, 1), content=bytes(80)),
    "negative": _npy((-1, 7), content=bytes(56)),
    "objects": _npy((21, 7), "|O", bytes(1176)),
    "long texts": _npy((1,), "<U1000000000"),
    "no type": _npy((21, 7), "nothing", bytes(1176)),
    "records": _npy((1,), [("a", "<f8")], bytes(8)),
    "order of another kind": _npy((21, 7), order="yes", content=bytes(1176)),
    "nested": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"-" * 8998 + b"1\n",
    "version": b"\x93NUMPY\x09\x00" + _npy((1, 1))[8:],
    "nothing": b"",
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_are_checked_before_memory_is_taken(solution, tmp_path, case):
    path = tmp_path / "slew.npz"
    arrays = _arrays_of(solution, path)
    del arrays["xs"]
    np.savez(path, **arrays)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("xs.npy", HEADERS[case])
    tracemalloc.start()
    with pytest.raises(SolutionFileError):
        Solution.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 << 20


def test_archives_that_unpack_to_far_more_than_their_size_are_refused(solution, tmp_path, monkeypatch):
    path = tmp_path / "slew.npz"
    rows = 500_000
    np.savez_compressed(path, **(_arrays_of(solution, path) | {"extra": np.zeros(rows)}))
    assert Solution.load(path).iterations == solution.iterations
    monkeypatch.setattr(archive, "SMALL", 1 << 20)
    with pytest.raises(SolutionFileError, match="claim to unpack to"):
        Solution.load(path)


def test_columns_in_memory_order_and_other_precisions_are_read(solution, tmp_path):
    path = tmp_path / "slew.npz"
    arrays = _arrays_of(solution, path)
    np.savez(path, **(arrays | {"xs": np.asfortranarray(arrays["xs"]), "us": arrays["us"].astype(">f4")}))
    loaded = Solution.load(path)
    np.testing.assert_array_equal(loaded.xs, solution.xs)
    np.testing.assert_allclose(loaded.us, solution.us, rtol=1e-6, atol=1e-9)
    assert loaded.us.dtype == np.float64 and loaded.xs.flags.writeable


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_are_solutions_or_refused(solution, tmp_path, seed):
    path = tmp_path / "slew.npz"
    path.write_bytes(mutated_solution(solution.save(path).read_bytes(), random.Random(seed)))
    try:
        loaded = Solution.load(path)
    except SolutionFileError as error:
        assert path.name in str(error)
    else:
        assert (loaded.xs.shape, loaded.us.shape) == (solution.xs.shape, solution.us.shape)


# -- guesses ------------------------------------------------------------------------------------------------------------


def test_interpolation_is_a_geodesic_in_time():
    ocp = _ocp(horizon=4, dt=np.array([0.1, 0.3, 0.2, 0.4]))
    rate = np.r_[1.0, 2.0, -0.5, 0.3, 0.2, 0.1]
    goal = ocp.manifold.integrate(ocp.x0[:, None], rate[:, None])[:, 0]
    guess = interpolated_guess(ocp, goal, 0.5)
    expected = ocp.manifold.integrate(np.tile(ocp.x0[:, None], 5), rate[:, None] * ocp.times)
    np.testing.assert_allclose(guess.xs, expected.T, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(guess.us, np.full((4, 3), 0.5))


def test_constant_and_quasi_static_guesses():
    ocp = _ocp(horizon=4)
    np.testing.assert_array_equal(constant_guess(ocp, [1.0, 2.0, 3.0]).us, np.tile([1.0, 2.0, 3.0], (4, 1)))
    guess = quasi_static_guess(ocp, lambda x: 2.0 * x[:, :3] + 1.0)
    np.testing.assert_array_equal(guess.xs, np.tile(ocp.x0, (5, 1)))
    np.testing.assert_array_equal(guess.us, np.ones((4, 3)))


def test_resampling_on_the_same_grid_is_the_solution(solution):
    guess = resampled_guess(_ocp(), solution)
    np.testing.assert_allclose(guess.xs, solution.xs, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(guess.us, solution.us)


def _stretched(seed):
    """A problem of 0.4 s with a free duration, and states and controls that last 0.8 s."""
    system = textbook.double_integrator()
    fixed = OCP.single_phase(SampledSystem(make_backend(system, "forward_ad"), "euler"), [0.0, 0.0], 4, 0.1)
    rng = np.random.default_rng(seed)
    xs, us = rng.standard_normal((6, 3)), rng.standard_normal((5, 1))
    xs[:, 2] = 0.8
    return free_time(fixed, (0.5, 2.0)).ocp, xs, us


def test_resampling_keeps_durations_apart_from_forces():
    """In a problem with free duration, the control of the first, instantaneous stage is the duration."""
    ocp, xs, us = _stretched(5)
    guess = resampled_guess(ocp, SimpleNamespace(times=ocp.times_of(xs), xs=xs, us=us))
    np.testing.assert_allclose(guess.xs, xs, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(guess.us, us)


def test_a_shift_counts_in_seconds_where_durations_are_free():
    """With 0.4 s stretched to 0.8 s, a shift by 0.4 s is a shift by two of four steps."""
    ocp, xs, us = _stretched(6)
    guess = resampled_guess(ocp, SimpleNamespace(times=ocp.times_of(xs), xs=xs, us=us), shift=0.4)
    np.testing.assert_allclose(guess.xs[1:4], xs[3:], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(guess.us[1:3], us[3:])
    np.testing.assert_allclose(guess.xs[4:], np.tile(xs[-1], (2, 1)), rtol=0, atol=1e-12)


def test_resampling_shifts_refines_and_holds_the_end(solution):
    guess = resampled_guess(_ocp(), solution, shift=0.3)
    np.testing.assert_allclose(guess.xs[:18], solution.xs[3:], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(guess.us[:17], solution.us[3:])
    np.testing.assert_allclose(guess.xs[18:], np.tile(solution.xs[-1], (3, 1)), rtol=0, atol=1e-14)
    fine = resampled_guess(_ocp(horizon=40, dt=0.05), solution)
    np.testing.assert_allclose(fine.xs[::2], solution.xs, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(fine.us[::2], solution.us)
    np.testing.assert_allclose(np.linalg.norm(fine.xs[:, :4], axis=1), 1.0, atol=1e-14)


def test_warm_start_converges_at_once(solution):
    assert solve(_ocp(), resampled_guess(_ocp(), solution)).iterations == 0


def test_resampling_a_foreign_solution_is_refused(solution):
    other = OCP.single_phase(
        SampledSystem(make_backend(textbook.double_integrator(), "forward_ad")), [0.0, 0.0], 3, 0.1
    )
    with pytest.raises(ValueError, match="nx = 7, nu = 3"):
        resampled_guess(other, solution)
