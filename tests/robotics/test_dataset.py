"""Rollouts come back from disk bit by bit; a dataset that is damaged or foreign is refused by the name of its file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthetic_rollouts import mixed_rollouts, synthetic_rollout
from wmrl_envs.errors import ConfigurationError, DatasetError
from wmrl_envs.robotics import _lerobot_writing
from wmrl_envs.robotics._lerobot_statistics import column_statistics, image_statistics, level_counts
from wmrl_envs.robotics.dataset import check_dataset_folder, load_rollouts, load_settings, save_rollouts
from wmrl_envs.robotics.demonstrations import Rollout

DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"


def assert_same(found: list[Rollout], expected: list[Rollout]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for field in fields(Rollout):
            value, wanted = getattr(one, field.name), getattr(other, field.name)
            assert type(value) is type(wanted), field.name
            if isinstance(wanted, np.ndarray):
                assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), field.name
                assert value.flags.c_contiguous and value.flags.writeable, field.name
                assert value.tobytes() == wanted.tobytes(), field.name
            else:
                assert value == wanted, field.name


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_rollouts(mixed_rollouts(), tmp_path / "demos", fps=8)
    return tmp_path / "demos"


def test_rollouts_come_back(saved: Path) -> None:
    assert_same(load_rollouts(saved), mixed_rollouts())
    assert os.listdir(saved.parent) == ["demos"]


@pytest.mark.parametrize("action", [(7,), (1,), (3, 4), (1, 4)])
@pytest.mark.parametrize("state", [1, 8])
def test_actions_and_states_of_other_sizes_come_back(tmp_path: Path, action: tuple[int, ...], state: int) -> None:
    rollouts = [synthetic_rollout(4, seed=seed, action=action, state=state) for seed in range(2)]
    save_rollouts(rollouts, tmp_path / "demos", fps=2.5, camera="gripperPOV")
    assert_same(load_rollouts(tmp_path / "demos"), rollouts)


@settings(max_examples=15, deadline=None)
@given(
    decisions=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    words=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    solved_at=st.none() | st.integers(0, 3),
)
def test_anything_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    decisions: list[int],
    size: tuple[int, int],
    words: str,
    solved_at: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rollouts = [synthetic_rollout(n, seed=n, size=size, instruction=words, solved_at=solved_at) for n in decisions]
    save_rollouts(rollouts, folder, fps=8)
    assert_same(load_rollouts(folder), rollouts)


def test_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lerobot_writing, "FILE_BYTES", 20_000)
    rollouts = [synthetic_rollout(4, seed=seed) for seed in range(6)]
    save_rollouts(rollouts, tmp_path / "demos", fps=8)
    assert len(list((tmp_path / "demos/data/chunk-000").iterdir())) == 3
    assert_same(load_rollouts(tmp_path / "demos"), rollouts)


def test_settings_come_back(tmp_path: Path) -> None:
    given = {"environment": {"hold": 10, "camera": "workspace"}, "tasks": ["drawer-open"], "none": None}
    save_rollouts(mixed_rollouts(), tmp_path / "demos", fps=8, settings=given)
    assert load_settings(tmp_path / "demos") == given
    (tmp_path / "demos/meta/wmrl.json").unlink()
    assert load_settings(tmp_path / "demos") == {}


def test_rows_are_transitions(saved: Path) -> None:
    """What was seen, what was done, and what came of it; nothing made up after the last action."""
    rows = pq.read_table(saved / DATA).to_pandas()
    assert len(rows) == 5 + 1 + 9 + 3
    assert rows["index"].tolist() == list(range(18))
    assert rows["episode_index"].tolist() == [0] * 5 + [1] + [2] * 9 + [3] * 3
    assert rows["task_index"].tolist() == [0] * 5 + [1] + [0] * 9 + [1] * 3
    assert rows["next.done"].to_numpy().nonzero()[0].tolist() == [4, 5, 14, 17]
    assert rows["next.reward"].to_numpy().nonzero()[0].tolist() == [2, 14]
    assert rows["next.success"].to_numpy().nonzero()[0].tolist() == [2, 3, 4, 14, 15, 16, 17]
    np.testing.assert_allclose(rows["timestamp"][6:15], np.arange(9) / 8)
    first = mixed_rollouts()[0]
    np.testing.assert_array_equal(np.stack(rows["action"][:5]), first.actions)
    np.testing.assert_array_equal(np.stack(rows["observation.state"][:5]), first.states[:-1])


def test_info_and_tasks(saved: Path) -> None:
    info = json.loads((saved / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    assert (info["fps"], info["total_episodes"], info["total_frames"], info["total_tasks"]) == (8, 4, 18, 2)
    assert info["features"]["observation.images.workspace"]["shape"] == [24, 32, 3]
    assert info["features"]["action"] == {"dtype": "float32", "shape": [4], "names": None}
    assert pq.read_table(saved / "meta/tasks.parquet").to_pandas().index.tolist() == [
        "open the drawer",
        "open the window",
    ]


def test_statistics_are_those_of_the_rows(saved: Path) -> None:
    statistics = json.loads((saved / "meta/stats.json").read_text())
    actions = np.concatenate([rollout.actions for rollout in mixed_rollouts()])
    frames = np.concatenate([rollout.frames[:-1] for rollout in mixed_rollouts()]) / 255
    np.testing.assert_allclose(statistics["action"]["mean"], actions.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(statistics["action"]["q90"], np.quantile(actions, 0.9, axis=0), rtol=1e-5)
    own = statistics["observation.images.workspace"]
    np.testing.assert_allclose(np.ravel(own["mean"]), frames.mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(np.ravel(own["std"]), frames.std(axis=(0, 1, 2)))
    assert (own["count"], statistics["action"]["count"]) == ([18], [18])
    assert set(statistics) == set(json.loads((saved / "meta/info.json").read_text())["features"])


def test_image_statistics_are_those_of_the_pixels() -> None:
    frames = np.random.default_rng(0).integers(20, 200, (3, 8, 8, 3), np.uint8)
    frames[..., 2] = 77
    found = image_statistics(level_counts(frames[:1]) + level_counts(frames[1:]), 3)
    pixels = frames.reshape(-1, 3) / 255
    for name, value in column_statistics(pixels).items():
        if name == "count":
            assert found[name] == [3]
            continue
        assert np.shape(found[name]) == (3, 1, 1)
        inexact = 3 / 255 if name.startswith("q") else 1e-9
        np.testing.assert_allclose(np.ravel(found[name]), value, atol=inexact)
    np.testing.assert_allclose(np.ravel(found["q50"])[2], 77 / 255)


def test_folder_that_is_not_empty_is_refused(saved: Path) -> None:
    before = (saved / DATA).read_bytes()
    with pytest.raises(ConfigurationError, match=r"demos is not empty.*overwrite=True"):
        save_rollouts([synthetic_rollout()], saved, fps=8)
    assert (saved / DATA).read_bytes() == before
    save_rollouts([synthetic_rollout()], saved, fps=8, overwrite=True)
    assert_same(load_rollouts(saved), [synthetic_rollout()])
    assert os.listdir(saved.parent) == ["demos"]


def test_other_things_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigurationError, match="holds no dataset, so it is not overwritten"):
        save_rollouts([synthetic_rollout()], tmp_path, fps=8, overwrite=True)
    with pytest.raises(ConfigurationError, match="is a file, not a folder"):
        check_dataset_folder(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_empty_and_linked_folders_are_taken(tmp_path: Path) -> None:
    (tmp_path / "disk/demos").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk/demos")
    save_rollouts([synthetic_rollout()], tmp_path / "link", fps=8)
    assert (tmp_path / "link").is_symlink()
    assert_same(load_rollouts(tmp_path / "disk/demos"), [synthetic_rollout()])


def test_failure_leaves_the_old_dataset(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_lerobot_writing, "write_json", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_rollouts([synthetic_rollout()], saved, fps=8, overwrite=True)
    assert_same(load_rollouts(saved), mixed_rollouts())
    assert os.listdir(saved.parent) == ["demos"]


BAD: list[tuple[Callable[[Rollout], Any], str]] = [
    (lambda r: "rollout", "it is no Rollout but str"),
    (
        lambda r: replace(r, frames=r.frames[:-1]),
        r"frames must be uint8 of 4 dimensions and length 6.*\[5, 24, 32, 3\]",
    ),
    (lambda r: replace(r, frames=r.frames.astype(np.float32)), "frames must be uint8.*got float32"),
    (lambda r: replace(r, frames=r.frames[..., :1]), "frames must have 3 colours"),
    (lambda r: replace(r, states=r.states.astype(np.float64)), "states must be float32"),
    (lambda r: replace(r, actions=r.actions[:0]), "must be .* beside 0 actions"),
    (lambda r: replace(r, actions=r.actions * np.float32("nan")), "actions must be finite"),
    (lambda r: replace(r, solved=~r.solved), "stays true"),
    (lambda r: replace(r, kind="human"), "kind must be one of expert, perturbed, policy, got 'human'"),
    (lambda r: replace(r, instruction=""), "instruction must be words, got ''"),
    (lambda r: replace(r, initial_state=1.5), "initial_state must be a whole number, got 1.5"),
    (
        lambda r: synthetic_rollout(size=(32, 24)),
        r"its frames are \[32, 24, 3\] each and those of rollout 0 \[24, 32, 3\]",
    ),
    (lambda r: synthetic_rollout(action=(2, 4)), r"its actions are \[2, 4\] each"),
    (lambda r: synthetic_rollout(state=8), r"its states are \[8\] each"),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_bad_rollout_is_refused(tmp_path: Path, change: Callable[[Rollout], Any], words: str) -> None:
    good = synthetic_rollout()
    with pytest.raises(ConfigurationError, match=f"(?s)rollout 1 cannot be saved: .*{words}"):
        save_rollouts([good, change(good)], tmp_path / "demos", fps=8)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rollouts": []}, "there is no rollout to save"),
        ({"fps": 0}, "fps must be a number above 0, got 0"),
        ({"fps": float("nan")}, "fps must be"),
        ({"camera": "a/b"}, "camera must be a name of letters.*'a/b'"),
        ({"settings": {"a": {1, 2}}}, "settings must be what JSON knows"),
        ({"settings": {"a": float("inf")}}, "settings must be what JSON knows"),
    ],
)
def test_bad_argument_is_refused(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        save_rollouts(**{"rollouts": mixed_rollouts(), "folder": tmp_path / "demos", "fps": 8} | arguments)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def without(path: Path, column: str) -> None:
    pq.write_table(pq.read_table(path).drop_columns([column]), path)


def changed(path: Path, column: str, change: Callable[[list[Any]], list[Any]]) -> None:
    table = pq.read_table(path)
    number = table.column_names.index(column)
    kind = table.schema.field(column).type
    pq.write_table(table.set_column(number, column, pa.array(change(table[column].to_pylist()), kind)), path)


def rewritten(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGE: list[tuple[Callable[[Path], Any], str]] = [
    (lambda d: (d / "meta/info.json").unlink(), r"no dataset in the folder .*demos: .*info.json cannot be read"),
    (lambda d: (d / "meta/info.json").write_text("{"), r"info.json is damaged"),
    (lambda d: (d / "meta/info.json").write_text("[]"), r"info.json is damaged: it holds list"),
    (lambda d: rewritten(d / "meta/info.json", codebase_version="v2.1"), r"info.json says .* v2.1; only v3"),
    (lambda d: rewritten(d / "meta/info.json", features={}), r"info.json names 0 features of images.*save_rollouts"),
    (lambda d: rewritten(d / "meta/info.json", features=3), r"info.json is damaged: AttributeError"),
    (
        lambda d: rewritten(d / "meta/info.json", total_episodes=5),
        r"promises the episodes 0 to 4.*file-000.parquet list 4",
    ),
    (lambda d: (d / EPISODES).unlink(), r"meta/episodes/chunk-000/file-000.parquet is missing"),
    (lambda d: cut(d / EPISODES), r"meta/episodes/chunk-000/file-000.parquet is damaged"),
    (
        lambda d: without(d / EPISODES, "rollout/kind"),
        r"meta/.*file-000.parquet has no column rollout/kind: it was not",
    ),
    (
        lambda d: changed(d / EPISODES, "rollout/kind", lambda v: ["x"] * 4),
        r"data/.* damaged in episode 0: .* kind 'x'",
    ),
    (lambda d: (d / DATA).unlink(), r"data/chunk-000/file-000.parquet is missing"),
    (lambda d: (d / DATA).write_text("not Parquet at all"), r"data/chunk-000/file-000.parquet is damaged"),
    (lambda d: without(d / DATA, "action"), r"data/chunk-000/file-000.parquet has no column action"),
    (
        lambda d: changed(d / DATA, "episode_index", lambda v: [0] + v[:-1]),
        r"data/.*damaged in episode 0: .* 5 rows .* 6",
    ),
    (
        lambda d: changed(d / DATA, "observation.images.workspace", lambda v: [{"bytes": b"x", "path": None}] + v[1:]),
        r"data/chunk-000/file-000.parquet is damaged in episode 0: frame 0 is no image",
    ),
    (
        lambda d: changed(d / DATA, "observation.images.workspace", lambda v: [None] + v[1:]),
        r"file-000.parquet is damaged in episode 0: frame 0 is no image",
    ),
    (
        lambda d: changed(d / EPISODES, "rollout/last_frame", lambda v: [v[0], b"", *v[2:]]),
        r"episode 1: frame 1 is no image",
    ),
    (lambda d: changed(d / EPISODES, "rollout/last_state", lambda v: [v[0][:2], *v[1:]]), r"damaged in episode 0: "),
    (lambda d: changed(d / EPISODES, "rollout/action_shape", lambda v: [[5], *v[1:]]), r"damaged in episode 0: "),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_damage_is_named(saved: Path, damage: Callable[[Path], Any], words: str) -> None:
    damage(saved)
    with pytest.raises(DatasetError, match=words):
        load_rollouts(saved)


def test_damaged_settings_are_named(saved: Path, tmp_path: Path) -> None:
    (saved / "meta/wmrl.json").write_text('{"format": 1}')
    with pytest.raises(DatasetError, match=r"wmrl.json is damaged: it has no settings"):
        load_settings(saved)
    with pytest.raises(DatasetError, match="there is no dataset in the folder .*nowhere"):
        load_settings(tmp_path / "nowhere")


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no dataset in the folder .*nowhere.*wmrl robot collect --out"):
        load_rollouts(tmp_path / "nowhere")
