"""Trackers beside a run: both packages for real, without a network, and what a failing one does to a run (nothing)."""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
import types
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal
from wandb.proto.wandb_internal_pb2 import Record

from runs import arguments, metrics, small_config, wmrl
from wmrl_envs.errors import ConfigurationError, MissingExtraError
from wmrl_envs.tracking import Tracker, find_tracker
from wmrl_envs.train import train

BLOCK = 32 * 1024


def offline_records(folder: Path) -> list[Record]:
    """Return what wandb wrote of a run that it could not send: records in LevelDB's log format, after a header."""
    [path] = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, at, whole, records = path.read_bytes(), 7, b"", []
    while at < len(data):
        if BLOCK - at % BLOCK < 7:  # no room for another header: padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a full record, or the last part of one
            records.append(Record.FromString(whole))
            whole = b""
    return records


def test_a_run_at_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    train(small_config(steps=3), tmp_path / "untracked")
    train(small_config(steps=3), run, track="wandb")
    assert_frame_equal(metrics(run), metrics(tmp_path / "untracked"))
    rows: list[dict[str, object]] = []
    config: dict[str, object] = {}
    for record in offline_records(run):
        config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if row:
            rows.append(row)
    assert config["task"] == "titanic" and config["seed"] == 0
    written = metrics(run)
    assert [row["executions"] for row in rows] == written["executions"].astype(int).tolist()
    assert [row["_step"] for row in rows] == [1, 2, 3]
    assert "after/score" in rows[2] and "ledger/executions" in rows[2]
    assert any(name.startswith("figures/overview") for name in rows[2])


def test_a_run_and_its_resumption_at_trackio(tmp_path: Path) -> None:
    # trackio reads its folder when it is imported, so that the run has to be a process of its own.
    place, run = tmp_path / "trackio", tmp_path / "run"
    done = wmrl(
        "train", *arguments(steps=2), "--track", "trackio", "--out", str(run), folder=tmp_path, TRACKIO_DIR=place
    )
    assert done.returncode == 0, done.stderr
    more = wmrl("train", "--resume", str(run), "--steps", "4", "--track", "trackio", folder=tmp_path, TRACKIO_DIR=place)
    assert more.returncode == 0, more.stderr
    with sqlite3.connect(place / "wmrl-envs.db") as database:
        found = database.execute("select run_name, step, metrics from metrics order by id").fetchall()
    assert {name[:4] for name, _, _ in found} == {"run-"}
    assert len({name for name, _, _ in found}) == 1
    rows = [json.loads(row) for _, _, row in found]
    sent = [row["executions"] for row in rows if "executions" in row]
    assert sent == metrics(run)["executions"].astype(int).tolist()
    assert [row["after/score"] for row in rows if "after/score" in row]
    assert list(place.rglob("*.png"))


def test_a_failing_tracker_stops_no_run_and_warns_once(tmp_path: Path) -> None:
    class Broken(types.ModuleType):
        calls = 0

        def init(self, **settings: object) -> None:
            """Begin."""

        def log(self, row: object, step: int) -> None:
            self.calls += 1
            raise OSError("no route to host\nat all")

    module = Broken("trackio")
    tracker = Tracker(module, tmp_path, {})
    with pytest.warns(RuntimeWarning, match=r"trackio failed \(OSError: no route to host\); the run goes on") as caught:
        for step in (1, 2, 3):
            tracker.log({"step": step})
        tracker.finish(tmp_path, {"after": {"score": 1.0}})
    assert (len(caught), module.calls) == (1, 1)


def test_trackers_that_cannot_be_had_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_tracker(None) is None
    with pytest.raises(ConfigurationError, match="Did you mean 'wandb'"):
        train(small_config(), tmp_path / "run", track="wandbb")
    monkeypatch.setitem(sys.modules, "wandb", None)  # as where it is not installed
    with pytest.raises(MissingExtraError, match="pip install wandb"):
        train(small_config(), tmp_path / "run", track="wandb")
    assert not (tmp_path / "run").exists()
