"""Make the checkpoint directories that the tests of package dcp read.

    python make_directories.py OUT

writes one directory per case below OUT/torch-<release>/, each with an
expected.json that lists what it holds.  Cases that the installed PyTorch or the
installed packages (zstandard, safetensors) cannot make are left out.  The
directories in testdata were made with PyTorch 2.6.0 and 2.15.0 on Python 3.11.
"""

import inspect
import io
import json
import os
import pickle
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

RELEASE = ".".join(torch.__version__.split(".")[:2])


def tree(mesh=None, rank=0):
    """A state dict with what flattening and dtypes can do."""
    state = {
        "model": {"0.weight": torch.arange(6.0).reshape(2, 3), "0.bias": torch.arange(3).to(torch.bfloat16)},
        "optimizer": {
            "state": {0: {"step": torch.tensor(7, dtype=torch.int64)}},
            "param_groups": [{"lr": 0.5, "params": [0], "betas": (0.9, 0.95), "name": None}, {}, {"lr": 1.5}],
        },
        "epoch": 3,
        "big": 2**70,
        "negative": -(2**40),
        "flag": True,
        "text": "na\u00efve \u2603",
        "raw": b"\x00\xff",
        "empty": {},
        "no_items": [],
        "plain_list": [1, [2, 3]],
        "mixed": [1, torch.full((2,), 4, dtype=torch.int32), {"a": 4}, [torch.zeros(0, 4)]],
        "pair": (1, torch.tensor([1.0, 2.0])),
        "dtype": torch.float16,
        "x" * 300: 1,
        "\u043a\u043b\u044e\u0447": torch.tensor([1.5]),
    }
    return state


def layouts():
    """Tensors that torch does not store row by row."""
    return {
        "transposed": torch.arange(12.0).reshape(3, 4).t(),
        "permuted": torch.arange(24, dtype=torch.int16).reshape(2, 3, 4).permute(2, 0, 1),
        "channels_last": torch.arange(18.0).reshape(1, 2, 3, 3).contiguous(memory_format=torch.channels_last),
        "columns": torch.arange(12.0).reshape(3, 4)[:, 1:3],
        "slice": torch.arange(10.0)[2:5],
        "expanded": torch.ones(1).expand(4),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "none": torch.zeros(0, 4),
    }


DTYPES = """float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128 uint16 uint32
uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()


def dtypes():
    """Two elements of every dtype, of arbitrary bits but for bool."""
    state = {}
    for name in DTYPES:
        dtype = getattr(torch, name, None)
        if dtype is None:
            continue
        size = torch.empty(0, dtype=dtype).element_size()
        bits = torch.arange(2 * size, dtype=torch.uint8) * 37 + 101
        state[name] = torch.tensor([True, False]) if dtype == torch.bool else bits.view(dtype)
    return state


def sharded(mesh, rank):
    """Shards along either dimension, uneven and empty ones, replicas."""
    def place(t, placement):
        return distribute_tensor(t, mesh, [placement])

    state = {
        "a": place(torch.arange(15.0).reshape(5, 3), Shard(0)),
        "uneven1": place(torch.arange(3, dtype=torch.int64), Shard(0)),
        "one": place(torch.tensor([9.0]), Shard(0)),
        "col": place(torch.arange(12, dtype=torch.uint8).reshape(3, 4), Shard(1)),
        "rep": place(torch.arange(4.0), Replicate()),
        "nothing": place(torch.zeros(0, 4), Shard(0)),
        "plain": torch.arange(100.0),
        "plain2": torch.arange(10.0),
        "step": torch.tensor(5.0),
        "n": 5,
        "lst": [1, 2, 3],
    }
    return state


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def expectation(state, path=()):
    """What a reader should find: (path, value) for every leaf."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from expectation(value, path + (str(key),))
    elif isinstance(state, list) and descended(state):
        for i, value in enumerate(state):
            yield from expectation(value, path + (i,))
    elif isinstance(state, torch.Tensor):
        t = whole(state).detach().contiguous()
        data = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        yield {"path": path, "dtype": str(t.dtype)[6:], "shape": list(t.shape),
               "data": data.hex() if len(data) < 1000 or any(data) else "zeros"}
    else:
        yield {"path": path, "value": plain(state)}


def descended(items):
    return any(isinstance(v, (dict, torch.Tensor)) or isinstance(v, list) and descended(v) for v in items)


