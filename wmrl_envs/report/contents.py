"""What a page shows, as one JSON-able dictionary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import wmrl_envs
from wmrl_envs.report.curves import learning_curves
from wmrl_envs.report.episodes import Episode
from wmrl_envs.report.figure import Figure
from wmrl_envs.report.folder import Run
from wmrl_envs.report.groups import Group, base_name, differing, grouped, shown
from wmrl_envs.report.headline import cards, state_words, table
from wmrl_envs.report.highlight import coloured_pieces
from wmrl_envs.report.run_figures import run_figures
from wmrl_envs.report.scores import tradeoff
from wmrl_envs.report.text import clean_text, short_text
from wmrl_envs.report.thinning import evenly, rounded
from wmrl_envs.report.videos import Video, choose_videos, data_uri

__all__ = ["Limits", "contents"]

_TITLES = {"research": "Research tasks", "robot": "Robots"}


@dataclass(frozen=True)
class Limits:
    """How much a page carries."""

    points: int = 300
    """Of each curve."""
    episodes: int = 1500
    """Of all runs together."""
    text: int = 5_000_000
    """Characters of all programs, replies and feedback together."""
    video_bytes: int = 7_000_000
    """Of all videos together, before they become text, which takes a third more."""
    videos: int = 80
    runs: int = 60
    """Runs that have figures of their own."""


def contents(
    runs: Sequence[Run], limits: Limits, *, source: Callable[[Video], str | None] = data_uri
) -> dict[str, Any]:
    """Return all that a page shows.

    Args:
        runs: Runs, read.
        limits: How much of them to show.
        source: Gives the address of a video; by default the video itself as a data URI.
    """
    videos, videos_left = choose_videos(runs, most_bytes=limits.video_bytes, most=limits.videos)
    order = {id(run): place for place, run in enumerate(runs)}
    browser = _Browser(order, videos)
    chosen = _episodes(runs, limits)
    for run, episode in chosen:
        browser.add(run, episode)
    kinds = [kind for kind in _TITLES if any(run.kind == kind for run in runs)]
    sections = [_section(kind, [run for run in runs if run.kind == kind], order, limits, browser) for kind in kinds]
    shown_videos = [
        {"run": order[id(video.run)], "caption": video.caption, "src": source(video), "task": _task(video)}
        | ({} if video.episode is None else _progress(video.episode))
        for video in videos
    ]
    return {
        "title": runs[0].name if len(runs) == 1 else f"{len(runs)} runs",
        "subtitle": _subtitle(runs),
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "version": wmrl_envs.__version__,
        "notes": _notes(runs, chosen, videos_left, limits),
        "runs": [{"name": run.name, "state": run.state, "words": state_words(run)} for run in runs],
        "sections": sections,
        "episodes": browser.episodes,
        "codes": browser.codes,
        "texts": browser.texts,
        "videos": shown_videos,
    }


def _subtitle(runs: Sequence[Run]) -> str:
    """Return what the runs are about: their tasks, and the agent, rewards and seed of a single one."""
    tasks = dict.fromkeys(base_name(run.config.get("task", run.config.get("tasks", "unknown"))) for run in runs)
    words = [short_text(", ".join(tasks), 160)]
    if len(runs) == 1:
        named = (("agent", "agent {}"), ("reward", "{} rewards"), ("seed", "seed {}"))
        words += [text.format(shown(runs[0].config[name])) for name, text in named if name in runs[0].config]
    return " · ".join(words)


def _task(video: Video) -> str:
    return "" if video.episode is None else video.episode.task


def _progress(episode: Episode) -> dict[str, Any]:
    found = {"progress": rounded(episode.progress, 3), "success": rounded(episode.success, 3), "step": episode.step}
    return found | ({"real": episode.rewards["real_reward"]} if "real_reward" in episode.rewards else {})


def _episodes(runs: Sequence[Run], limits: Limits) -> list[tuple[Run, Episode]]:
    """Return episodes of all runs, as many as their number and their texts allow."""
    most = limits.episodes
    while True:
        chosen = _shared_out(runs, most)
        size = sum(map(len, {text for _, episode in chosen for text in _texts(episode)}))
        if size <= limits.text:
            return chosen
        most = min(len(chosen) - 1, len(chosen) * limits.text // size)


def _texts(episode: Episode) -> Iterator[str]:
    for turn in episode.turns:
        outcomes = [outcome.get("feedback") for outcome in (turn.predicted, turn.real) if outcome is not None]
        yield from (text for text in (turn.code, turn.reply, *outcomes) if text)


def _shared_out(runs: Sequence[Run], most: int) -> list[tuple[Run, Episode]]:
    """Return an equal share of each run; what one leaves of its share goes to the others."""
    chosen: list[tuple[Run, Episode]] = []
    waiting = sorted(runs, key=lambda run: len(run.episodes))
    for place, run in enumerate(waiting):
        share = (most - len(chosen)) // (len(waiting) - place)
        chosen += [(run, episode) for episode in _share(run.episodes, share)]
    order = {id(run): place for place, run in enumerate(runs)}
    return sorted(chosen, key=lambda item: (order[id(item[0])], item[1].step, item[1].episode or 0))


def _share(episodes: Sequence[Episode], most: int) -> list[Episode]:
    """Return anchors first, which have two outcomes to compare, and evenly over the run."""
    anchors, others = ([episode for episode in episodes if episode.anchor is kind] for kind in (True, False))
    kept = evenly(anchors, max(2 * most // 3, most - len(others)))
    return [*kept, *evenly(others, most - len(kept))]


class _Browser:
    """The episodes as the page's browser reads them, each text and each program once."""

    def __init__(self, order: dict[int, int], videos: Sequence[Video]) -> None:
        self.episodes: list[dict[str, Any]] = []
        self.codes: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self._places: dict[tuple[str, str], int] = {}
        self._order = order
        self._videos = {id(video.episode): place for place, video in enumerate(videos) if video.episode is not None}

    def add(self, run: Run, episode: Episode) -> None:
        found: dict[str, Any] = {
            "run": self._order[id(run)],
            "step": episode.step,
            "episode": episode.episode,
            "task": episode.task,
            "anchor": episode.anchor,
            "rewards": {name: _few(value) for name, value in episode.rewards.items()},
            "turns": [
                {
                    "code": None if turn.code is None else self.code(turn.code),
                    "reply": None if turn.reply is None else self._text(turn.reply),
                    "predicted": self._outcome(turn.predicted),
                    "real": self._outcome(turn.real),
                }
                for turn in episode.turns
            ],
        }
        if episode.progress:
            found |= {"instruction": episode.instruction, "video": self._videos.get(id(episode))} | _progress(episode)
        self.episodes.append(found)

    def code(self, code: str) -> int:
        place = self._places.setdefault(("code", code), len(self.codes))
        if place == len(self.codes):
            self.codes.append(coloured_pieces(code))
        return place

    def _text(self, text: str) -> int:
        place = self._places.setdefault(("text", text), len(self.texts))
        if place == len(self.texts):
            self.texts.append(text)
        return place

    def _outcome(self, outcome: dict[str, Any] | None) -> dict[str, Any] | None:
        if outcome is None:
            return None
        found = {name: _few(value) if isinstance(value, float) else value for name, value in outcome.items()}
        return found | ({"feedback": self._text(outcome["feedback"])} if "feedback" in outcome else {})


