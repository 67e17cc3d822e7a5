"""Meta-training by graph pseudo-incremental learning (GPIL), or by the episodes of another method."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from hagmeta.engine.checkpoints import State
from hagmeta.engine.context import Context
from hagmeta.engine.hooks import add_trained_classes
from hagmeta.engine.known.session import Known
from hagmeta.engine.known.tasks import stacked
from hagmeta.engine.training.divergence import check_losses, check_parameters
from hagmeta.engine.training.validation import Validation
from hagmeta.methods.base import MetaTraining, Shared, Task
from hagmeta.packs.capture import Capture, Steps
from hagmeta.packs.pack import EarlyStopping, Pack, once_each, stack
from hagmeta.packs.randomness import fold, keys
from hagmeta.scenarios.episodes import BatchSampler, EpisodeSampler, TaskSampler
from hagmeta.sparse.graph import View

PHASE = "meta-training"
Sampler = TypeVar("Sampler")


class Episode(NamedTuple):
    """One meta-training task. Every tensor has a leading pack axis, and the task is in host memory."""

    shared: Shared
    view: View
    task: Task
    target: Tensor  # (pack, queries)
    classes: np.ndarray  # (pack, classes) in order of arrival

    def loss(self, pack: Pack, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses (pack,) and logits (pack, queries, classes) in training mode."""
        device = self.view.scale.device
        drawn = self.task.on(device), self.target.to(device), key.to(device)
        losses, logits = pack.run("loss", (self.shared,), self.view, *drawn)
        return losses, logits

    def learn(self, steps: Steps, key: Tensor) -> Tensor:
        """Take one gradient step and return its logits, which are valid until the next step."""
        return steps.take("loss", (self.shared,), (self.view,), (self.task, self.target, key))


def pseudo_episodes(context: Context, known: Known) -> Iterator[Episode]:
    """Yield episodes without end: the sessions of one pseudo-stream after another."""
    samplers = _samplers(EpisodeSampler, context)
    base, sessions = len(context.scenarios[0].split.base), samplers[0].sessions
    while True:
        drawn = once_each(EpisodeSampler.draw, samplers)
        for session in range(sessions):
            task, target = context.tasks.episode(drawn, session)
            targets = stack([target] * len(drawn))
            classes = np.stack(
                [
                    np.concatenate([w.split.base, d.order])
                    for w, d in zip(context.scenarios, drawn, strict=True)
                ]
            )
            shared = context.tasks.shared(known, (base, *[context.tasks.n_way] * (session + 1)))
            yield Episode(shared, known.view, task, targets, classes)


def few_shot_episodes(context: Context, known: Known) -> Iterator[Episode]:
    """Yield N-way K-shot tasks of novel-train classes without end."""
    samplers = _samplers(TaskSampler, context)
    shared = Shared(known.graph, known.class_means, (samplers[0].ways,))
    while True:
        classes, support, query = (
            np.stack(arrays) for arrays in zip(*once_each(TaskSampler.draw, samplers), strict=True)
        )
        yield _episode(context, shared, known, classes, classes[:, :0], support, query)


def supervised_episodes(context: Context, known: Known) -> Iterator[Episode]:
    """Yield batches without end, with nodes of all training classes, each known by its average."""
    samplers = _samplers(BatchSampler, context)
    classes = np.stack([scenario.trained for scenario in context.scenarios])
    shared = context.tasks.shared(known, classes.shape[1:])
    while True:
        query = np.stack(once_each(BatchSampler.draw, samplers))
        yield _episode(context, shared, known, classes, classes, query[:, :0, :1], query)


def _samplers(kind: Callable[..., Sampler], context: Context) -> list[Sampler]:
    """Return the sampler of each member. Members with the same seed share one, since they draw the same."""
    return once_each(lambda scenario: kind(scenario, context.settings), context.scenarios)


def _episode(
    context: Context,
    shared: Shared,
    known: Known,
    classes: np.ndarray,
    averaged: np.ndarray,
    support: np.ndarray,
    query: np.ndarray,
) -> Episode:
    """Return an episode of `classes` (pack, classes) with queries (pack, classes, shots)."""
    target = np.repeat(np.arange(classes.shape[1]), query.shape[2])
    nodes = query.reshape(len(query), -1)
    task = stacked(classes, averaged, support, nodes)
    return Episode(shared, known.view, task, stack([target] * len(classes)), classes)


EPISODES = {
    MetaTraining.INCREMENTAL: pseudo_episodes,
    MetaTraining.FEW_SHOT: few_shot_episodes,
    MetaTraining.SUPERVISED: supervised_episodes,
}


class Answered(NamedTuple):
    """The queries (pack, queries) and classes (pack, classes) of an episode, and the predicted positions."""

    query: Tensor
    classes: np.ndarray
    answer: Tensor


