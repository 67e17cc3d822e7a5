"""The Evaluator keeps the labels of the queries: a method is handed nodes and gets nothing back."""

from __future__ import annotations

import numpy as np

from hagmeta.protocol.scenario import Stream


class Evaluator:
    """Compares one seed's answers, session by session, with labels that nobody else sees."""

    def __init__(self, stream: Stream, labels: np.ndarray) -> None:
        self._stream = stream
        self._labels = labels
        self.answers: list[np.ndarray] = []  # by session, the class given to each query
        self._truth: list[np.ndarray] = []
        self._correct: list[np.ndarray] = []

    def score(self, predictions: np.ndarray) -> None:
        """The next session's answers to its queries: positions in the order in which classes are met."""
        session = len(self._correct)
        self.record(self._stream.queries[session], self._stream.met(session)[predictions])

    def record(self, queries: np.ndarray, classes: np.ndarray) -> None:
        """The next session's answers to queries of the caller's own."""
        truth = self._labels[queries]
        self.answers.append(classes)
        self._truth.append(truth)
        self._correct.append(classes == truth)

    def accuracy(self) -> list[float]:
        return [float(correct.mean()) for correct in self._correct]

    def matrix(self) -> list[list[float]]:
        """M[t][j]: accuracy after session t on the classes that session j brought."""
        brought = [self._stream.known, *self._stream.arriving]
        return [
            [float(correct[np.isin(truth, brought[j])].mean()) for j in range(session + 1)]
            for session, (truth, correct) in enumerate(zip(self._truth, self._correct, strict=True))
        ]

    def novel_accuracy(self) -> list[float | None]:
        """Accuracy after each session on all the novel classes met by then."""
        novel = [~np.isin(truth, self._stream.known) for truth in self._truth]
        rest = zip(novel[1:], self._correct[1:], strict=True)
        return [None, *(float(correct[chosen].mean()) for chosen, correct in rest)]
