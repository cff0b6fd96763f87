"""The report of runs: one HTML page with its figures, trajectories and videos, as a file or served while a run goes on.

- ``write_report`` - a file that is opened without network.
- ``ReportServer`` - the same page on this machine, updating by itself.
"""

from __future__ import annotations

from wmrl_envs.report.live import ReportServer
from wmrl_envs.report.page import write_report

__all__ = ["ReportServer", "write_report"]
