import dataclasses
import multiprocessing
import os
import socket
import threading

import psutil
import pytest

from wmrl_envs.errors import SandboxError
from wmrl_envs.research.benchmarks import process
from wmrl_envs.research.benchmarks.process import GradingProcess
from wmrl_envs.research.scoring import InvalidSubmission
from wmrl_envs.research.task import load_task

GOOD = b"id,y\n1,10\n2,20\n3,30\n"


def order_of(benchmarks, code=None, **changes):
    benchmarks.competition(**({} if code is None else {"code": code}))
    task = load_task(f"mle-bench:{benchmarks.data}/toy-rmse")
    return dataclasses.replace(task.scorer.order, **changes)


@pytest.fixture
def start():
    started = []

    def new(order):
        started.append(GradingProcess(order))
        return started[-1]

    yield new
    for grader in started:
        grader.close()


def test_one_process_grades_them_all_and_ends_when_closed(benchmarks, start):
    grader = start(order_of(benchmarks))
    assert grader.pid is None
    pids = []
    for _ in range(3):
        assert grader.grade("submission.csv", GOOD) == 0.0
        pids.append(grader.pid)
    assert len(set(pids)) == 1 and pids[0] != os.getpid()
    grader.close()
    assert not psutil.pid_exists(pids[0])


def test_a_process_that_died_is_started_again(benchmarks, start):
    grader = start(order_of(benchmarks))
    grader.grade("submission.csv", GOOD)
    first = grader.pid
    os.kill(first, 9)
    assert grader.grade("submission.csv", GOOD) == 0.0
    assert grader.pid != first


def test_a_process_that_dies_twice_is_no_verdict_on_the_submission(benchmarks, start):
    code = """
        import os, sys
        def grade(a, b):
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(7)
    """
    grader = start(order_of(benchmarks, code))
    with pytest.raises(SandboxError, match=r"ended with code 7 \(out of luck\)"):
        grader.grade("submission.csv", GOOD)


def test_a_grade_that_takes_too_long_is_ended(benchmarks, start):
    code = "import time\ndef grade(a, b):\n    time.sleep(600)\n"
    grader = start(order_of(benchmarks, code, seconds=3.0))
    grader.check()
    pid = grader.pid
    with pytest.raises(SandboxError, match="took longer than 3 seconds"):
        grader.grade("submission.csv", GOOD)
    assert not psutil.pid_exists(pid)


def test_changed_answers_are_read_again(benchmarks, start):
    grader = start(order_of(benchmarks))
    assert grader.grade("submission.csv", GOOD) == 0.0
    (benchmarks.data / "toy-rmse/prepared/private/answers.csv").write_text("id,y\n1,110\n2,120\n3,130\n")
    assert grader.grade("submission.csv", GOOD) == 100.0


def test_threads_may_grade_at_once(benchmarks):
    order, scores = order_of(benchmarks), {}

    def run(offset):
        text = f"id,y\n1,{10 + offset}\n2,{20 + offset}\n3,{30 + offset}\n"
        scores[offset] = process.grade(order, "submission.csv", text.encode())

    threads = [threading.Thread(target=run, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == {offset: float(offset) for offset in range(8)}


def test_a_fork_has_a_process_of_its_own(benchmarks):
    order = order_of(benchmarks)
    process.grade(order, "submission.csv", GOOD)
    mine = process.pid_of(order)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run():
        theirs.send((process.grade(order, "submission.csv", GOOD), process.pid_of(order)))
        process.close_all()

    child = context.Process(target=run)
    child.start()
    score, pid = ours.recv()
    child.join()
    assert score == 0.0 and pid != mine
    assert process.grade(order, "submission.csv", GOOD) == 0.0
    assert process.pid_of(order) == mine


def test_few_processes_live_at_once(benchmarks, monkeypatch):
    monkeypatch.setattr(process, "MOST_PROCESSES", 2)
    order = order_of(benchmarks)
    orders = [dataclasses.replace(order, seconds=100.0 + number) for number in range(3)]
    for one in orders:
        process.grade(one, "submission.csv", GOOD)
    assert [process.pid_of(one) is None for one in orders] == [True, False, False]


def test_secrets_of_the_environment_do_not_reach_the_benchmark(benchmarks, start, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    code = "import os\ndef grade(a, b):\n    return 'SOME_API_KEY' in os.environ\n"
    assert start(order_of(benchmarks, code)).grade("submission.csv", GOOD) == 0.0


def test_a_grader_neither_writes_elsewhere_nor_reaches_the_network(benchmarks, start, tmp_path):
    code = """
        import pathlib, socket, tempfile


        def grade(submission, answers):
            tempfile.TemporaryFile().close()
            refused = 0
            for attempt in (
                lambda: pathlib.Path("{target}").write_text("x"),
                lambda: socket.create_connection(("127.0.0.1", {port}), timeout=5),
            ):
                try:
                    attempt()
                except PermissionError:
                    refused += 1
            return refused
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        filled = code.replace("{target}", str(tmp_path / "written")).replace("{port}", str(server.getsockname()[1]))
        assert start(order_of(benchmarks, filled)).grade("submission.csv", GOOD) == 2.0
    assert not (tmp_path / "written").exists()


def test_a_grader_may_use_several_processes(benchmarks, start):
    code = """
        import multiprocessing


        def double(value):
            return 2 * value


        def grade(submission, answers):
            with multiprocessing.Pool(2) as pool:
                return sum(pool.imap(double, submission["y"].tolist()))
    """
    grader = start(order_of(benchmarks, code))
    assert [grader.grade("submission.csv", GOOD) for _ in range(2)] == [120.0, 120.0]


def test_a_process_ends_with_who_started_it(benchmarks):
    order = order_of(benchmarks, "import time\ndef grade(a, b):\n    time.sleep(600)\n")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run():
        grader = GradingProcess(order)
        grader.check()
        threading.Thread(target=grader.grade, args=("submission.csv", GOOD), daemon=True).start()
        theirs.send(grader.pid)
        threading.Event().wait()

    child = context.Process(target=run)
    child.start()
    pid = ours.recv()
    child.kill()
    child.join()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=30)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_reasons_are_short(benchmarks, start):
    code = """
        from mlebench.grade_helpers import InvalidSubmissionError
        def grade(a, b):
            raise InvalidSubmissionError("too long " * 1000)
    """
    reason = start(order_of(benchmarks, code)).grade("submission.csv", GOOD)
    assert isinstance(reason, InvalidSubmission) and len(reason.reason) < 400
