"""Tokens of the syntax tree, and the table of solutions."""

import numpy as np
import pytest

from wmrl_envs.world_models.features import DataNames, FeatureTable, syntax_tokens

NAMES = DataNames(
    columns=frozenset({"id", "age", "fare", "survived"}),
    identifier="id",
    targets=frozenset({"survived"}),
    files=frozenset({"train.csv", "test.csv"}),
)
CODE = '''"""Prose about Fare is no feature."""
import pandas as pd
from sklearn.linear_model import LogisticRegression as Model

train = pd.read_csv("input/train.csv")
model = Model(C=10, solver="saga").fit(train[["age"]], train["survived"])
train["ratio"] = train["fare"] / train["agee"]
pd.DataFrame({"id": train["id"], "survived": scores}).to_csv("submission.csv", index=False)
'''


def test_tokens_name_what_the_code_does_with_the_data():
    tokens = syntax_tokens(CODE, NAMES)
    assert {
        "import:pandas",
        "import:sklearn.linear_model.LogisticRegression",
        "call:Model",
        "call:read_csv",
        "kw:Model.solver",
        "kw:Model.solver=saga",
        "kw:Model.C",
        "kw:to_csv.index=False",
        "column:age",
        "column:<id>",
        "column:<target>",
        "argument:DataFrame(<id>)",
        "new-column:ratio",
        "unknown-column:agee",
        "undefined:scores",
        "file:train.csv",
        "writes-submission",
    } <= tokens
    assert not any("Prose" in token or "Fare" in token for token in tokens)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = f(3)", "x = f(5000)"),
        ("x = f(n=3, rate=1e-3)", "x = f(n=700, rate=2.5)"),
        ("x = [1, 2.5]", "x = [7, 1j]"),
        ("x = 1  # a", "x = 1"),
    ],
)
def test_numbers_and_comments_are_invisible(one, other):
    assert syntax_tokens(one, NAMES) == syntax_tokens(other, NAMES)


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ("f(flag=True)", "f(flag=False)", {"kw:f.flag=True", "kw:f.flag=False"}),
        ("f(train['age'])", "f(train['cabin'])", {"column:age", "text:cabin", "unknown-column:cabin"}),
        ("import os\nos", "os", {"import:os", "undefined:os"}),
        ("x = 1\nx", "y", {"name:x", "undefined:y"}),
        ("def g(a): return a", "lambda a: a", {"defines:g", "name:g", "syntax:Lambda"}),
        ("print(f.mean)", "print(f.mean())", {"attribute:mean", "call:mean"}),
    ],
)
def test_what_a_change_changes(one, other, difference):
    assert syntax_tokens(one, NAMES) ^ syntax_tokens(other, NAMES) == difference


@pytest.mark.parametrize("code", ["", "# nothing", "a.b.c[0]().d = 1", "(lambda: 0)()", "f(*a, **k)", "x: int = 1"])
def test_any_code_that_compiles_has_tokens(code):
    assert isinstance(syntax_tokens(code, NAMES), frozenset)


def test_deeply_nested_code_has_tokens():
    branches = "".join(" " * depth + "if x:\n" for depth in range(60))
    code = "x = " + "(" * 90 + "1" + ")" * 90 + "\n" + branches + " " * 60 + "pass\n"
    assert "syntax:If" in syntax_tokens(code, NAMES)


def test_equal_tokens_share_a_row_and_distances_ignore_the_order_of_arrival():
    codes = ["a = 1", "b = f(a)", "a = 2", "c = g(x=1)", *(f"v{i} = {i}" for i in range(600))]
    tables = [FeatureTable(NAMES), FeatureTable(NAMES)]
    rows = [[table.row(code) for code in order] for table, order in zip(tables, (codes, codes[::-1]), strict=True)]
    assert rows[0][0] == rows[0][2]
    assert len(tables[0]) == len(tables[1]) == len(codes) - 1
    assert "a = 2" in tables[0] and "a = 3" not in tables[0]
    matrices = [tables[0].matrix[rows[0]], tables[1].matrix[rows[1][::-1]]]
    grams = [matrix @ matrix.T for matrix in matrices]
    np.testing.assert_array_equal(*grams)
    assert set(np.unique(matrices[0])) == {0.0, 1.0}


def test_names_survive_json():
    assert DataNames.from_state(NAMES.state_dict()) == NAMES
