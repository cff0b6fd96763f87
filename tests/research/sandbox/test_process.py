from __future__ import annotations

import copy
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from wmrl_envs.errors import ConfigurationError, SandboxError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.scoring import InvalidSubmission
from wmrl_envs.research.task import Limits, load_task

QUICK = Limits(seconds=2.0, wall_seconds=4.0, memory_mb=512, disk_mb=20)


def test_a_program_reads_its_input_and_writes_a_submission(sandbox: ProcessSandbox, public: Path) -> None:
    code = (
        "import pandas as pd\n"
        "table = pd.read_csv('input/train.csv')\n"
        "table[['id', 'y']].to_csv('submission.csv', index=False)\n"
        "print(len(table), 'rows')\n"
    )
    result = sandbox.run(code, public, QUICK)
    assert (result.cause, result.exit_code, result.stdout, result.stderr) == ("ok", 0, "2 rows\n", "")
    assert result.submission == b"id,y\n1,0\n2,1\n"
    assert 0 < result.seconds < QUICK.seconds


def test_an_uncaught_exception_is_shown_as_in_a_terminal_without_paths(sandbox: ProcessSandbox, public: Path) -> None:
    code = "import pandas as pd\n\ndef load():\n    return pd.read_csv('input/missing.csv')\n\nload()\n"
    result = sandbox.run(code, public, QUICK)
    assert (result.cause, result.exit_code, result.error_type, result.error_line) == (
        "error",
        1,
        "FileNotFoundError",
        4,
    )
    shown = 'Traceback (most recent call last):\n  File "solution.py", line 6, in <module>\n    load()\n'
    assert result.stderr.startswith(shown)
    assert 'File "pandas/io/' in result.stderr
    assert str(Path.cwd()) not in result.stderr and "/tmp" not in result.stderr


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(3)", 3),
        ("exit(1)", 1),
        ("import sys; sys.exit('gave up')", 1),
        ("import os; os._exit(4)", 4),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("raise KeyboardInterrupt", 1),
        ("import threading; threading.Thread(target=print, args=('late',)).start()", 0),
    ],
)
def test_exit_codes(sandbox: ProcessSandbox, public: Path, code: str, exit_code: int) -> None:
    result = sandbox.run(code, public, QUICK)
    assert (result.cause, result.exit_code) == ("ok" if exit_code == 0 else "error", exit_code)


def test_what_a_program_leaves_open_is_written(sandbox: ProcessSandbox, public: Path) -> None:
    result = sandbox.run("file = open('submission.csv', 'w')\nfile.write('id,y\\n')\nprint('x', end='')", public, QUICK)
    assert (result.submission, result.stdout) == (b"id,y\n", "x")


@pytest.mark.parametrize(
    "draw",
    [
        "import random; print(random.random())",
        "import numpy as np; print(np.random.rand())",
        "import numpy as np; print(np.random.default_rng().random())",
        "print(hash('text'))",
        "import numpy as np, sklearn.ensemble as e; x = np.arange(40.).reshape(-1, 1)\n"
        "print(e.RandomForestRegressor(3).fit(x, x[:, 0]).predict([[7.5]]))",
    ],
)
def test_a_run_can_be_repeated_under_its_seed(sandbox: ProcessSandbox, public: Path, draw: str) -> None:
    first, again, other = (sandbox.run(draw, public, QUICK, seed).stdout for seed in (5, 5, 6))
    assert first == again
    assert "hash" in draw or "Forest" in draw or first != other


def test_limits_are_told_apart(sandbox: ProcessSandbox, public: Path) -> None:
    def cause(code: str, limits: Limits = QUICK) -> str:
        return sandbox.run(code, public, limits).cause

    assert cause("while True: pass", Limits(seconds=0.3)) == "timeout"
    assert cause("import time; time.sleep(60)", Limits(wall_seconds=0.3)) == "timeout"
    assert cause("x = bytearray(2 * 2**30)") == "memory"
    assert cause("import numpy as np; np.ones(2**28)") == "memory"
    assert cause("open('big', 'wb').write(bytes(21 * 2**20))") == "disk"
    assert cause("raise SystemExit(1)") == "error"


def test_seconds_are_cpu_seconds_unless_the_wall_limit_ended_it(sandbox: ProcessSandbox, public: Path) -> None:
    slept = sandbox.run("import time; time.sleep(0.5)", public, QUICK)
    assert slept.seconds < 0.25
    ended = sandbox.run("import time; time.sleep(60)", public, Limits(wall_seconds=0.5))
    assert ended.seconds >= 0.5
    busy = sandbox.run("while True: pass", public, Limits(seconds=0.4))
    assert busy.seconds >= 0.4
    spun = sandbox.run("import time\nwhile time.process_time() < 0.5: pass", public, QUICK)
    assert spun.seconds == pytest.approx(0.5, abs=0.2)


