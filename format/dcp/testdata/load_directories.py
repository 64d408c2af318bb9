"""Load with PyTorch the directories that package dcp writes.

    go test ./format/dcp -run TestWriteForTorch -interop DIR
    python load_directories.py DIR

loads each directory below DIR with dcp.load on one to three ranks, into DTensors
and into plain tensors, and with dcp_to_torch_save, and compares every element.
"""

import io
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

PLAIN = {
    "model": {},
    "optimizer": {"param_groups": [{"lr": 0.001, "betas": (0.9, 0.95), "params": ["a", "b"]}, {"lr": -7}]},
    "plain": {"none": None, "true": True, "big": -(2**70), "text": "na\u00efve \u2603", "raw": b"\x00\xff", "list": [1, []], "pair": (1, "x")},
    "long" * 80: 1,
    "\u043a\u043b\u044e\u0447": 1 << 40,
}


def wanted(directory):
    with open(os.path.join(directory, "expected.json")) as f:
        return json.load(f)


def tensor_of(entry):
    dtype = getattr(torch, entry["dtype"])
    data = bytearray.fromhex(entry["data"])
    flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(entry["shape"])


def known(entry):
    return hasattr(torch, entry["dtype"])


def bits(t):
    t = t.full_tensor() if hasattr(t, "full_tensor") else t
    return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def put(tree, path, value):
    for step, following in zip(path[:-1], path[1:]):
        if isinstance(tree, list):
            tree = tree[step]
        else:
            tree = tree.setdefault(step, [] if isinstance(following, int) else {})
    tree[path[-1]] = value


def get(tree, path):
    for step in path:
        tree = tree[step]
    return tree


def copy(tree):
    if isinstance(tree, dict):
        return {k: copy(v) for k, v in tree.items()}
    if isinstance(tree, list) and any(isinstance(v, dict) for v in tree):
        return [copy(v) for v in tree]
    return "to be loaded"


def same_plain(got, want):
    if isinstance(want, dict):
        return all(same_plain(got[k], v) for k, v in want.items())
    if isinstance(want, list) and any(isinstance(v, dict) for v in want):
        return all(same_plain(a, b) for a, b in zip(got, want))
    return type(got) is type(want) and got == want


def load(directory, place):
    state = copy(PLAIN)
    entries = [e for e in wanted(directory) if known(e)]
    for e in entries:
        blank = torch.zeros(e["shape"], dtype=torch.uint8).to(getattr(torch, e["dtype"]))
        put(state, e["path"], place(blank))
    dcp.load(state, storage_reader=FileSystemReader(directory))
    for e in entries:
        got = get(state, e["path"])
        assert bits(got) == bytes.fromhex(e["data"]), (directory, e["path"])
    assert same_plain(state, PLAIN), state
    return len(entries)


def ranks(rank, world, store, directory):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))

    def along(dim):
        def place(t):
            # Collectives of gloo do not know every dtype, and old ones no tensor
            # without elements: those stay plain.
            if t.dtype not in (torch.float32, torch.float64, torch.int64, torch.uint8):
                return t
            if t.numel() == 0 and torch.__version__.startswith("2.6"):
                return t
            return distribute_tensor(t, mesh, [Shard(dim) if t.dim() > dim else Replicate()])
        return place

    counts = [load(directory, place) for place in (along(0), along(1), lambda t: t)]
    if rank == 0:
        print(directory, "world", world, "Shard(0), Shard(1), plain:", counts, "tensors equal", flush=True)
    dist.destroy_process_group()


def main(out):
    for name in sorted(os.listdir(out)):
        directory = os.path.join(out, name)
        if name.endswith("zstd"):
            try:
                import zstandard  # noqa: F401
                from torch.distributed.checkpoint._extension import ZStandard  # noqa: F401
            except ImportError:
                print(directory, "left out: no zstd here")
                continue
        for world in (1, 2, 3):
            with tempfile.TemporaryDirectory() as scratch:
                mp.spawn(ranks, (world, os.path.join(scratch, "store"), directory), nprocs=world)
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "all.pt")
            dcp_to_torch_save(directory, path)
            state = torch.load(path, weights_only=True)
        entries = [e for e in wanted(directory) if known(e)]
        for e in entries:
            assert bits(get(state, e["path"])) == bytes.fromhex(e["data"]), e["path"]
        assert same_plain(state, PLAIN), state
        print(directory, "dcp_to_torch_save:", len(entries), "tensors equal")


if __name__ == "__main__":
    print("torch", torch.__version__)
    main(sys.argv[1])
