"""All that only a GPU can tell, in one go: `python -m experiments.bench --gpu`, under eight minutes
of one machine.

    training    GPT-2 124M and BERT-base: tokens a second and share of peak, compiled and not
    generation  GPT-2 124M, greedily: `generate`, a static cache, the same as a CUDA graph
    families    what a step waits for, graph breaks, bfloat16 and float32, attention kernels
    tests       those marked cuda

One JSON, written anew after each part, so that a run that is cut short has told something: in $OUT
if that is set. A part that fails leaves its error there, and the others are run. With `--tiny` on a
CPU: models of no size."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.analysis.cost import DEVICES, forward_flops
from course_lib.errors import CourseError
from course_lib.families import FAMILIES
from course_lib.files import COURSE, write_json
from course_lib.generation import bf16_copy, generate
from course_lib.model.attention import KVCache, LayerCache
from course_lib.training.loop import TrainConfig, train
from course_lib.training.optim import adamw
from experiments.bench import steps
from experiments.bench.contenders import (
    SIZES,
    ModelSize,
    batches_of,
    config_of,
    loss_of,
    ours,
    their_steps,
    theirs,
)

FILE = Path("data/results/bench_gpu.json")
MINUTES = 7.5  # nothing begins later
BIG = {
    "gpt": ModelSize(layers=12, width=768, heads=12, tokens=1024, batch=32, vocab=50257),
    "bert": ModelSize(layers=12, width=768, heads=12, tokens=512, batch=64, vocab=30522),
}
TESTS = ["tests/course_lib/training/test_train.py"]
Record = dict[str, Any]


def peak(device: str) -> float | None:
    """FLOP/s of the device's data sheet, if `analysis.cost` knows it."""
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    return next((it.flops for key, it in DEVICES.items() if key in name), None)


