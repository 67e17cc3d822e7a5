"""What can be seen without a GPU: drawing ahead, and that a CPU captures nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.packs import device
from hagmeta.packs.capture import AHEAD, Capture, _drawn_ahead, ahead

CPU = torch.device("cpu")


def drawing_threads() -> int:
    return sum(thread.name.endswith("(draw)") for thread in threading.enumerate())


def test_what_is_drawn_ahead_comes_in_order_and_ends() -> None:
    assert list(_drawn_ahead(range(100))) == list(range(100))
    assert list(_drawn_ahead(())) == []
    assert drawing_threads() == 0


def test_no_more_is_drawn_ahead_than_there_is_room_for() -> None:
    drawn = []

    def numbers() -> Iterator[int]:
        for number in count():
            drawn.append(number)
            yield number

    assert list(islice(_drawn_ahead(numbers()), 10)) == list(range(10))
    assert 10 <= len(drawn) <= 10 + AHEAD + 2
    assert drawing_threads() == 0  # though there is no end to what it could draw


def test_an_error_is_raised_where_the_items_are_used() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)
        raise ValueError("no more")

    items, seen = _drawn_ahead(numbers()), []
    with pytest.raises(ValueError, match="no more"):
        for item in items:
            seen.append(item)
    assert seen == [0, 1, 2]


def test_a_cpu_draws_when_it_needs_and_computes_every_time() -> None:
    # An episode that was drawn too early would not harm, but its thread takes a core.
    drawn: list[int] = []
    items = ahead((drawn.append(number) or number for number in range(5)), CPU)
    assert next(items) == 0 and drawn == [0]
    capture = Capture(CPU)
    runs = [capture.run("twice", lambda x: 2 * x, (torch.tensor(number),)) for number in range(4)]
    assert [int(value) for value in runs] == [0, 2, 4, 6]


def test_a_gpu_without_triton_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device, "gpu_usable", lambda: False)
    assert device.choose_device("auto") == CPU
    with pytest.raises(UserError, match="Triton is not installed"):
        device.choose_device("cuda")
