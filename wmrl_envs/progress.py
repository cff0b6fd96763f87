"""The live line of a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from wmrl_envs.config import TrainConfig

__all__ = ["TrainingProgress", "counting"]

PLAIN_EVERY = 10
"""Steps between lines where there is no terminal to draw a bar on."""


class TrainingProgress:
    """A progress bar with the mean reward of training, the real executions and their cost.

    Plain lines where there is no terminal.
    """

    def __init__(self, console: Console, config: TrainConfig) -> None:
        """Set the bar up; it appears on entering the context."""
        self._console, self._config = console, config
        self.step = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(f"{config.task} · {config.reward}", total=config.steps, note="starting")

    def __enter__(self) -> TrainingProgress:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def phase(self, words: str) -> None:
        """Show what begins."""
        self._bar.update(self._task, note=words)
        if not self._console.is_terminal:
            self._console.print(words, highlight=False, soft_wrap=True)

    def update(self, row: dict[str, Any]) -> None:
        """Show a completed step's numbers."""
        self.step = row["step"]
        note = f"reward {_score(row):.3f} · {row['executions']} executed ({row['execution_seconds']:.0f} CPU s)"
        if row.get("cost_ratio") is not None:
            note += f" · {row['cost_ratio']:.0%} of executing everything"
        self._bar.update(self._task, completed=self.step, note=note)
        if not self._console.is_terminal and (self.step % PLAIN_EVERY == 0 or self.step == self._config.steps):
            self._console.print(f"step {self.step}/{self._config.steps}: {note}", highlight=False, soft_wrap=True)


def _score(row: dict[str, Any]) -> float:
    """Return the mean reward of a step's rollouts: corrected, or real where nothing was predicted."""
    return float(next((row[name] for name in ("corrected_return", "real_reward") if name in row), float("nan")))


@contextmanager
def counting(console: Console, title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show how many of ``total`` jobs are done; the function it yields takes (finished, total)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(escape(title), total=total)

        def done(finished: int, total: int) -> None:
            bar.update(task, completed=finished, total=total)
            if not console.is_terminal and (finished % 50 == 0 or finished == total):
                console.print(f"{title}: {finished}/{total}", markup=False, highlight=False)

        yield done
