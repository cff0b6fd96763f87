"""A suite of hidden tests as a task: the solution's module runs apart, and whatever it tries gains nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attacking import TRY, needs_strict

from wmrl_envs.research.check import check_task
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome, Status
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import load_task

pytestmark = needs_strict

CASES = [["Hello World", "hello-world"], ["  a  b ", "a-b"], ["SECRET case", "secret-case"], ["", ""]]

RUN_TESTS = """
import json

from apart import run_apart

with open("private/cases.json") as file:
    cases = json.load(file)
PROGRAM = '''
import json, sys
from slug import slugify

answers = []
for question in json.load(sys.stdin):
    try:
        answers.append(slugify(question))
    except Exception:
        answers.append(None)
print(json.dumps(answers))
'''
ended = run_apart(PROGRAM, json.dumps([question for question, _ in cases]), seconds=1)
try:
    answers = json.loads(ended.output.strip().rpartition("\\n")[2])
    passed = sum(answer == expected for answer, (_, expected) in zip(answers, cases, strict=True))
except (TypeError, ValueError, RecursionError):
    passed = 0
import colorsys  # as late as a module of the solution's could take its place
print(json.dumps({
    "score": passed / len(cases),
    "feedback": f"{passed} of {len(cases)} tests pass; {ended.problem or 'it ended well'}\\n{ended.output[-900:]}",
}))
"""

SLUGIFY = """
def slugify(text):
    return "-".join(text.lower().split())
"""


@pytest.fixture
def suite(write_code_task) -> Path:
    folder = write_code_task(
        RUN_TESTS,
        "slugs",
        {"private/cases.json": json.dumps(CASES), "example.py": f'open("slug.py", "w").write({SLUGIFY!r})\n'},
        metric="tests_passed",
        grader_limits={"processes": 1, "seconds": 4, "memory_mb": 256},
    )
    manifest = json.loads((folder / "task.json").read_text()) | {"files": ["slug.py"]}
    (folder / "task.json").write_text(json.dumps(manifest))
    return folder


def graded_module(strict: ProcessSandbox, folder: Path, module: str) -> Outcome:
    code = f'with open("slug.py", "w") as file:\n    file.write({module!r})\n'
    [outcome] = strict.grade([Submission(load_task(folder), code)])
    assert outcome is not None
    return outcome


def test_the_share_of_tests_that_pass_is_the_score(suite, strict):
    assert graded_module(strict, suite, SLUGIFY).score == 1.0
    half = graded_module(strict, suite, "def slugify(text): return text.lower().replace(' ', '-')")
    assert half.score == 0.75 and "3 of 4 tests pass" in half.feedback
    broken = graded_module(strict, suite, "def slugify(text: return 1")
    assert broken.score == 0.0 and "SyntaxError" in broken.feedback
    missing = graded_module(strict, suite, "raise RuntimeError('no')")
    assert missing.score == 0.0 and "RuntimeError: no" in missing.feedback


FORGED = '{"score": 1.0, "report_score": 1.0}'


@pytest.mark.parametrize(
    "module",
    [
        f"import os; os.write(1, b'{FORGED}\\n'); os._exit(0)",
        f"import atexit; atexit.register(print, '{FORGED}')\ndef slugify(text): return text",
        "import json; json.dumps = lambda answers: '[true, true, true, true]'\ndef slugify(text): return 1",
        "class Any(str):\n    def __eq__(self, other): return True\ndef slugify(text): return Any('x')",
        "print('[' * 100_000); import os; os._exit(0)",
        "print('[1, 2'); import os; os._exit(0)",
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
        "import os, signal; os.killpg(0, signal.SIGKILL)",
        "import time; time.sleep(60)",
        "while True: pass",
        "x = bytearray(10**9); x[::4096] = bytes([1]) * len(x[::4096])",
        "import os\nwhile os.fork() == 0: pass\nwhile True: pass",
        "while True: print('x' * 10_000)",
        "import os, sys\nos.dup2(1, 9)\nsys.stdout.close()\nos.close(1)\nimport time; time.sleep(60)",
    ],
)
def test_a_module_that_cheats_passes_no_test(module, suite, strict):
    outcome = graded_module(strict, suite, module)
    # the empty text is its own slug: an identity passes that one test
    assert outcome.score in (None, 0.0, 0.25)
    assert outcome.status in (Status.VALID, Status.INVALID_SUBMISSION)


def test_a_module_reaches_neither_the_tests_nor_the_command(suite, strict):
    module = f"""
