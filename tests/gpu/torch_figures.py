"""Measures saves of a PyTorch model in training: Cairn's, and those of torch.distributed.checkpoint.

It prints one line of JSON, as figures.py does. With --device=cpu it tries itself without a GPU; its figures then mean
nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import json
import os
import pstats
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import figures
import torch

import cairn
import cairn.torch
from cairn._gpu import devices

SAVES = 5


class Training:
    """A model whose state has about `size` bytes, with AdamW; `device` is torch's name."""

    def __init__(self, size: int, device: str) -> None:
        width = 4096 if size >= 2 * figures.GB else 256
        layers = max(size // (12 * width * width), 1)  # a parameter and two moments of four bytes
        self.device = device
        self.model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, width, device=device),
                                                               torch.nn.GELU()) for _ in range(layers)])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device == "cuda")
        self._input = torch.randn(8192 if device == "cuda" else 64, width, device=device)
        self.item_seconds: list[float] = []
        self.before_update: Callable[[], object] = lambda: None  # what a save wants to be called before a change
        for _ in range(3):
            self.step()

    def step(self) -> None:
        """One step, with the look at the loss that many trainers take; how long that waits is kept."""
        loss = self.model(self._input).square().mean()
        self.synchronize()
        small = loss.detach() + 0
        begun = time.perf_counter()
        small.item()
        self.item_seconds.append(time.perf_counter() - begun)
        loss.backward()
        self.before_update()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def seconds_of_steps(self, count: int) -> float:
        self.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            self.step()
        self.synchronize()
        return time.perf_counter() - begun


# It makes the save of a step, and returns a function that waits until it is durable.
Save = Callable[[int], Callable[[], object]]


@contextlib.contextmanager
def cairn_saves(training: Training, root: str, overlapped: bool) -> Iterator[Save]:
    with cairn.local.Cluster(ranks=1, root=root) as cluster, cluster.connect(0) as client:
        cairn.torch.prepare(client, training.state())

        def save(step: int) -> Callable[[], object]:
            overlap = [training.optimizer] if overlapped else None
            return cairn.torch.save(client, step, training.state(), overlap=overlap, timeout=120).wait

        yield save


@contextlib.contextmanager
def dcp_saves(training: Training, root: str, kept: bool) -> Iterator[Save]:
    """torch's async_save; `kept`: with one stager that keeps pinned memory and copies behind training."""
    from torch.distributed import checkpoint

    stager = None
    if kept:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        class KeptStager(DefaultStager):
            def close(self) -> None:
                """torch 2.11 calls it after each save, also of a stager that is not its own."""

        on_gpu = training.device == "cuda"
        stager = KeptStager(StagingOptions(use_pinned_memory=on_gpu, use_shared_memory=True,
                                           use_async_staging=on_gpu, use_non_blocking_copy=on_gpu))

    def save(step: int) -> Callable[[], object]:
        options = {"async_stager": stager} if stager is not None else {}
        response = checkpoint.async_save(training.state(), checkpoint_id=f"{root}/{step}", **options)
        staged = getattr(response, "staging_completion", None)
        if staged is not None:  # the stager reads the tensors until then
            training.before_update = staged.result
        return getattr(response, "upload_completion", response).result

    yield save
    if stager is not None:
        DefaultStager.close(stager)