def _few(value: float) -> float | int | None:
    return rounded([value])[0]


def _section(kind: str, runs: list[Run], order: dict[int, int], limits: Limits, browser: _Browser) -> dict[str, Any]:
    groups = grouped(runs)
    # Many runs share the room that one alone would have.
    many = max(60, limits.points * 10 // max(10, len(runs)))
    overall = [
        learning_curves(groups, kind, most=max(80, min(limits.points, 6000 // len(groups)))),
        tradeoff(groups, kind),
    ]
    return {
        "kind": kind,
        "title": _TITLES[kind],
        "cards": cards(runs[0]) if len(runs) == 1 else [],
        "table": table(groups, kind) if len(runs) > 1 else None,
        "figures": _dicts(overall),
        "runs": [
            {
                "run": order[id(run)],
                "group": next(group.name for group in groups if run in group.runs),
                "figures": _dicts(run_figures(run, most=many)),
                "best": [_best(entry, browser) for entry in run.best],
            }
            for run in runs[: limits.runs]
        ],
        "settings": _settings(groups, [run.config for run in runs], "config"),
        "versions": _settings(groups, [run.versions for run in runs], "versions"),
    }


def _dicts(figures: Sequence[Figure | None]) -> list[dict[str, Any]]:
    return [figure.to_dict() for figure in figures if figure is not None]


def _best(entry: dict[str, Any], browser: _Browser) -> dict[str, Any]:
    numbers = {name: _few(value) for name, value in entry.items() if isinstance(value, float)}
    code = {"code": browser.code(clean_text(entry["code"], 20_000))} if "code" in entry else {}
    return {name: entry[name] for name in ("task", "status") if name in entry} | numbers | code


def _settings(groups: Sequence[Group], everything: Sequence[dict[str, Any]], what: str) -> dict[str, Any]:
    """Return a row per setting and a column per group of runs; what differs within a group is listed in its cell."""
    apart = set(differing(everything))
    if not apart:
        groups = groups[:1]
    names = list(dict.fromkeys(name for settings in everything for name in settings))
    rows = []
    for name in names[:200]:
        cells = []
        for group in groups:
            values = [shown(getattr(run, what)[name]) if name in getattr(run, what) else "—" for run in group.runs]
            cells.append(short_text(", ".join(dict.fromkeys(values)), 240))
        rows.append({"name": short_text(name, 60), "differs": name in apart, "cells": cells})
    return {"columns": [group.name for group in groups] if apart else ["all runs"], "rows": rows}


def _notes(
    runs: Sequence[Run], chosen: Sequence[tuple[Run, Episode]], videos_left: int, limits: Limits
) -> list[dict[str, str]]:
    """Return what a reader must know: runs that have not ended, files that could not be read, what is left out."""
    notes = [{"kind": "state", "text": f"{run.name}: {state_words(run)}."} for run in runs if run.state != "finished"]
    notes += [{"kind": "problem", "text": f"{run.name}: {problem}."} for run in runs for problem in run.problems]
    written = sum(run.episodes_written for run in runs)
    if written > len(chosen):
        text = f"{len(chosen):,} of the {written:,} episodes that the runs noted down are shown, anchors first."
        notes.append({"kind": "left out", "text": text})
    if videos_left:
        many = f"{videos_left:,} videos are left out; they lie in the run folders."
        text = many if videos_left > 1 else "1 video is left out; it lies in its run folder."
        notes.append({"kind": "left out", "text": text})
    for kind in _TITLES:
        hidden = sum(run.kind == kind for run in runs) - limits.runs
        if hidden > 0:
            text = f"Figures of single runs are left out for the last {hidden:,} of the {kind} runs."
            notes.append({"kind": "left out", "text": text})
    return notes