def test_output_is_cut_in_the_middle_and_decoded_whatever_it_holds(sandbox: ProcessSandbox, public: Path) -> None:
    code = "import sys\nfor i in range(200000): print('line', i)\nsys.stderr.buffer.write(b'a\\xf0b')\n1/0"
    result = sandbox.run(code, public, Limits(output_kb=4))
    assert result.stdout.startswith("line 0\n") and result.stdout.endswith("line 199999\n")
    assert "bytes of output cut" in result.stdout and len(result.stdout) < 4200
    assert result.stderr.startswith("a\ufffdbTraceback")


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.symlink('/etc/passwd', 'submission.csv')",
        "import os; os.symlink('../../task/private/answers.csv', 'submission.csv')",
        "import os; os.mkfifo('submission.csv')",
        "import os; os.mkdir('submission.csv')",
        "open('submission.csv', 'wb').truncate(19 * 2**20)",
    ],
)
def test_a_submission_that_is_no_plain_file_is_invalid(sandbox: ProcessSandbox, public: Path, code: str) -> None:
    result = sandbox.run(code, public, QUICK, most_bytes=2**20)
    assert result.cause == "ok"
    assert isinstance(result.submission, InvalidSubmission)


def test_grade_keeps_order_and_passes_the_gate_first(sandbox: ProcessSandbox, write_task) -> None:
    task = load_task(write_task())
    copied = "import shutil; shutil.copy('input/sample_submission.csv', 'submission.csv')"
    codes = [None, "x =", "1/0", copied, "pass", "open('submission.csv', 'w').write('a,b\\n')", "x = 'A' * 2**33"]
    outcomes = sandbox.grade([Submission(task, code) for code in codes])
    assert [outcome.status for outcome in outcomes if outcome] == [
        Status.MALFORMED,
        Status.SYNTAX_ERROR,
        Status.RUNTIME_ERROR,
        Status.VALID,
        Status.NO_SUBMISSION,
        Status.INVALID_SUBMISSION,
        Status.MEMORY,
    ]
    assert outcomes[3] is not None and outcomes[3].reward == 0.5 + 0.5 * outcomes[3].position
    assert sandbox.grade([]) == []


def test_a_dead_zygote_is_replaced_within_a_batch(write_task) -> None:
    task = load_task(write_task())
    with ProcessSandbox(workers=1) as sandbox:
        assert sandbox.grade([Submission(task, "pass")])[0].status is Status.NO_SUBMISSION
        os.kill(sandbox.zygote_pid, signal.SIGKILL)
        assert sandbox.grade([Submission(task, "pass")] * 2)[1].status is Status.NO_SUBMISSION


def test_a_broken_harness_is_unknown_not_a_low_reward(write_task, caplog, monkeypatch) -> None:
    task = load_task(write_task())
    with ProcessSandbox(workers=1) as sandbox:
        sandbox.grade([Submission(task, "pass")])
        os.kill(sandbox.zygote_pid, signal.SIGKILL)
        monkeypatch.setattr("wmrl_envs.research.sandbox.host._SCRIPT", Path("/nonexistent.py"))
        assert sandbox.grade([Submission(task, "pass"), Submission(task, "x =")])[0] is None
    assert "second attempt" in caplog.text


def test_a_harness_that_cannot_start_at_all_raises(write_task, public: Path, monkeypatch) -> None:
    with ProcessSandbox(workers=1) as sandbox, monkeypatch.context() as patched:
        patched.setattr("wmrl_envs.research.sandbox.host._SCRIPT", Path("/nonexistent.py"))
        with pytest.raises(SandboxError, match="did not start"):
            sandbox.grade([Submission(load_task(write_task()), "pass")])
    with pytest.raises(SandboxError, match="does not exist"), ProcessSandbox() as sandbox:
        sandbox.run("pass", Path("/nonexistent"))


def test_closing_leaves_no_process_and_no_folder(public: Path) -> None:
    sandbox = ProcessSandbox(workers=1)
    sandbox.run("pass", public)
    zygote, folder = psutil.Process(sandbox.zygote_pid), sandbox._folder
    twin = copy.deepcopy(sandbox)
    sandbox.close()
    assert not zygote.is_running() and folder is not None and not folder.exists()
    assert twin.workers == 1 and twin.zygote_pid is None
    assert sandbox.run("pass", public).cause == "ok"
    sandbox.close()


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="workers"):
        ProcessSandbox(workers=0)
    with pytest.raises(ConfigurationError, match="Did you mean 'strict'"):
        ProcessSandbox(isolation="stict")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="memory_mb"):
        ProcessSandbox(limits={"memory": 3})


def test_limits_may_be_changed_for_every_task(write_task) -> None:
    task = load_task(write_task())
    with ProcessSandbox(workers=1, limits={"seconds": 0.3}) as sandbox:
        start = time.monotonic()
        outcome = sandbox.grade([Submission(task, "while True: pass")])[0]
        assert outcome is not None and outcome.status is Status.TIMEOUT and "0.3 CPU seconds" in outcome.feedback
        assert sandbox.limits_of(Submission(task, "")).memory_mb == task.limits.memory_mb
        assert time.monotonic() - start >= 0.3