def measure(training: Training, saves: Save, root: str, alone: float) -> dict[str, object]:
    """Times saves, each with steps beside it until it is durable."""
    blocked, lost, durable = [], [], []
    training.item_seconds.clear()
    for number in range(SAVES):
        training.synchronize()
        begun = time.perf_counter()
        wait = saves(number + 1)
        blocked.append(time.perf_counter() - begun)
        steps = 4
        for _ in range(steps):
            training.step()
        training.synchronize()
        lost.append(time.perf_counter() - begun - steps * alone)
        wait()
        durable.append(time.perf_counter() - begun)
        # The disk has no room for many checkpoints.
        for old in (f"{root}/{number}", f"{root}/demo/{number:012}"):
            shutil.rmtree(old, ignore_errors=True)
    items = sorted(training.item_seconds)
    return {"blocked_s": statistics.median(blocked[1:]), "lost_s": statistics.median(lost[1:]),
            "durable_s": statistics.median(durable[1:]), "first_blocked_s": blocked[0],
            "item_p99_ms": 1e3 * items[len(items) * 99 // 100]}


def many_tensors(size: int, device: str) -> dict[str, object]:
    """How soon an overlapped save of 3,000 tensors returns. What Python spends it on goes to the log."""
    count = 3000
    parameters = [torch.nn.Parameter(torch.randn(max(size // count // 4, 1), device=device)) for _ in range(count)]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    returned, synchronous = [], []
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            state = {f"w{i:04}": parameter.detach() for i, parameter in enumerate(parameters)}
            cairn.torch.prepare(client, state)
            for step in range(10):
                state = {f"w{i:04}": parameter.detach() for i, parameter in enumerate(parameters)}
                overlap = [optimizer] if step < 8 else None
                if step in (6, 7):
                    profile.enable()
                begun = time.perf_counter()
                saving = cairn.torch.save(client, step, state, overlap=overlap, check_overlap=step < 2)
                (returned if step < 6 else synchronous if step >= 8 else []).append(time.perf_counter() - begun)
                profile.disable()
                optimizer.step()
                saving.wait()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(25)
    print(text.getvalue(), file=sys.stderr)
    return {"many_returns_s": statistics.median(returned[2:]), "many_returns_with_proof_s": returned[1],
            "many_synchronous_s": min(synchronous)}


def controls(size: int) -> dict[str, object]:
    """What a checked save says of changes that come right after it: those that no guard sees must be found torn."""
    count = 4
    parameters = [torch.nn.Parameter(torch.randn(size // count // 4, device="cuda")) for _ in range(count)]
    averages = [parameter.detach().clone() for parameter in parameters]
    statistic = torch.randn(1000, device="cuda")
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        for parameter in parameters:
            parameter.add_(1)

    def change(tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            tensor.data.add_(1)

    def guarded(saving: cairn.Saving, then: Callable[[], object]) -> None:
        saving.before_update()
        then()

    changes: dict[str, Callable[[cairn.Saving], object]] = {
        "step": lambda saving: optimizer.step(),
        "statistic": lambda saving: change([statistic]),  # no optimizer has it, so it is copied at once
        "data": lambda saving: change(parameters),
        "data_guarded": lambda saving: guarded(saving, lambda: change(parameters)),
        "average": lambda saving: change(averages),
        "average_guarded": lambda saving: guarded(saving, lambda: change(averages)),
        "graph": lambda saving: graph.replay(),
        "graph_guarded": lambda saving: guarded(saving, graph.replay),
    }
    found: dict[str, object] = {}
    state = {"p": [each.detach() for each in parameters], "ema": averages, "statistic": statistic}
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            cairn.torch.prepare(client, state)
            for step, (name, change_it) in enumerate(changes.items()):
                before = {"p": [each.detach().clone() for each in parameters],
                          "ema": [each.clone() for each in averages], "statistic": statistic.clone()}
                torch.cuda.synchronize()
                saving = cairn.torch.save(client, step, state, overlap=[optimizer, *averages], check_overlap=True)
                change_it(saving)
                try:
                    saving.wait()
                except cairn.Error as error:
                    found[f"control_{name}"] = error.reason
                    continue
                loaded = {"p": [torch.zeros_like(each) for each in before["p"]],
                          "ema": [torch.zeros_like(each) for each in averages], "statistic": torch.zeros(1000).cuda()}
                cairn.torch.load(client, loaded, step)
                same = all(map(torch.equal, [*loaded["p"], *loaded["ema"], loaded["statistic"]],
                               [*before["p"], *before["ema"], before["statistic"]]))
                found[f"control_{name}"] = "equal" if same else "DIFFERS"
    return found


def run(size: int, device: str) -> dict[str, object]:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", rank=0, world_size=1,
                                         store=torch.distributed.HashStore())
    training = Training(size, device)
    state_bytes = sum(value.nbytes for value in training.model.state_dict().values()) * 3
    alone = training.seconds_of_steps(10) / 10
    results: dict[str, object] = {"torch": torch.__version__, "state_bytes": state_bytes, "step_s": alone}
    items = sorted(training.item_seconds)
    results["item_p99_alone_ms"] = 1e3 * items[len(items) * 99 // 100]
    ways = {"cairn": lambda root: cairn_saves(training, root, False),
            "cairn_overlap": lambda root: cairn_saves(training, root, True),
            "dcp_async": lambda root: dcp_saves(training, root, False),
            "dcp_stager": lambda root: dcp_saves(training, root, True)}
    for name, way in ways.items():
        try:
            with tempfile.TemporaryDirectory() as root, way(root) as saves:
                results |= {f"{name}_{key}": value for key, value in measure(training, saves, root, alone).items()}
        except Exception as error:  # the others are measured all the same
            results[f"{name}_failed"] = f"{type(error).__name__}: {error}"[:300]
        training.before_update = lambda: None
    torch.distributed.destroy_process_group()
    results |= many_tensors(figures.GB, device)
    return results | controls(figures.GB // 2) if device == "cuda" else results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("torch",))
    parser.add_argument("--libcuda", default=devices.driver_library())
    parser.add_argument("--bytes", type=int, default=2 * figures.GB)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    os.environ["CAIRN_LIBCUDA"] = options.libcuda
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"torch {torch.__version__} sees no GPU")
    print(json.dumps(run(options.bytes, options.device)), flush=True)


if __name__ == "__main__":
    main()