def plain(value):
    if isinstance(value, torch.Tensor):
        return {"tensor": value.numpy().tobytes().hex()}
    if isinstance(value, torch.dtype):
        return {"global": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, int) and abs(value) >= 2**53:
        return {"int": str(value)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def expect(state, out):
    found = list(expectation(state))
    if not dist.is_initialized() or dist.get_rank() == 0:
        with open(os.path.join(out, "expected.json"), "w") as f:
            json.dump(found, f, indent=0, ensure_ascii=False)
            f.write("\n")


def save(state, out, planner=None, **options):
    dcp.save(state, storage_writer=FileSystemWriter(out, **options), planner=planner)
    expect(state, out)


def ranks(rank, world, store, out):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    state = sharded(mesh, rank)
    if out.startswith("threads"):
        save(state, out, thread_count=3)
    elif out.startswith("many-files"):
        save(state, out, single_file_per_rank=False)
    elif out.startswith("async"):
        dcp.async_save(state, checkpoint_id=out).result()
        expect(state, out)
    elif out.startswith("rank-local"):
        dcp.save(state, checkpoint_id=out, use_collectives=False)
        expect(state, out)
    else:
        save(state, out)
    dist.barrier()
    dist.destroy_process_group()


def spawn(name, world):
    with tempfile.TemporaryDirectory() as scratch:
        mp.spawn(ranks, (world, os.path.join(scratch, "store"), name), nprocs=world)


def small():
    return {"w": torch.arange(6.0).reshape(2, 3), "s": torch.tensor(7), "n": 5}


def rewrite(directory, protocol, edit=lambda metadata: None, replace=()):
    """Pickle the metadata again, without a memo where there are no equal parts."""
    path = os.path.join(directory, ".metadata")
    with open(path, "rb") as f:
        metadata = pickle.load(f)
    edit(metadata)
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol)
    pickler.fast = True
    pickler.dump(metadata)
    data = buffer.getvalue()
    for old, new in replace:
        data = data.replace(old, new)
    with open(path, "wb") as f:
        f.write(data)


def old_names(metadata):
    for name in ("storage_meta", "version"):
        metadata.__dict__.pop(name, None)


def five_parts():
    """TensorProperties as every release before 2.15 pickles them."""
    from torch.distributed.checkpoint.metadata import TensorProperties

    state = TensorProperties.__getstate__
    TensorProperties.__getstate__ = lambda self: state(self)[:5]


def main(out):
    out = os.path.join(out, "torch-" + RELEASE)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    os.chdir(out)  # torch records the path, which should not be this machine's

    save(tree(), "tree")
    save(layouts(), "layouts")
    save(dtypes(), "dtypes")
    save(small(), "small")
    for world in (2, 4):
        spawn("sharded-%d" % world, world)
    for name in ("threads-2", "many-files-2", "async-2"):
        spawn(name, 2)
    if "use_collectives" in inspect.signature(dcp.save).parameters:
        spawn("rank-local-2", 2)

    try:
        import zstandard  # noqa: F401
        from torch.distributed.checkpoint._extension import ZStandard

        save(tree() | {"zeros": torch.zeros(50000)}, "zstd", _extensions=[ZStandard()])
    except ImportError:
        pass
    try:
        import safetensors  # noqa: F401
        from torch.distributed.checkpoint.filesystem import SerializationFormat

        state = {k: v for k, v in dtypes().items() if not k.startswith("complex") and "fnuz" not in k}
        state |= {"n": 5, "m": torch.arange(6.0).reshape(2, 3)}
        save(state, "safetensors", serialization_format=SerializationFormat.SAFETENSORS)
        save({"w": torch.arange(3.0)}, "safetensors-1", serialization_format=SerializationFormat.SAFETENSORS)
    except ImportError:
        pass

    # Before 2.4 a dict without tensors was one item; and without flattening every
    # top-level value is one, with nothing to say where it stood.
    state = {"w": torch.arange(3.0), "optimizer": {"lr": 0.1, "groups": [{"a": 1}, {"b": [2]}]}}
    save(state, "unflattened", planner=DefaultSavePlanner(flatten_state_dict=False))
    shutil.copytree("unflattened", "old-flattening")
    rewrite("old-flattening", 4,
            lambda m: setattr(m, "planner_data", {key: (key,) for key in m.state_dict_metadata}))

    five_parts()
    metadata = b"ctorch.distributed.checkpoint.metadata\n"
    sharded_metadata = b"ctorch.distributed._shard.sharded_tensor.metadata\n"
    for protocol in (2, 5):
        save(small(), "protocol-%d" % protocol)
        rewrite("protocol-%d" % protocol, protocol)
    save(small(), "old-names")
    rewrite("old-names", 2, old_names, [
        (metadata + b"TensorProperties\n", sharded_metadata + b"TensorProperties\n"),
        (metadata + b"_MEM_FORMAT_ENCODING\n", sharded_metadata + b"MEM_FORMAT_ENCODING\n"),
    ])


if __name__ == "__main__":
    main(sys.argv[1])
