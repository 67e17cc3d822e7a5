"""One training episode: our step beside the obvious dense one, and ten seeds beside one.

    python benchmarks/episode.py DATASET [--classes B T E] [--n-way N] [--device cpu|cuda] [--profile]
                                 [--inputs raw|tf-idf|svd]

The dense step does the same work as published implementations do it: features as a dense matrix, the encoder
run a second time for the prototypes, and for each session the adjacency filtered edge by edge in Python.
What counts are the ratios, which come from one run. The bound is what an episode must move
through memory, each array that it reads or writes once, at the speed of a plain copy in the same run.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from hagmeta import datasets
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.training.meta_training import Episode, pseudo_episodes
from hagmeta.layers.attention.task_attention import TaskAttention
from hagmeta.methods.paper.hag_meta import categorical_loss
from hagmeta.packs.capture import Steps, ahead, stream_of
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import fold, keys


class DenseNetwork(nn.Module):
    """Two graph convolutions over dense features."""

    def __init__(self, num_features: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(num_features, hidden)
        self.second = nn.Linear(hidden, outputs)

    def forward(self, features: Tensor, adjacency: Tensor) -> Tensor:
        hidden = F.dropout(F.relu(torch.sparse.mm(adjacency, self.first(features))), 0.5, self.training)
        return torch.sparse.mm(adjacency, self.second(hidden))


class DenseStep:
    """HAG-Meta's training step, written the obvious way."""

    def __init__(self, dataset: Dataset, context: Context) -> None:
        self.context, config, device = context, context.settings, context.runtime.device
        features = (
            dataset.features if isinstance(dataset.features, np.ndarray) else dataset.features.toarray()
        )
        self.features = torch.from_numpy(features).to(device)
        self.labels = torch.from_numpy(dataset.labels).to(device)
        both = np.concatenate([dataset.edges, dataset.edges[:, ::-1]])
        loops = np.repeat(np.arange(dataset.num_nodes)[:, None], 2, axis=1)
        self.edges = torch.from_numpy(np.concatenate([both, loops])).T.contiguous().to(device)
        degree = torch.bincount(self.edges[0], minlength=dataset.num_nodes)
        self.values = (degree[self.edges[0]] * degree[self.edges[1]]).float().rsqrt()
        self.log_degree = degree.float().log()
        self.encoder = DenseNetwork(dataset.num_features, config.hidden, config.embedding).to(device)
        self.scorer = DenseNetwork(dataset.num_features, config.hidden, 1).to(device)
        base = len(context.scenarios[0].split.base)
        self.attention = TaskAttention(base, context.tasks.n_way, 0.0).to(device)
        modules = nn.ModuleList([self.encoder, self.scorer, self.attention])
        self.optimizer = torch.optim.Adam(modules.parameters(), lr=0.005, weight_decay=0.0005)

    def filter_edges(self) -> Tensor:
        """Keep the edges between known classes, one by one."""
        known = self.context.scenarios[0].test.known.tolist()
        kept = [
            self.labels[self.edges[0, i]] in known and self.labels[self.edges[1, i]] in known
            for i in range(self.edges.shape[1])
        ]
        mask = torch.tensor(kept, device=self.labels.device)
        size = (len(self.labels), len(self.labels))
        return torch.sparse_coo_tensor(self.edges[:, mask], self.values[mask], size).coalesce()

    def step(self, adjacency: Tensor, episode: Episode) -> None:
        scenario = self.context.scenarios[0]
        support, query, target = episode.task.support[0], episode.task.query[0], episode.target[0]
        again = self.encoder(self.features, adjacency)
        base = torch.stack(
            [
                again[torch.from_numpy(scenario.nodes_of(np.array([c]), 0))].mean(0)
                for c in scenario.split.base
            ]
        )
        embeddings = self.encoder(self.features, adjacency)
        scores = self.scorer(self.features, adjacency).squeeze(-1)
        weights = torch.sigmoid(scores[support] * self.log_degree[support]).softmax(-1)
        prototypes = torch.cat([base, (weights.unsqueeze(-1) * embeddings[support]).sum(1)])
        logits = -(embeddings[query].unsqueeze(1) - prototypes).square().sum(-1)
        class_weights = 1 + self.attention(prototypes, episode.shared.task_sizes, None)
        self.optimizer.zero_grad()
        categorical_loss(logits, target, class_weights).backward()
        self.optimizer.step()


def pack_step(context: Context) -> Callable[[Episode], object]:
    pack: Pack = pretrain(context)
    steps = Steps(pack, 0.005, 0.0005, context.runtime.capture())
    key = fold(keys(context.seeds, "benchmark"), 0)
    return lambda episode: episode.learn(steps, key)