def wait(device: str) -> float:
    """The time when the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(steps: Iterator[Any], device: str, warmup: int, count: int) -> dict[str, float]:
    """Seconds of a step, many at a time: nobody looks at a figure in between. The first ones, which
    compile, apart.
    """
    start = wait(device)
    for _ in range(warmup):
        next(steps)
    begun = wait(device)
    for _ in range(count):
        next(steps)
    return {"warmup": begun - start, "seconds": (wait(device) - begun) / count}


def training(side: str, family: str, device: str, tiny: bool) -> Record:
    """Tokens a second, utilisation, memory. side: "course", "course compiled", or transformers with
    the same kernels (bfloat16 by autocast, fused AdamW, PyTorch's attention)."""
    size = SIZES["tiny"] if tiny else BIG[family]
    warmup, count = (1, 2) if tiny else (4, 20)
    batches = batches_of(family, size)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if side == "transformers":
        model = theirs(family, size).to(device)
        run = their_steps(model, batches, device, bf16=True)
    else:
        model = ours(family, size).to(device)
        run = train(
            model,
            batches,
            loss_of(family),
            TrainConfig(
                steps=10**6, device=device, precision="bf16", compile=side == "course compiled"
            ),
            optimizer=adamw(model, 1e-4),
        )
    found = timed(run, device, warmup, count)
    asked = (
        size.tokens if family == "gpt" else round(int(batches[0]["loss_mask"].sum()) / size.batch)
    )
    flops = 3 * size.batch * forward_flops(config_of(family, size), size.tokens, outputs=asked)
    found |= {"tokens/s": size.batch * size.tokens / found["seconds"]}
    found |= {"FLOP/s": flops / found["seconds"]}
    if known := peak(device):
        found |= {"utilisation": found["FLOP/s"] / known}
    return found | ({"GiB": torch.cuda.max_memory_allocated() / 2**30} if device == "cuda" else {})


class StaticCache(KVCache):
    """Keys and values in columns that are there from the start. The newest stand in the last one,
    where the model looks for them, and at their own place, a number on the device, where later
    steps find them."""

    def __init__(self, held: KVCache, columns: int, place: Tensor) -> None:
        super().__init__(0)
        self.own, self.columns = [StaticLayer(place, layer, columns) for layer in held.own], columns
        self.cross = held.cross

    @property
    def length(self) -> int:
        """All columns but the newest's: which of them hold something, the attention mask says."""
        return self.columns - 1


class StaticLayer(LayerCache):
    """Of one layer."""

    def __init__(self, place: Tensor, held: LayerCache, columns: int) -> None:
        super().__init__()
        self.place = place
        self.k, self.v = (
            F.pad(x, (0, 0, 0, columns - x.shape[2])) for x in (held.k, held.v) if x is not None
        )

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.k is not None and self.v is not None
        for room, new in ((self.k, k), (self.v, v)):
            room[:, :, -1:] = new
            room.index_copy_(2, self.place, new)
        return self.k, self.v


class StaticWriter:
    """Greedy continuation in steps of one shape that ask the host nothing: one of them is kept as a
    CUDA graph and played again. All that it changes lies in tensors that stay where they are."""

    def __init__(self, model: nn.Module, ids: Tensor, new: int) -> None:
        self.model, self.prompt, self.new = model, ids, new
        self.graph: Any = None
        rows, prompt = ids.shape
        self.text = F.pad(ids, (0, new))
        self.place = torch.full((1,), prompt, device=ids.device)
        self.attention_mask = torch.zeros(
            rows, prompt + new + 1, dtype=torch.bool, device=ids.device
        )
        self.cache: KVCache | None = None

    def __call__(self) -> Tensor:
        """The prompts and what follows."""
        with torch.inference_mode():
            self.begin()
            for _ in range(self.new - 1):
                self.step() if self.graph is None else self.graph.replay()
        return self.text

    def begin(self) -> None:
        """Read the prompts, and write what they held into the cache."""
        prompt = self.prompt.shape[1]
        layers: Any = self.model.stack.config.layers  # type: ignore[union-attr]
        first = KVCache(layers)
        self.text[:, prompt] = self.model(self.prompt, cache=first)[:, -1].argmax(dim=-1)
        self.attention_mask.zero_()[:, :prompt] = True
        self.attention_mask[:, -1] = True
        self.place.fill_(prompt)
        made = StaticCache(first, prompt + self.new + 1, self.place)
        if self.cache is None:
            self.cache = made
        for kept, other in zip(self.cache.own, made.own, strict=True):
            kept.k.copy_(other.k), kept.v.copy_(other.v)  # type: ignore[union-attr, arg-type]

    def step(self) -> None:
        """One token a row."""
        token = self.text.gather(1, self.place.expand(len(self.text), 1))
        logits = self.model(token, cache=self.cache, attention_mask=self.attention_mask)
        self.attention_mask.index_fill_(1, self.place, True)
        self.place += 1
        self.text.index_copy_(1, self.place, logits[:, -1].argmax(dim=-1, keepdim=True))

    def capture(self) -> None:
        """Keep a step as a CUDA graph, after a few on a stream of their own."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.inference_mode():
            self.begin()
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()


def equal_text(family: str) -> bool:
    """Whether the static cache writes what `generate` does, with weights large enough for more than
    one token.
    """
    torch.manual_seed(2)
    model: Any = steps.small(family).eval()
    for name, weight in model.named_parameters():
        weight.data *= 20 if weight.dim() > 1 and "tokens" not in name else 1
    ids = torch.randint(64, (3, 4))
    expected = generate(model, ids, max_new_tokens=7)
    if FAMILIES[family].loss == "seq2seq":
        model, ids = model.given(ids), ids.new_full((3, 1), model.stack.start)
    return len(set(expected[:, -7:].flatten().tolist())) > 4 and torch.equal(
        StaticWriter(model, ids, 7)(), expected
    )


def generation(batch: int, device: str, tiny: bool) -> Record:
    """New tokens a second, bfloat16 weights, and whether all ways write the same."""
    size = SIZES["tiny"] if tiny else replace(BIG["gpt"], tokens=512)
    prompt, new, times = (3, 5, 1) if tiny else (32, 256, 3)
    torch.manual_seed(0)
    model = bf16_copy(ours("gpt", size).to(device))
    ids = torch.randint(size.vocab, (batch, prompt), device=device)
    ways: dict[str, Callable[[], Tensor]] = {
        "generate": partial(generate, model, ids, max_new_tokens=new)
    }
    ways["static"] = StaticWriter(model, ids, new)
    if device == "cuda":
        ways["graph"] = graphed = StaticWriter(model, ids, new)
        graphed.capture()
    texts, found = {}, Record()
    for name, way in ways.items():
        texts[name] = way().clone()  # the first one warms up
        start = wait(device)
        for _ in range(times):
            way()
        found[name] = batch * new * times / (wait(device) - start)
    found["equal"] = {
        name: (text == texts["generate"]).float().mean().item() for name, text in texts.items()
    }
    return {"tokens/s": found, "prompt": prompt, "new": new}


def family(name: str, device: str, tiny: bool) -> Record:
    """What a step waits for, and how it is computed."""
    found: Record = {"crossings": steps.crossings(name, "meta" if device == "cpu" else device)}
    found |= {
        "graph breaks": steps.graph_breaks(name, device),
        "bf16": steps.bf16_error(name, device),
    }
    return found | ({} if device == "cpu" else {"kernels": steps.accepted(name)})


def tests(device: str, tiny: bool) -> Record:
    """The tests marked cuda, without the project's plugins, which need Jupyter. On a CPU all are
    skipped.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "--noconftest",
        "--import-mode=importlib",
        "-m",
        "cuda",
    ]
    # code 0: none has failed
    command += ["-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=COURSE, timeout=180)
    said = done.stdout.replace(f"{COURSE}/", "").splitlines()[-20:]
    return {"code": done.returncode, "said": said}


def parts(device: str, tiny: bool) -> dict[str, Callable[[], Record]]:
    """Everything, the most wanted first."""
    found: dict[str, Callable[[], Record]] = {}
    found["unseen failure"] = lambda: {"changed": steps.unseen_failure(device)}
    for side in ("course compiled", "course", "transformers"):
        for name in BIG:
            found[f"training {name}, {side}"] = partial(training, side, name, device, tiny)
        if side == "course compiled":
            for batch in (1, 16):
                found[f"generation, batch {batch}"] = partial(generation, batch, device, tiny)
            found["tests"] = partial(tests, device, tiny)
    return found | {f"family {name}": partial(family, name, device, tiny) for name in FAMILIES}


def measure(
    tiny: bool, out: Path | None = None, only: str = "", minutes: float = MINUTES
) -> Iterator[str]:
    """Run all parts whose name contains `only`; a line of text after each, when the record is
    written.
    """
    device = "cpu" if tiny else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise CourseError("PyTorch sees no NVIDIA GPU here; --tiny tries the script out on a CPU.")
    torch.set_float32_matmul_precision("high")
    out = out or (Path(os.environ["OUT"]) / FILE.name if "OUT" in os.environ else FILE)
    todo = {name: part for name, part in parts(device, tiny).items() if only in name}
    record: Record = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        },
        "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "sizes": (
            {"tiny": asdict(SIZES["tiny"])}
            if tiny
            else {name: asdict(size) for name, size in BIG.items()}
        ),
        "parts": {},
        "left out": list(todo),
    }
    begun = time.perf_counter()
    for name, part in todo.items():
        start = time.perf_counter()
        if start - begun > 60 * minutes:
            break
        try:
            found = part()
        except Exception as error:  # noqa: BLE001 - whatever it is: the machine is here now, and the other parts can be measured
            found = {"error": f"{type(error).__name__}: {str(error)[:1000]}"}
        record["parts"][name] = found | {"took": round(time.perf_counter() - start, 1)}
        record["left out"].remove(name)
        write_json(out, record)
        yield f"{name}: {json.dumps(record['parts'][name])}"
        torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()
    late = f"; no time was left for {', '.join(record['left out'])}" if record["left out"] else ""
    yield f"Written to {out}{late}"
