"""Capture repeated computations of a pack as CUDA graphs, one per shape, and replay them.

An episode consists of hundreds of small kernels. Launching them one by one takes longer than running them.
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

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from hagmeta.packs.pack import Pack, Rates

Item = TypeVar("Item")
AHEAD = 16  # items to draw in advance
_idle_streams: defaultdict[torch.device, list[torch.cuda.Stream]] = defaultdict(list)


class Capture:
    """Runs computations on a device, with new inputs each time.

    On a GPU, the first run is ordinary, the second is captured, and later ones replay the capture. The result
    of a run is therefore valid only until the next run. On a CPU, and with ``eager``, all runs are ordinary.
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
        """Release the captured graphs and their memory."""
        self._captured.clear()

    def run(self, name: Hashable, compute: Callable[..., Any], drawn: tuple[Any, ...]) -> Any:
        """Return ``compute(*drawn)`` with the inputs moved to the device.

        Args:
            name: Identifies the computation.
            compute: The function to run.
            drawn: Its inputs, which may have other values in each run.
        """
        shape = (name, *(leaf.shape for leaf in tree_leaves(drawn)))
        if not self._captures or shape not in self._known:
            self._known.add(shape)
            return compute(*tree_map(self._moved, drawn))
        if shape not in self._captured:
            if not self._captured:
                # A capture cannot reclaim memory cached by ordinary runs and older captures.
                torch.cuda.empty_cache()
            try:
                self._captured[shape] = _Captured(compute, tree_map(self._own, drawn), self._pool)
            except BaseException:
                self._pool = torch.cuda.graph_pool_handle()  # the old pool cannot be used again
                raise
        return self._captured[shape].replay(drawn)

    def _moved(self, value: Tensor) -> Tensor:
        return value.to(self._device, non_blocking=True)

    def _own(self, value: Tensor) -> Tensor:
        return torch.empty_like(value, device=self._device, pin_memory=False)


class _Captured:
    """One captured computation and its input buffers."""

    def __init__(self, compute: Callable[..., Any], inputs: tuple[Any, ...], pool: Any) -> None:
        self._compute = compute  # keeps the tensors that it refers to at their addresses
        self._inputs = tree_leaves(inputs)
        self._graph = torch.cuda.CUDAGraph()
        with _no_collection():  # deleting an older graph during a capture would break it
            # Other threads may continue with operations that a capture forbids.
            self._graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                self._outputs = compute(*inputs)
            except BaseException:
                with suppress(RuntimeError):  # report the cause, not the incomplete capture
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
    """Gradient steps of a pack with one optimizer, replayed if possible.

    Args:
        pack: The pack to train.
        rate: The learning rate, or one per member (pack,).
        weight_decay: The weight decay, or one per member (pack,).
        capture: Runs the steps.
        summed: Prefixes of parameters whose gradients add up over steps. Other gradients are reset.
        own: Prefixes of parameters with a separate learning rate and weight decay.
    """

    def __init__(
        self,
        pack: Pack,
        rate: Rates,
        weight_decay: Rates,
        capture: Capture,
        summed: tuple[str, ...] = (),
        own: Mapping[str, tuple[Rates, Rates]] | None = None,
    ) -> None:
        self._pack, self._capture = pack, capture
        self._optimizer = pack.optimizer(rate, weight_decay, own)
        self._fresh = [value for name, value in pack.parameters.items() if not name.startswith(summed)]
        self._watch_losses()
        for name, value in pack.parameters.items():
            # A replay adds to gradients in place, so they are allocated only once.
            value.grad = torch.zeros_like(value) if name.startswith(summed) else None

    def under(self, capture: Capture) -> Steps:
        """Return further steps of the same optimizer, run by another capture and counted from 1."""
        further = copy(self)
        further._capture = capture
        further._watch_losses()
        return further

    def _watch_losses(self) -> None:
        """Prepare `first_not_finite`. The counts stay on the device, so that no step waits for it."""
        self._finite = torch.ones(self._pack.size, dtype=torch.bool, device=self._pack.device)
        self._finite_steps = torch.zeros(self._pack.size, dtype=torch.long, device=self._pack.device)

    def state(self) -> dict[str, Any]:
        """Return the state that later steps need in addition to the parameters."""
        summed = {
            name: value.grad
            for name, value in self._pack.parameters.items()
            if all(value is not fresh for fresh in self._fresh)
        }
        losses = {"finite": self._finite, "finite_steps": self._finite_steps}
        trained = sorted(self._pack.trained)
        return {"optimizer": self._optimizer.state_dict(), "summed": summed, "trained": trained, **losses}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``. Call this before the first step."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._pack.trained.update(state["trained"])
        self._finite.copy_(state["finite"])
        self._finite_steps.copy_(state["finite_steps"])
        for name, gradient in state["summed"].items():
            value = self._pack.parameters[name]
            assert value.grad is not None
            value.grad.copy_(gradient)

    def take(
        self, step: str, shared: tuple[Hashable, ...], fixed: tuple[Any, ...], drawn: tuple[Any, ...]
    ) -> Tensor:
        """Take one gradient step, and return the logits (pack, ...), valid until the next step.

        Args:
            step: The name of the module's step that returns losses (pack,) and logits.
            shared: Arguments that are the same objects in every step, shared by all seeds.
            fixed: Arguments that are the same objects in every step, with a pack axis.
            drawn: Arguments with new values in every step.
        """

        def compute(*drawn: Any) -> Tensor:
            losses, logits = self._pack.run(step, shared, *fixed, *drawn)
            self._finite &= losses.detach().isfinite()
            self._finite_steps += self._finite
            self._descend(losses)
            return logits.detach()

        logits: Tensor = self._capture.run((step, shared, *map(id, tree_leaves(fixed))), compute, drawn)
        return logits

    def first_not_finite(self) -> np.ndarray:
        """Return the first step of each seed (pack,) whose loss was not finite, from 1, or 0."""
        finite, steps = self._finite.cpu().numpy(), self._finite_steps.cpu().numpy()
        return np.where(finite, 0, steps + 1)

    def _descend(self, losses: Tensor) -> None:
        """Take one step for every seed. The gradient of the summed loss is separate for each seed."""
        if not losses.requires_grad:  # the method has no trainable parameters
            return
        for value in self._fresh:
            value.grad = None
        losses.sum().backward()
        parameters = self._pack.parameters.items()
        self._pack.trained.update(name for name, value in parameters if value.grad is not None)
        self._optimizer.step()


@contextmanager
def stream_of(device: torch.device) -> Iterator[None]:
    """Run all work in a separate CUDA stream, since the default stream cannot be captured.

    Later runs reuse the stream, because cuBLAS keeps memory for every stream that it has used.
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
    """Return an iterator over ``items``. For a GPU, a thread draws them in advance."""
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
        except BaseException as error:  # raised again in the consumer
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
        while thread.is_alive():  # it may be waiting for space in the queue
            while not ready.empty():
                ready.get_nowait()
            thread.join(0.01)


def _pinned(value: Any) -> Any:
    """Return a host tensor in pinned memory, which a GPU can read asynchronously."""
    return value.pin_memory() if isinstance(value, Tensor) and value.device.type == "cpu" else value
