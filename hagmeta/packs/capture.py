"""What a pack does again and again: on a GPU captured once a shape as a CUDA graph, and replayed.

An episode is some hundred small kernels, which take longer to launch one by one than to run.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from queue import Queue
from threading import Thread
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from hagmeta.packs.pack import Pack

Item = TypeVar("Item")
AHEAD = 16  # items drawn before they are needed
_idle_streams: defaultdict[torch.device, list[torch.cuda.Stream]] = defaultdict(list)


class Capture:
    """Runs computations on a device; what is drawn for them changes from one run to the next.

    On a GPU the first run is an ordinary one, the second is captured, and later ones replay it: so what a
    computation returns lasts until the next run only. On a CPU, and ``eager``, all runs are ordinary.
    """

    def __init__(self, device: torch.device, *, eager: bool = False) -> None:
        self._device = device
        self._captures = device.type == "cuda" and not eager
        self._known: set[Hashable] = set()
        self._captured: dict[Hashable, _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._captures else None

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *error: object) -> None:
        """Let go of what was captured, and of its memory."""
        self._captured.clear()

    def run(self, name: Hashable, compute: Callable[..., Any], drawn: tuple[Any, ...]) -> Any:
        """``compute(*drawn)``, with what was drawn moved to the device; ``name`` tells computations apart."""
        shape = (name, *(leaf.shape for leaf in tree_leaves(drawn)))
        if not self._captures or shape not in self._known:
            self._known.add(shape)
            return compute(*tree_map(self._moved, drawn))
        if shape not in self._captured:
            if not self._captured:
                # Memory that ordinary runs and older captures have left cannot be had back during one.
                torch.cuda.empty_cache()
            try:
                self._captured[shape] = _Captured(compute, tree_map(self._own, drawn), self._pool)
            except BaseException:
                self._pool = torch.cuda.graph_pool_handle()  # the other is not to be used again
                raise
        return self._captured[shape].replay(drawn)

    def _moved(self, value: Tensor) -> Tensor:
        return value.to(self._device, non_blocking=True)

    def _own(self, value: Tensor) -> Tensor:
        return torch.empty_like(value, device=self._device, pin_memory=False)


class _Captured:
    """One computation, with the place from which it reads what is drawn for it."""

    def __init__(self, compute: Callable[..., Any], inputs: tuple[Any, ...], pool: Any) -> None:
        self._compute = compute  # what it refers to must stay where it is
        self._inputs = tree_leaves(inputs)
        self._graph = torch.cuda.CUDAGraph()
        with _no_collection():  # an older graph that went away now would spoil this one
            # Other threads may go on meanwhile with what a capture forbids.
            self._graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                self._outputs = compute(*inputs)
            except BaseException:
                with suppress(RuntimeError):  # the cause counts, not that the capture is now incomplete
                    self._graph.capture_end()
                raise
            self._graph.capture_end()

    def replay(self, drawn: tuple[Any, ...]) -> Any:
        for place, value in zip(self._inputs, tree_leaves(drawn), strict=True):
            place.copy_(value, non_blocking=True)
        self._graph.replay()
        return self._outputs


@contextmanager
def _no_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Steps:
    """Gradient steps of a pack with one optimizer, replayed where that can be.

    Gradients are each step's own. Of parameters whose names begin with one of ``summed`` they add up. Those
    whose names begin as in ``own`` have a rate and a weight decay of their own.
    """

    def __init__(
        self,
        pack: Pack,
        rate: float,
        weight_decay: float,
        capture: Capture,
        summed: tuple[str, ...] = (),
        own: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._pack, self._capture = pack, capture
        self._optimizer = pack.optimizer(rate, weight_decay, own)
        self._fresh = [value for name, value in pack.parameters.items() if not name.startswith(summed)]
        for name, value in pack.parameters.items():
            # What is replayed adds to them where they are: they are never made anew.
            value.grad = torch.zeros_like(value) if name.startswith(summed) else None

    def under(self, capture: Capture) -> Steps:
        """The same optimizer's further steps, run by another capture."""
        further = copy(self)
        further._capture = capture
        return further

    def state(self) -> dict[str, Any]:
        """What later steps depend on beside the parameters."""
        summed = {
            name: value.grad
            for name, value in self._pack.parameters.items()
            if all(value is not fresh for fresh in self._fresh)
        }
        return {"optimizer": self._optimizer.state_dict(), "summed": summed}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Go on from such a state; before the first step."""
        self._optimizer.load_state_dict(state["optimizer"])
        for name, gradient in state["summed"].items():
            value = self._pack.parameters[name]
            assert value.grad is not None
            value.grad.copy_(gradient)

    def take(
        self, step: str, shared: tuple[Hashable, ...], fixed: tuple[Any, ...], drawn: tuple[Any, ...]
    ) -> Tensor:
        """Descend the losses (pack,) of a module's step; returns its logits (pack, ...) until the next one.

        ``shared`` and ``fixed`` arguments (the latter with a pack axis) are the same things every time.
        """

        def compute(*drawn: Any) -> Tensor:
            losses, logits = self._pack.run(step, shared, *fixed, *drawn)
            self._descend(losses)
            return logits.detach()

        logits: Tensor = self._capture.run((step, shared, *map(id, tree_leaves(fixed))), compute, drawn)
        return logits

    def _descend(self, losses: Tensor) -> None:
        """One step of every seed: the sum hands each its own gradient."""
        if not losses.requires_grad:  # of a method in which nothing learns
            return
        for value in self._fresh:
            value.grad = None
        losses.sum().backward()
        self._optimizer.step()


@contextmanager
def stream_of(device: torch.device) -> Iterator[None]:
    """All of a run's work in one stream of its own: the default one cannot be captured.

    Later runs use it again, since cuBLAS keeps memory for every stream that it has met.
    """
    if device.type != "cuda":
        yield
        return
    idle = _idle_streams[device]
    stream = idle.pop() if idle else torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        torch.cuda.current_stream(device).wait_stream(stream)
        idle.append(stream)


def ahead(items: Iterable[Item], device: torch.device) -> Iterator[Item]:
    """The same items; for a GPU they are drawn ahead by a thread, so that it never waits for them."""
    return iter(items) if device.type != "cuda" else _drawn_ahead(items)


def _drawn_ahead(items: Iterable[Item]) -> Iterator[Item]:
    ready: Queue[Any] = Queue(AHEAD)
    over = False

    def draw() -> None:
        try:
            for item in items:
                if over:
                    return
                ready.put((tree_map(_pinned, item), None))
            ready.put((None, StopIteration()))
        except BaseException as error:  # raised again where the items are used
            ready.put((None, error))

    thread = Thread(target=draw, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item
    finally:
        over = True
        while thread.is_alive():  # it may be waiting for room
            while not ready.empty():
                ready.get_nowait()
            thread.join(0.01)


def _pinned(value: Any) -> Any:
    """A tensor on the host where a GPU can read it while it works."""
    return value.pin_memory() if isinstance(value, Tensor) and value.device.type == "cpu" else value
