"""What the commands share: where they print, and how errors and warnings look there."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from rich.console import Console
from rich.markup import escape

__all__ = ["console", "error", "errors", "show_errors_plainly"]

console = Console()
errors = Console(stderr=True)


def show_errors_plainly() -> None:
    """Print warnings and log messages as one sentence each, without the place in the code that they come from."""
    warnings.showwarning = _show_warning
    logger = logging.getLogger("wmrl_envs")
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        logger.addHandler(_Handler(logging.WARNING))


def error(message: object) -> None:
    """Print an error."""
    errors.print(f"[red]error:[/red] {escape(str(message))}", highlight=False, soft_wrap=True)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    errors.print(f"[yellow]warning:[/yellow] {escape(str(message))}", highlight=False, soft_wrap=True)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        errors.print(f"[yellow]warning:[/yellow] {escape(record.getMessage())}", highlight=False, soft_wrap=True)