def seconds(context: Context, repeat: int, step: Callable[[Episode], object]) -> float:
    """Of one of ``repeat`` episodes, drawing them included, after a warm-up."""
    episodes: Iterator[Episode] = ahead(
        pseudo_episodes(context, context.known.training()), context.runtime.device
    )
    if context.runtime.device.type == "cuda":
        return gpu_seconds(context, repeat, lambda: step(next(episodes)))
    times = []
    for number in range(repeat + 4):
        start = time.perf_counter()
        step(next(episodes))
        if number >= 4:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def gpu_seconds(context: Context, repeat: int, step: Callable[[], object]) -> float:
    """The mean, as in training: nothing waits for the GPU but the end. Whole pseudo-streams count."""
    warm_up(context, step)
    repeat = max(1, repeat // context.tasks.pseudo_sessions) * context.tasks.pseudo_sessions
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeat


def warm_up(context: Context, step: Callable[[], object]) -> None:
    """Every shape is met, captured, and replayed."""
    for _ in range(3 * context.tasks.pseudo_sessions):
        step()
    torch.cuda.synchronize()


def show_profile(context: Context, step: Callable[[Episode], object], wall: float) -> None:
    """What the GPU does in an episode, by kernel: torch's profiler over two pseudo-streams."""
    episodes = ahead(pseudo_episodes(context, context.known.training()), context.runtime.device)
    warm_up(context, lambda: step(next(episodes)))
    repeat = 2 * context.tasks.pseudo_sessions
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(repeat):
            step(next(episodes))
        torch.cuda.synchronize()
    times: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            name = short_name(event.name)
            times[name] += event.time_range.elapsed_us() / repeat / 1e3
            launches[name] += 1 / repeat
    busy, kernels = sum(times.values()), sum(launches.values())
    print(f"     busy {busy:.2f} ms, {busy / wall / 10:.0f} % of the time; {kernels:.0f} kernels and copies")
    for name, spent in times.most_common(12):
        print(f"     {spent:9.3f} ms {100 * spent / busy:5.1f} % {launches[name]:7.1f} times  {name}")


def short_name(kernel: str) -> str:
    """Without what it is templated on and called with: `void at::native::add<float>(int)` is `add`."""
    name = kernel.replace("(anonymous namespace)::", "")
    while "<" in name and (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    name = name.split("(")[0].removeprefix("void ").strip()
    if "::" in name:
        name = name.split()[-1].removeprefix("at::native::")
    return name if len(name) < 50 else f"{name[:47]}..."


def least_bytes(dataset: Dataset, context: Context) -> int:
    """What one episode must move: parameters, activations and their gradients, the graph there and back."""
    pack, width = len(context.scenarios), 2 * context.settings.hidden  # of the encoder and of NLA
    features, entries = dataset.features, 2 * len(dataset.edges) + dataset.num_nodes
    matrix = features.nbytes if isinstance(features, np.ndarray) else 4 * features.nnz
    # Mapped features, hidden layer, and the gradient of each, are written once and read once.
    activations = 8 * 4 * dataset.num_nodes * pack * width
    parameters = 6 * 4 * dataset.num_features * pack * width  # and Adam's two means, read and written
    return activations + parameters + 2 * matrix + 2 * 4 * entries


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, of a plain copy."""
    source = torch.ones(2**28 if device.type == "cuda" else 2**26, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 2 * source.nbytes / statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--classes", type=int, nargs=3, metavar=("B", "T", "E"))
    parser.add_argument("--n-way", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--inputs", default="raw", help="of our step; the dense one has raw features")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--no-dense", action="store_true", help="leave out the dense step (large graphs)")
    parser.add_argument("--profile", action="store_true", help="with --device cuda: time by kernel")
    options = parser.parse_args()
    if options.profile and not options.device.startswith("cuda"):
        parser.error("--profile needs --device cuda")
    device = torch.device(options.device)
    dataset = datasets.load(options.dataset, Path("~/.cache/hagmeta/data").expanduser())
    classes = tuple(options.classes) if options.classes else None
    config = RunConfig.of(
        dataset=options.dataset,
        classes=classes,
        n_way=options.n_way,
        inputs=options.inputs,
        pretrain_epochs=0,
    )
    print(f"{options.dataset} on {device}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    times, bandwidth = {}, copy_bandwidth(device)
    print(f"a copy moves {bandwidth / 1e12:.3g} TB a second")
    for count in options.seeds:
        context = prepare(config, range(count), dataset, device)
        with stream_of(device):
            step = pack_step(context)
            times[count] = seconds(context, 40, step)
        bound = least_bytes(dataset, context) / bandwidth
        print(
            f"{count:4} seeds in a pack {1e3 * times[count]:9.2f} ms an episode   "
            f"x {times[count] / times[options.seeds[0]]:.2f}   "
            f"{count / times[count]:8,.0f} seed-episodes a second   bound {1e3 * bound:.3f} ms"
        )
        if options.profile:
            with stream_of(device):
                show_profile(context, step, times[count])
    if options.no_dense:
        return
    context = prepare(config, [0], dataset, device)
    dense = DenseStep(dataset, context)
    start = time.perf_counter()
    adjacency = dense.filter_edges()
    filtering = time.perf_counter() - start
    stepping = seconds(context, 5, lambda episode: dense.step(adjacency, episode))
    one = times[options.seeds[0]]
    for name, value in (
        ("dense step", stepping),
        ("filtering edges", filtering),
        ("both, as a session has it", stepping + filtering),
    ):
        print(f"{name:26}{1e3 * value:9.1f} ms   {value / one:.1f} times one seed's episode")


if __name__ == "__main__":
    main()
