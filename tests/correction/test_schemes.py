import doctest
import importlib
import pkgutil

import pytest

import wmrl_envs.correction
from wmrl_envs.correction import SCHEMES, get_scheme
from wmrl_envs.errors import ConfigurationError


def test_the_schemes_are_those_of_the_method():
    assert list(SCHEMES) == [
        "rectified",
        "paper",
        "debias",
        "denoise",
        "mixed",
        "world-model",
        "real",
        "anchors-only",
    ]
    parts = {s.name: (s.calibrate, s.weighted, s.rectified, s.anchor_fraction) for s in SCHEMES.values()}
    assert parts == {
        "rectified": (True, False, True, None),
        "paper": (True, True, False, None),
        "debias": (True, False, False, None),
        "denoise": (False, True, False, None),
        "mixed": (False, False, False, None),
        "world-model": (False, False, False, 0.0),
        "real": (False, False, False, 1.0),
        "anchors-only": (False, False, False, 1.0),
    }


def test_only_rectification_may_fit_on_turns():
    """The map of the best predicted turn underestimates the best real turn, which only rectification mends."""
    assert {s.name for s in SCHEMES.values() if s.pairs == "turn"} == {"rectified"}


def test_a_scheme_says_how_much_is_executed():
    assert get_scheme("rectified").fraction(0.1) == 0.1
    assert get_scheme("world-model").fraction(0.1) == 0.0
    assert get_scheme("real").fraction(0.1) == 1.0


@pytest.mark.parametrize(
    ("name", "hint"),
    [("rectify", "Did you mean 'rectified'"), ("world_model", "Did you mean 'world-model'"), (None, "got None")],
)
def test_an_unknown_scheme_names_the_valid_ones(name, hint):
    with pytest.raises(ConfigurationError, match=hint) as caught:
        get_scheme(name)
    assert "anchors-only" in str(caught.value)


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(wmrl_envs.correction.__path__)])
def test_the_docstrings_examples_hold(module):
    assert doctest.testmod(importlib.import_module(f"wmrl_envs.correction.{module}")).failed == 0


def test_everything_public_is_exported():
    assert sorted(wmrl_envs.correction.__all__) == sorted(set(wmrl_envs.correction.__all__))
    assert all(hasattr(wmrl_envs.correction, name) for name in wmrl_envs.correction.__all__)
