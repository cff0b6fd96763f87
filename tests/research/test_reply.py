import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.research.grading import MAX_CODE_CHARS, Submission, gate
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.reply import extract_code

CODE = "import pandas as pd\n\nprint(pd.__version__)"


def reply(text):
    return textwrap.dedent(text).strip("\n")


PLAN = reply("""
    I would fit a forest.

    ```
    for each fold: fit, predict
    ```

    Here it is:

    ```py
    import pandas as pd

    print(pd.__version__)
    ```

    This should do.
    """)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_python_fence_after_prose_and_pseudo_code(end):
    assert extract_code(PLAN.replace("\n", end)) == CODE


@pytest.mark.parametrize(
    "info",
    [
        "python",
        "Python",
        " python ",
        "py",
        "python3",
        "python3.11",
        "ipython",
        "{python}",
        "{.python}",
        "python title=a.py",
    ],
)
def test_names_of_python(info):
    assert extract_code(f"```{info}\n{CODE}\n```\n```\nx = 1\n```") == CODE


@pytest.mark.parametrize(
    "info", ["bash", "json", "pycon", "pytb", "text", "output", "python-repl", "pyright", "r", "c++"]
)
def test_other_languages_are_no_code(info):
    assert extract_code(f"```{info}\nx = 1\n```") is None
    assert extract_code(f"```python\n{CODE}\n```\nRun it:\n```{info}\nx = 1\n```") == CODE


def test_the_last_of_two_python_fences():
    assert extract_code(f"```python\nx = 1\n```\nBetter:\n```python\n{CODE}\n```") == CODE
    assert extract_code(f"```python\n{CODE}\n```\n```python\n\n  \n```") == CODE
    assert extract_code("```python\nx = 1\n```\n```python\ndef (\n```") == "def ("


def test_a_bare_fence_counts_where_none_names_python():
    assert extract_code(f"```\n{CODE}\n```\nprints\n```\n3.0.1 (or so)\n```") == CODE
    assert extract_code("```\nfor each fold: fit\n```\n```\nthen predict it\n```") == "then predict it"
    assert extract_code("```\n\n```") is None


def test_an_unclosed_fence_goes_to_the_end():
    assert extract_code(f"Sure:\n```python\n{CODE}\n") == CODE + "\n"
    assert extract_code(f"```\n{CODE}") == CODE
    assert extract_code("```python") is None


def test_a_fence_left_open_does_not_swallow_the_answer():
    assert extract_code(f"<think>\n```python\nx = \nHm.\n</think>\n```python\n{CODE}\n```\nDone.") == CODE
    assert extract_code(f"```\npseudo code\n```python\n{CODE}\n```") == CODE


def test_tilde_fences():
    assert extract_code(f"~~~python\n{CODE}\n~~~\nbye") == CODE
    inner = "text = '''\n```\nnot the end\n```\n'''"
    assert extract_code(f"~~~ py\n{inner}\n~~~~") == inner


def test_longer_fences_hold_shorter_ones():
    inner = "TEXT = '''\n```python\nx = 1\n```\n'''"
    assert extract_code(f"````python\n{inner}\n````\nbye") == inner
    assert extract_code(f"```python\n{CODE}\n`````\nbye") == CODE


def test_a_reply_wrapped_in_markdown():
    assert extract_code(f"````markdown\n# Answer\n```python\n{CODE}\n```\n````") == CODE
    assert extract_code(f"```markdown\n# Answer\n```python\n{CODE}\n```\n```") == CODE
    assert extract_code("```md\n# Answer\n```") is None


def test_indented_fences_lose_their_indentation():
    loop = "for i in range(2):\n    print(i)"
    listed = "1. Do this:\n\n" + textwrap.indent(f"```python\n{loop}\n```", "   ")
    assert extract_code(listed) == loop
    assert extract_code(f"    ```python\n{loop}\n    ```") == loop
    assert extract_code(textwrap.indent(f"```python\n{loop}\n```", "\t")) == loop


def test_a_fence_at_the_end_of_a_sentence():
    assert extract_code(f"The solution: ```python\n{CODE}\n```\nThat is all.") == CODE


def test_backticks_within_a_sentence_or_a_line_of_code_are_no_fence():
    assert extract_code("Use ```x = 1``` here.\n```x = 1``` too.") is None
    line = "print('```python')\nx = '''a ```\n'''"
    assert extract_code(f"```python\n{line}\n```") == line


def test_line_separators_inside_strings_stay():
    code = 'x = "a\u2028b\x0cc\x85d"'
    assert extract_code(f"```python\n{code}\n```") == code


@pytest.mark.parametrize(
    "code",
    ["print('hello')", "import os", "x = 1", "\n\ndef f():\n    pass", "for i in range(3):\n    pass", "f(1) + 2"],
)
def test_a_reply_without_fences_that_is_a_program(code):
    assert extract_code(code) == code.strip("\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "hello",
        "None",
        "I am not sure.",
        "yes, no",
        "42",
        "'a text'",
        "# a comment",
        "x",
        "def f(:",
        "-",
        "a.b[0]",
    ],
)
def test_a_reply_without_fences_that_is_no_program(text):
    assert extract_code(text) is None


def test_code_with_nul_bytes_reaches_the_gate():
    code = extract_code("```python\nx = '\0'\n```")
    assert code == "x = '\0'"
    assert gate(Submission(task=None, code=code)).status is Status.MALFORMED
    assert extract_code("x = '\0'") is None


def test_a_megabyte_of_code_is_extracted_whole_and_refused_by_the_gate():
    code = "x = 1\n" * 170_000
    extracted = extract_code(f"```python\n{code}```")
    assert extracted + "\n" == code
    assert len(extracted) > MAX_CODE_CHARS
    assert gate(Submission(task=None, code=extracted)).status is Status.MALFORMED


def steps(text):
    """Lines of Python executed by one extraction: a measure of time that a busy machine does not change."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        extract_code(text)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(
    "unit", ["```", "~~~", "` ", "```\n", "```python\n", "````md\n", "a ```py\n", " ", "\n", "\r", "```py ", "{"]
)
def test_a_megabyte_of_anything_ends(unit):
    text = unit * (2**20 // len(unit))
    extract_code(text)
    extract_code("```" + text)
    # One order of magnitude more text takes about one order of magnitude more steps.
    assert steps(unit * 1000) < 20 * steps(unit * 100)


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text_has_an_answer(text):
    code = extract_code(text)
    assert code is None or code.strip()


PIECES = st.sampled_from(
    [
        "```",
        "````",
        "~~~",
        "python",
        "py",
        "markdown",
        "\n",
        "\r\n",
        " ",
        "\t",
        "x = 1",
        "prose",
        "{",
        "'''",
        "\0",
        "\ud800",
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
@settings(max_examples=500, deadline=None)
def test_any_heap_of_fences_has_an_answer(text):
    code = extract_code(text)
    assert code is None or (code.strip() and "\r" not in code)


@given(st.text(alphabet=st.characters(exclude_characters="`~\r"), min_size=1).filter(str.strip), st.text())
@settings(deadline=None)
def test_the_last_python_fence_is_returned_to_the_letter(code, prose):
    prose = prose.replace("`", "").replace("~", "")
    assert extract_code(f"{prose}\n```python\n{code}\n```") == code
