"""Labels that a progress model goes on learning from."""

import json

import numpy as np
import pytest

from wmrl_envs.robotics.label_memory import AdaptiveModel, LabelMemory


class Recorder:
    """Notes what it adapts to."""

    def __init__(self):
        self.calls = []

    def score(self, videos, instructions):
        return [None] * len(videos)

    def adapt(self, videos, instructions, labels):
        self.calls.append(([video.tobytes() for video in videos], list(instructions), list(labels)))


def labelled(start, count):
    """Return rollouts that are all different."""
    numbers = range(start, start + count)
    videos = [np.random.default_rng(number).integers(0, 256, (4, 3, 5, 3), np.uint8) for number in numbers]
    return videos, [f"open drawer {number}" for number in numbers], [number / 7 for number in numbers]


def test_when_it_adapts_and_to_what():
    model = Recorder()
    memory = LabelMemory(model)
    for start in range(0, 60, 4):
        memory.learn(*labelled(start, 4))
    assert isinstance(model, AdaptiveModel)
    assert [len(labels) for *_, labels in model.calls] == [24, 40, 56]
    assert model.calls[-1][2] == [number / 7 for number in range(56)]
    assert model.calls[-1][1][3] == "open drawer 3"


def test_many_labels_at_once_adapt_once():
    model = Recorder()
    LabelMemory(model).learn(*labelled(0, 100))
    assert [len(labels) for *_, labels in model.calls] == [100]


def test_the_last_512_count():
    model = Recorder()
    memory = LabelMemory(model)
    for start in range(0, 640, 16):
        memory.learn(*labelled(start, 16))
    assert model.calls[-1][2] == [number / 7 for number in range(128, 640)]
    assert len(memory) == 512


@pytest.mark.parametrize("before", [0, 8, 30, 44, 517, 600])
def test_a_resumed_run_goes_on_as_the_unbroken_one(before):
    """Also when labels have come in since the model adapted last, some of them past the window."""
    unbroken, broken = Recorder(), Recorder()
    memory, first = LabelMemory(unbroken), LabelMemory(broken)
    for one in (memory, first):
        for start in range(0, before, 6):
            one.learn(*labelled(start, min(6, before - start)))
    resumed = Recorder()
    second = LabelMemory(resumed)
    state = json.loads(json.dumps(first.state_dict()))
    second.load_state_dict(state)
    assert second.state_dict() == state
    assert resumed.calls == broken.calls[-1:]  # the model stands where it stood
    done = len(unbroken.calls)
    for one in (memory, second):
        for start in range(before, before + 50, 5):
            one.learn(*labelled(start, 5))
    assert resumed.calls[len(broken.calls[-1:]) :] == unbroken.calls[done:] != []
    assert second.state_dict() == memory.state_dict()


def test_going_back_to_before_the_first_adaptation():
    model = Recorder()
    memory = LabelMemory(model)
    memory.learn(*labelled(0, 10))
    state = memory.state_dict()
    memory.learn(*labelled(10, 30))
    memory.load_state_dict(state)
    assert model.calls[-1] == ([], [], [])
    assert memory.state_dict() == state
