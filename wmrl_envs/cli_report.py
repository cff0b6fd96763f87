"""``wmrl report`` and ``wmrl watch``: runs as a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmrl_envs.cli_console import console, errors

__all__ = ["report_command", "watch_command"]

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that hold some.", show_default=False)
]


def report_command(
    run: Runs,
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file; report.html in the run folder, or here for several runs, by default."),
    ] = None,
) -> None:
    """Write runs as one HTML page: curves, calibration, costs, trajectories and videos.

    The file holds everything and is opened in a browser, without network. Runs that differ in the seed alone share a
    curve. A run that still goes on, or was stopped, is shown as far as it came.
    """
    from wmrl_envs.report.page import write_report

    target = out or (run[0] / "report.html" if len(run) == 1 else Path("report.html"))
    written = write_report(run, target)
    runs = "1 run" if written["runs"] == 1 else f"{written['runs']} runs"
    _line(f"report of {runs}: {target} ({written['bytes'] / 1e6:.1f} MB)")
    for sentence in written["left_out"]:
        _line(f"left out: {sentence}")


def watch_command(
    run: Runs,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than loopback let others look.")
    ] = "127.0.0.1",
) -> None:
    """Serve the report of runs on this machine while they go on; the page updates by itself."""
    from wmrl_envs.report.live import ReportServer

    server = ReportServer(run, host=host, port=port)
    if not server.loopback:
        errors.print(
            f"[yellow]warning:[/yellow] whoever reaches this machine at {host} can read these runs",
            highlight=False,
            soft_wrap=True,
        )
    _line(f"watching at {server.url} (Ctrl-C ends it)")
    try:
        server.serve()
    except KeyboardInterrupt:
        _line("stopped watching; runs go on")


def _line(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