class Trained(NamedTuple):
    """The result of meta-training, in addition to the parameters."""

    best: list[float | None]  # best validation accuracy of each seed, if the protocol validates
    steps: Steps
    answered: Sequence[Answered]  # predictions for a pseudo-stream, if the protocol does not validate

    def answers_of(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the queries of that pseudo-stream for one seed, and the predicted class of each."""
        queries = [each.query[seed].numpy() for each in self.answered]
        classes = [each.classes[seed][each.answer[seed].cpu().numpy()] for each in self.answered]
        return np.concatenate(queries), np.concatenate(classes)

    def state(self) -> State:
        return {"best": self.best, "steps": self.steps.state(), "answered": self.answered}


def meta_train(context: Context, pack: Pack) -> Trained:
    """Train the pack. If the protocol validates, keep the best parameters of each seed."""
    with context.runtime.capture() as capture:
        steps = context.runtime.steps(pack, context.runtime.values("learning_rate"), capture)
        if not context.protocol.validates:
            answered = _train_to_the_end(context, pack, steps)
            return Trained([None] * pack.size, steps, answered)
        if context.meta_training is MetaTraining.NONE:
            return Trained([None] * pack.size, steps, ())
        return Trained(_train_to_the_best(context, pack, steps, capture), steps, ())


def trained_before(context: Context, pack: Pack, state: State) -> Trained:
    """Restore the result of meta-training from a checkpoint. The caller restores the parameters."""
    with context.runtime.capture() as capture:
        steps = context.runtime.steps(pack, context.runtime.values("learning_rate"), capture)
    steps.restore(state["steps"])
    return Trained(state["best"], steps, _answered(state["answered"], context))


def _answered(state: Sequence[Any], context: Context) -> list[Answered]:
    device = context.runtime.device
    return [Answered(query, classes.numpy(), answer.to(device)) for query, classes, answer in state]


def _train_to_the_best(context: Context, pack: Pack, steps: Steps, capture: Capture) -> list[float | None]:
    """Train with early stopping, restore the best parameters, and return the best accuracies."""
    settings, training = (
        context.settings,
        context.known.with_fixed_features(pack, context.known.training()),
    )
    validation = Validation(context, pack, capture)
    add_trained_classes(context, pack, training)
    stopping = EarlyStopping(pack, settings.patience)
    done, checkpoints = 0, context.runtime.options.checkpoints
    if checkpoints and (before := checkpoints.reached("meta-train")):
        done = _resumed(pack, steps, before)
        stopping.load(before["stopping"])
    for number, _, _ in _learnt(context, training, steps, done):
        if _is_time_to_report(number, context):
            accuracy = validation.accuracy()
            check_losses(context, steps, PHASE, watched=stopping.active)
            stopping.update(accuracy)
            values = {"val": float(accuracy.mean())}
            context.runtime.options.progress("meta-train", number + 1, settings.episodes, values)
            if stopping.finished:
                break
        if checkpoints:
            make = partial(_state, pack, steps, number + 1, stopping=stopping)
            checkpoints.keep("meta-train", f"episode {number + 1}", make)
    stopping.restore_best()
    check_parameters(context, pack, PHASE)
    return stopping.best.tolist()


def _state(
    pack: Pack,
    steps: Steps,
    done: int,
    *,
    stopping: EarlyStopping | None = None,
    answered: Iterable[Answered] = (),
) -> State:
    return {
        "episodes": done,
        "parameters": pack.snapshot(),
        "steps": steps.state(),
        "stopping": stopping.state() if stopping else {},
        "answered": list(answered),
    }


def _resumed(pack: Pack, steps: Steps, state: State) -> int:
    """Restore a state from the middle of training and return the number of finished episodes."""
    pack.restore(state["parameters"])
    steps.restore(state["steps"])
    return int(state["episodes"])


def _train_to_the_end(context: Context, pack: Pack, steps: Steps) -> Sequence[Answered]:
    """Train for all episodes and return the predictions for a pseudo-stream.

    With GPIL it is the last pseudo-stream of training. Other methods get one after training, or a batch of
    all classes if no class can play a new one.
    """
    training = context.known.with_fixed_features(pack, context.known.training())
    add_trained_classes(context, pack, training)
    sessions = context.tasks.pseudo_sessions
    last = deque[Answered](maxlen=max(sessions, 1))
    done, checkpoints = 0, context.runtime.options.checkpoints
    if checkpoints and (before := checkpoints.reached("meta-train")):
        done = _resumed(pack, steps, before)
        last.extend(_answered(before["answered"], context))
    if context.meta_training is not MetaTraining.NONE:
        for number, episode, logits in _learnt(context, training, steps, done):
            last.append(Answered(episode.task.query, episode.classes, logits.argmax(-1)))
            if _is_time_to_report(number, context):
                check_losses(context, steps, PHASE)
                accuracy = float((last[-1].answer.cpu() == episode.target).float().mean())
                values = {"query": accuracy}
                context.runtime.options.progress("meta-train", number + 1, context.settings.episodes, values)
            if checkpoints:
                make = partial(_state, pack, steps, number + 1, answered=last)
                checkpoints.keep("meta-train", f"episode {number + 1}", make)
        check_parameters(context, pack, PHASE)
    if context.meta_training is not MetaTraining.INCREMENTAL:
        key = _dropout_key(context)
        asked = pseudo_episodes if sessions else supervised_episodes
        for number, episode in enumerate(islice(asked(context, training), max(sessions, 1))):
            answer = episode.loss(pack, fold(key, number))[1].argmax(-1)
            last.append(Answered(episode.task.query, episode.classes, answer))
    return last


def _learnt(
    context: Context, training: Known, steps: Steps, done: int
) -> Iterator[tuple[int, Episode, Tensor]]:
    """Take the steps of the remaining episodes, and yield number, episode and logits of each.

    Finished episodes are drawn again, which is cheap, so that the random streams continue unchanged.
    """
    key = _dropout_key(context)
    episodes = context.runtime.ahead(islice(EPISODES[context.meta_training](context, training), done, None))
    for number, episode in zip(range(done, context.settings.episodes), episodes, strict=False):
        yield number, episode, episode.learn(steps, fold(key, number))


def _dropout_key(context: Context) -> Tensor:
    return keys(context.seeds, "dropout/gpil")


def _is_time_to_report(number: int, context: Context) -> bool:
    settings = context.settings
    return (number + 1) % settings.validate_every == 0 or number + 1 == settings.episodes