import os, signal
{TRY}
forged = "import os; os.write(1, b'{{\\"score\\": 1.0}}\\\\n'); os._exit(0)"
here = os.path.abspath("..")
def write(path):
    with open(path, "w") as file:
        file.write(forged)
def read(path):
    with open(path, "rb") as file:
        return file.read(100)
attempt("cases", read, "../private/cases.json")
attempt("private", os.listdir, "../private")
attempt("original", read, os.path.realpath("../input") + "/../private/cases.json")
attempt("listed", os.listdir, os.path.realpath("../input") + "/..")
attempt("new private", os.mkdir, "../private")
attempt("module", write, "../colorsys.py")
attempt("helper", write, "../apart.py")
attempt("own file", write, "../submission/slug.py")
attempt("move", os.rename, ".apart.py", "../colorsys.py")
attempt("link", os.symlink, "/etc/passwd", "../colorsys.py")
attempt("remove", os.remove, "../submission/slug.py")
attempt("truncate", os.truncate, "../submission/slug.py", 0)
attempt("terminate", os.kill, os.getppid(), signal.SIGTERM)
attempt("stop", os.kill, os.getppid(), signal.SIGSTOP)
attempt("group", os.killpg, 0, 0)
attempt("memory", read, f"/proc/{{os.getppid()}}/mem")
attempt("environment", read, f"/proc/{{os.getppid()}}/environ")
attempt("output", write, f"/proc/{{os.getppid()}}/fd/1")
syscall("ptrace", 101, 16, os.getppid(), 0, 0)
syscall("pidfd", 438, 3, 1, 0)
print("own folder:", sorted(os.listdir(".")))
def slugify(text): return 1
"""
    outcome = graded_module(strict, suite, module)
    assert outcome.score == 0.0, outcome.feedback
    lines = [line for line in outcome.feedback.split("\n") if " failed" in line or "SUCCEEDED" in line]
    # signal 0 to the group is sent to the module itself, and the command outside its domain is passed over
    assert [line.split()[0] for line in lines if "SUCCEEDED" in line] in ([], ["group"]), outcome.feedback
    assert "ptrace failed" in outcome.feedback and "own folder: ['.apart.py', 'slug.py']" in outcome.feedback
    assert len(lines) >= 15 and "SECRET" not in outcome.feedback


def test_a_module_may_write_to_its_own_folder_and_import_libraries(suite, strict):
    module = """
import numpy, os, tempfile
with open("cache.txt", "w") as file:
    file.write("x")
with tempfile.TemporaryFile("w") as file:
    file.write("x")
print("quiet", file=open(os.devnull, "w"))
def slugify(text):
    return "-".join(text.lower().split()) if numpy.ones(3).sum() == 3 else ""
"""
    assert graded_module(strict, suite, module).score == 1.0


def test_the_documented_suite_tells_none_of_its_questions(tmp_path, monkeypatch, strict):
    guide = (Path(__file__).parents[3] / "docs" / "command_tasks.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(guide.split("```python\n")[1].split("\n```\n")[0], {})
    cases = json.loads(Path("slugs/private/cases.json").read_text(encoding="utf-8"))
    tells = "said = []\ndef slugify(text):\n    said.append(text)\n"
    for end in (f"    if len(said) == {len(cases)}: raise SystemExit(repr(said))", "    print(said)\n    return text"):
        outcome = graded_module(strict, Path("slugs"), tells + end)
        assert not [question for question, _ in cases if len(question) > 2 and question in outcome.feedback]
        assert "Über" not in outcome.feedback
    broken = graded_module(strict, Path("slugs"), "def slugify(text: 1")
    assert broken.feedback == "slug.py gives no answers. SyntaxError: '(' was never closed"


def test_the_folder_is_complete(suite, strict):
    assert check_task(suite, strict) == []


def test_without_isolation_the_suite_still_grades(suite):
    with ProcessSandbox(isolation="none", workers=1) as sandbox:
        assert graded_module(sandbox, suite, SLUGIFY).score == 1.0
