"""Drawing ahead, that a CPU captures nothing, and whose gradients a step descends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest
import torch
from torch import Tensor, nn

from hagmeta.common.errors import UserError
from hagmeta.packs import device
from hagmeta.packs.capture import AHEAD, Capture, Steps, _drawn_ahead, stream_of
from hagmeta.packs.pack import Pack

CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=on_gpu)]


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


def test_a_gpu_without_triton_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device, "gpu_usable", lambda: False)
    assert device.choose_device("auto") == CPU
    with pytest.raises(UserError, match="Triton is not installed"):
        device.choose_device("cuda")


class Line(nn.Module):
    """Two weights whose gradients are what is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    def forward(self, step: str, drawn: Tensor) -> tuple[Tensor, Tensor]:
        return (drawn * (self.one + self.other)).sum(), drawn


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_each_step_s_own_or_add_up_in_place(device: torch.device) -> None:
    drawn = torch.tensor([[1.0, 2.0], [3.0, 5.0], [-7.0, 11.0], [13.0, 17.0]])  # (steps, seeds)
    with stream_of(device), Capture(device) as capture:
        pack = Pack([Line(), Line()], device)
        steps = Steps(pack, 0.1, 0.0, capture, summed=("other",))
        place = None
        for number, row in enumerate(drawn):
            if number == 3:  # a later phase, as sessions are after training, goes on with the sums
                steps = steps.under(Capture(device))
            steps.take("loss", (), (), (row,))
            own, summed = pack.parameters["one"].grad, pack.parameters["other"].grad
            assert own is not None and summed is not None
            assert torch.equal(own.flatten().cpu(), row)
            assert torch.equal(summed.flatten().cpu(), drawn[: number + 1].sum(0))
            assert place in (None, summed.data_ptr())
            place = summed.data_ptr()
        fresh = Steps(pack, 0.1, 0.0, Capture(device))
        fresh.take("loss", (), (), (drawn[0],))
        grads = [value.grad for value in pack.parameters.values()]
        assert all(grad is not None and torch.equal(grad.flatten().cpu(), drawn[0]) for grad in grads)
