"""Which sequences share a beginning, and which run together."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.world_models.backends._packing import Tree, batches, common_prefix

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12)


@given(SEQUENCES)
def test_a_tree_divides_sequences_by_what_they_share(sequences):
    tree = Tree(sequences)
    assert sorted(tree.order) == list(range(len(sequences)))

    def check(first, end):
        shared = tree.shared(first, end)
        for i in tree.order[first:end]:
            assert sequences[i][: len(shared)] == shared and len(sequences[i]) > len(shared)
        if end - first == 1:
            return
        parts = list(tree.parts(first, end))
        assert len(parts) > 1 and (parts[0][0], parts[-1][1]) == (first, end)
        assert all(a[1] == b[0] for a, b in pairwise(parts))
        for part in parts:
            assert len(tree.shared(*part)) >= len(shared)
            check(*part)

    check(0, len(sequences))


@given(
    st.lists(st.integers(1, 50), max_size=20), st.integers(1, 5), st.integers(1, 200), st.integers(1, 3), st.booleans()
)
def test_batches_hold_each_sequence_once_within_their_limits(lengths, rows, tokens, copies, even):
    found = batches(lengths, prefix=10, rows=rows, tokens=tokens, cost=8, copies=copies, room=3, even=even)
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    for batch in found:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * copies <= min(rows, tokens // (10 + longest + 3))
        assert not even or {lengths[i] for i in batch} == {longest}


@pytest.mark.parametrize(
    ("cost", "expected"), [(0, [[1, 3], [0], [2]]), (10, [[1, 3], [0, 2]]), (1000, [[1, 3, 0, 2]])]
)
def test_padding_is_weighed_against_passes(cost, expected):
    assert batches([20, 100, 15, 100], prefix=0, rows=8, tokens=1000, cost=cost) == expected


def test_a_common_prefix_ends_where_the_shorter_one_does():
    assert common_prefix((1, 2, 3), (1, 2)) == 2 and common_prefix((), (1,)) == 0
