"""The design spaces: indices and programs, grouped choices, priors, and what makes a member sound."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from wmrl_envs.errors import ConfigurationError, TaskError
from wmrl_envs.research.board import task_without_board
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.designs import FAMILIES
from wmrl_envs.research.task import TASKS_DIR, bundled_tasks, load_task


def space_of(name: str) -> DesignSpace:
    return DesignSpace.of(task_without_board(TASKS_DIR / name))


@pytest.fixture(scope="module")
def titanic() -> DesignSpace:
    return space_of("titanic")


@pytest.mark.parametrize("name", bundled_tasks())
def test_every_member_of_every_bundled_task_is_a_program_of_its_own(name: str) -> None:
    space = space_of(name)
    codes = [space.solution(index) for index in range(space.size)]
    assert len(set(codes)) == space.size >= 500
    rng = np.random.default_rng(0)
    for code in (codes[index] for index in rng.choice(space.size, 40, replace=False)):
        ast.parse(code)
        assert (
            ("input/names.txt" if name == "training-loop" else "input/train.csv") in code
            and code.isascii()
            and code.endswith("\n")
        )
        assert max(len(line) for line in code.splitlines()) <= 140
        assert 12 <= len(code.splitlines()) <= 70


@pytest.mark.parametrize("name", ["titanic", "weather", "anes96", "training-loop"])
def test_the_recorded_spaces_have_the_size_that_their_comparisons_need(name: str) -> None:
    assert 4000 <= space_of(name).size <= 8000


def test_tabular_tasks_share_names_and_options() -> None:
    spaces = [space_of(name) for name in ("titanic", "weather", "anes96", "abalone", "arrests", "flights", "randhie")]
    assert len({(space.names, space.options) for space in spaces}) == 1


def test_index_and_choices_are_inverse(titanic: DesignSpace) -> None:
    for index in (0, 1, 777, titanic.size - 1):
        choices = titanic.choices(index)
        assert choices.dtype == np.int64 and choices.shape == titanic.nvec.shape
        assert titanic.index(choices) == index
        assert titanic.render(choices) is titanic.solution(index)
    assert titanic.size == int(titanic.nvec.prod())


def test_equal_arguments_give_the_same_object(titanic: DesignSpace) -> None:
    assert space_of("titanic") is titanic
    assert DesignSpace.of(titanic.task, blocks=[[0, 1], [2, 3], [4, 5]]) is DesignSpace.of(
        titanic.task, blocks=((0, 1), (2, 3), (4, 5))
    )


def test_grouped_choices_hold_the_same_members_under_the_same_indices(titanic: DesignSpace) -> None:
    grouped = DesignSpace.of(titanic.task, blocks=((0, 3), (1, 2), (4, 5)))
    assert grouped.nvec.tolist() == [
        titanic.nvec[0] * titanic.nvec[3], titanic.nvec[1] * titanic.nvec[2], titanic.nvec[4] * titanic.nvec[5]
    ]  # fmt: skip
    assert grouped.size == titanic.size
    for index in (0, 5, 4321):
        assert grouped.solution(index) == titanic.solution(index)
        assert grouped.index(grouped.choices(index)) == index
    for logits, (first, second) in zip(grouped.prior_logits, ((0, 3), (1, 2), (4, 5)), strict=True):
        product = np.add.outer(titanic.prior_logits[first], titanic.prior_logits[second]).ravel()
        np.testing.assert_allclose(logits, product, atol=1e-12)
    whole = DesignSpace.of(titanic.task, blocks=(tuple(range(len(titanic.nvec))),))
    assert whole.nvec.tolist() == [titanic.size] and whole.index([99]) == 99


def test_partitions_have_names(titanic: DesignSpace) -> None:
    count = len(titanic.nvec)
    assert DesignSpace.of(titanic.task, blocks="choices").blocks == titanic.blocks
    halves = DesignSpace.of(titanic.task, blocks="halves")
    assert halves.blocks == (tuple(range(count - 2)), (count - 2, count - 1))
    assert DesignSpace.of(titanic.task, blocks="joint").nvec.tolist() == [titanic.size]
    with pytest.raises(ConfigurationError, match="Did you mean 'halves'"):
        DesignSpace.of(titanic.task, blocks="halfs")


def test_describe_names_the_options_taken(titanic: DesignSpace) -> None:
    described = titanic.describe(titanic.choices(0))
    assert list(described) == list(titanic.names)
    assert described["encoding"] == "strings left"


@pytest.mark.parametrize(
    "blocks", [((0, 1),), ((0, 0), (1, 2, 3, 4, 5)), ((0, 1, 2, 3, 4, 5), ()), ((0, 1, 2, 3, 4, 6),)]
)
def test_blocks_that_are_no_partition_are_refused(titanic: DesignSpace, blocks: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ConfigurationError, match="blocks must hold each of the choices 0 to 5 once"):
        DesignSpace.of(titanic.task, blocks=blocks)


def test_wrong_choices_are_refused_by_name(titanic: DesignSpace) -> None:
    with pytest.raises(ConfigurationError, match="option 3 of 'encoding' is out of range"):
        titanic.render([0, 3, 0, 0, 0, 0])
    with pytest.raises(ConfigurationError, match="expected 6 whole numbers"):
        titanic.index([0, 0])
    with pytest.raises(ConfigurationError, match="expected 6 whole numbers"):
        titanic.index([0.0, 0, 0, 0, 0, 0])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match=f"members 0 to {titanic.size - 1}, got -1"):
        titanic.solution(-1)


def test_samples_follow_the_prior(titanic: DesignSpace) -> None:
    drawn = titanic.sample(20_000, np.random.default_rng(3))
    assert drawn.shape == (20_000, len(titanic.nvec)) and drawn.dtype == np.int64
    for column, logits in zip(drawn.T, titanic.prior_logits, strict=True):
        shares = np.bincount(column, minlength=len(logits)) / len(drawn)
        np.testing.assert_allclose(shares, np.exp(logits), atol=0.015)
        assert np.exp(logits).sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(drawn, titanic.sample(20_000, np.random.default_rng(3)))


def test_sound_members_take_no_option_that_is_a_bug(titanic: DesignSpace) -> None:
    sound = titanic.bug_free()
    assert 150 < len(sound) < titanic.size / 2
    for index in sound[::40].tolist():
        code = titanic.solution(index)
        assert ".to_csv(" in code and '"Fare"' not in code and "20000" not in code
        assert "OneHotEncoder" in code or "OrdinalEncoder" in code


def test_only_members_that_draw_random_numbers_count_as_seeded(titanic: DesignSpace) -> None:
    for index in range(0, titanic.size, 37):
        code = titanic.solution(index)
        draws = any(word in code for word in ("Forest", "ExtraTrees", "DecisionTree", "np.random"))
        assert titanic.seeded(index) == draws


def test_a_task_without_a_design_says_how_to_state_one(write_task) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TaskError, match=r"has no design space; add \"design\""):
        DesignSpace.of(load_task(write_task()))


def test_an_unknown_family_is_named_with_the_known_ones(write_task) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TaskError, match="unknown family 'tabluar'.*Did you mean 'tabular'"):
        DesignSpace.of(load_task(write_task(design={"family": "tabluar"})))


def test_columns_and_features_of_ones_own_table_are_derived(write_task) -> None:  # type: ignore[no-untyped-def]
    space = DesignSpace.of(load_task(write_task(design={"family": "tabular"})))
    code = space.solution(int(space.bug_free()[-1]))
    assert 'numeric = ["size"]' in code and 'categorical = ["colour"]' in code and 'train["target"]' in code
    assert space.names == space_of("titanic").names


def test_a_recipe_in_the_task_folder_comes_first(write_task) -> None:  # type: ignore[no-untyped-def]
    design = {
        "family": "tabular",
        "lines": ['frame["double"] = 2 * frame["size"]'],
        "new_numeric": ["double"],
        "band": "size",
        "edges": [-2, 3, 100],
        "narrow": [-2, 3, 5],
        "misspelt": ["size", "sise"],
    }
    space = DesignSpace.of(load_task(write_task(design=design)))
    codes = [space.solution(index) for index in range(space.size)]
    assert any('frame["double"] = 2 * frame["size"]' in code for code in codes)
    assert any('2 * frame["sise"]' in code for code in codes)
    assert any("[-2, 3, 5]" in code for code in codes)


def test_a_column_that_the_data_lack_is_refused(write_task) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TaskError, match="names the column 'sizes'.*Did you mean 'size'"):
        DesignSpace.of(load_task(write_task(design={"family": "tabular", "numeric": ["sizes"]})))


def test_a_label_of_words_needs_its_positive_class(write_task) -> None:  # type: ignore[no-untyped-def]
    folder: Path = write_task(design={"family": "tabular"})
    train = folder / "public" / "train.csv"
    header, *rows = train.read_text().splitlines()
    train.write_text("\n".join([header, *(row[:-1] + {"0": "no", "1": "yes"}[row[-1]] for row in rows)]) + "\n")
    with pytest.raises(TaskError, match="name the class whose probability is asked for"):
        DesignSpace.of(load_task(folder))


@pytest.mark.parametrize("family", ["text", "image", "training"])
def test_families_refuse_data_that_they_have_no_solutions_for(write_task, family: str) -> None:  # type: ignore[no-untyped-def]
    design = {"family": family, "text": ["nothing"]}
    with pytest.raises(TaskError, match=f"the {family} family needs"):
        DesignSpace.of(load_task(write_task(design=design)))
    assert family in FAMILIES
