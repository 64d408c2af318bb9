"""Make the torch.save archives of this folder.

    python make_archives.py OUT

writes OUT/torch-<release>/*.pt with the installed PyTorch, and expected.json
beside them: for each file, the tensors of its top-level dict with type, shape,
bytes (row-major, little-endian, hex), requires_grad and whether each is a
Parameter. The files of 2.6 and 2.15 are checked in. Some are rewritten with
Python's zipfile, to be what other tools and other machines make of them.

    python make_archives.py large OUT

writes OUT/large.json: what is not zero in an archive of 8 GiB.
"""

import collections
import io
import json
import os
import pickletools
import socket
import struct
import sys
import tempfile
import zipfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

TYPES = """float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128
uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()


def of_bytes(dtype, n):
    """n elements of any type, NaN payloads and signed zeros among them."""
    dtype = getattr(torch, dtype)
    if dtype == torch.bool:
        return torch.tensor([i % 2 == 0 for i in range(n)])
    size = torch.empty(0, dtype=dtype).element_size()
    raw = bytearray((37 * i + 11) % 256 for i in range(n * size))
    raw[-size:] = b"\x00" * (size - 1) + b"\x80"
    return torch.frombuffer(raw, dtype=dtype).clone()


def tensors():
    base = torch.arange(24, dtype=torch.float32)
    tied = torch.arange(6, dtype=torch.bfloat16)
    images = torch.arange(2 * 3 * 4 * 5, dtype=torch.float16).reshape(2, 3, 4, 5)
    cube = torch.arange(24, dtype=torch.int32).reshape(2, 3, 4)
    many = {f"n{i}": torch.full((2,), i) for i in range(11)}
    return {
        "dtypes": {name: of_bytes(name, 3) for name in TYPES if hasattr(torch, name)},
        "views": {
            "permuted": cube.permute(2, 0, 1),
            "transposed": torch.arange(12, dtype=torch.int64).reshape(3, 4).t(),
            "channels_last": images.to(memory_format=torch.channels_last),
            "offset": base[7:12],
            "columns": base.reshape(4, 6)[:, 1:3],
            "strided": base[::5],
            "all": base,
            "tied_a": tied,
            "tied_b": tied,
            "tied_view": tied.reshape(2, 3)[1],
            "alone": torch.arange(100, dtype=torch.float32)[90:93],
            "scalar": torch.tensor(-2.5),
            "counter": torch.tensor(7),
            "scalar_view": torch.arange(5.0)[3],
            "empty": torch.empty(0),
            "empty_rows": torch.empty(0, 4, dtype=torch.uint8),
            "expanded": torch.tensor([3.0]).expand(4, 2),
            "eight": torch.arange(6, dtype=torch.int8).reshape(1, 1, 2, 1, 3, 1, 1, 1),
        },
        "many": many,
    }


class Scaled(torch.Tensor):
    pass


def objects():
    parameter = nn.Parameter(torch.arange(3.0))
    with_state = nn.Parameter(torch.arange(2.0), requires_grad=False)
    with_state.tag = "kept by torch"
    tagged = torch.arange(4.0)
    tagged.note = "kept by torch"
    noted = torch.arange(4.0)
    noted._dynamo_static_input_type = "unguarded"
    layer = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    with torch.no_grad():
        for i, p in enumerate(layer.parameters()):
            p.copy_(torch.arange(p.numel(), dtype=p.dtype).reshape(p.shape) + i)
    ordered = layer.state_dict()
    complexes = torch.tensor([1 + 2j, 3 - 4j])
    return {
        "parameter": parameter,
        "parameter_again": parameter,
        "with_state": with_state,
        "tagged": tagged,
        "noted": noted,
        "grad": torch.arange(2.0).requires_grad_(),
        "state_dict": ordered,
        "size": torch.Size([2, 3]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "raw": b"\x00\xff",
        "conjugated": complexes.conj(),
        "negated": torch.tensor([5 + 6j]).conj().imag,
        "sparse": torch.tensor([[0.0, 1.0]]).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.tensor([0.5, -1.0]), 0.1, 10, torch.qint8),
        "meta": torch.empty(3, 4, device="meta"),
        "half_complex": torch.empty(1, dtype=torch.complex32).zero_(),
        "subclass": torch.arange(2.0).as_subclass(Scaled),
        "storage": torch.arange(4, dtype=torch.int16).storage(),
        "untyped": torch.arange(4, dtype=torch.uint8).untyped_storage(),
        "plain": torch.arange(2.0),
    }


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def shard(rank, world, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    whole = torch.arange(15.0).reshape(5, 3)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    layer = nn.Linear(3, 5)
    with torch.no_grad():
        layer.weight.copy_(whole)
        layer.bias.copy_(torch.arange(5.0))
    from torch.distributed._composable.fsdp import fully_shard

    fully_shard(layer, mesh=mesh)
    saved = {
        "rows": rows,
        "parameter": nn.Parameter(rows),
        "columns": distribute_tensor(whole, mesh, [Shard(1)]),
        "everywhere": distribute_tensor(whole, mesh, [Replicate()]),
        "padded": layer.state_dict()["bias"],
    }
    if rank == world - 1:
        torch.save(saved, os.path.join(out, "dtensor.pt"))
        expect(out, "dtensor.pt", {name: t.to_local().detach() for name, t in saved.items()})
    dist.barrier()
    dist.destroy_process_group()


def expect(out, name, values):
    """Notes the tensors among values in expected.json."""
    path = os.path.join(out, "expected.json")
    known = json.load(open(path)) if os.path.exists(path) else {}
    known[name] = {}
    for key, t in values.items():
        if not isinstance(t, torch.Tensor) or isinstance(t, (DTensor, Scaled)) or t.is_conj() or t.is_neg():
            continue
        if t.is_sparse or t.is_quantized or t.is_meta or t.dtype == torch.complex32:
            continue
        known[name][key] = {
            "dtype": str(t.dtype).removeprefix("torch."),
            "shape": list(t.shape),
            "data": bytes(t.detach().contiguous().clone().untyped_storage()).hex(),
            "grad": t.requires_grad,
            "parameter": isinstance(t, nn.Parameter),
        }
    with open(path, "w") as f:
        json.dump(known, f, indent=1, sort_keys=True)
        f.write("\n")


def members(path):
    """The members of an archive in order: name below the folder, bytes."""
    with zipfile.ZipFile(path) as z:
        return [(i.filename.split("/", 1)[1], z.read(i)) for i in z.infolist()]


def pack(path, content, folder="archive", method=zipfile.ZIP_STORED, folders=False, comment=b""):
    with zipfile.ZipFile(path, "w", method) as z:
        if folders:
            for name in (folder + "/", folder + "/data/"):
                z.writestr(zipfile.ZipInfo(name), b"")
        for name, data in content:
            info = zipfile.ZipInfo(folder + "/" + name)
            info.compress_type = method
            z.writestr(info, data)
        z.comment = comment


def byte_strings(pickle):
    """The pickle with text as Python 2 wrote it: SHORT_BINSTRING."""
    out = io.BytesIO()
    ops = list(pickletools.genops(pickle)) + [(None, None, len(pickle))]
    for (op, arg, at), (_, _, end) in zip(ops, ops[1:]):
        if op.name == "BINUNICODE":
            text = arg.encode()
            out.write(b"U" + struct.pack("B", len(text)) + text)
        else:
            out.write(pickle[at:end])
    return out.getvalue()


def big_endian(content, sizes):
    """The members as a big-endian machine writes them; sizes are of the numbers
    in each storage."""
    for name, data in content:
        if name == "byteorder":
            data = b"big"
        elif name.startswith("data/"):
            size = sizes[name.removeprefix("data/")]
            data = b"".join(data[i : i + size][::-1] for i in range(0, len(data), size))
        yield name, data


def replace(content, **changes):
    return [(name, changes.get(name.replace(".", "_").replace("/", "_"), data)) for name, data in content]


def main():
    release = ".".join(torch.__version__.split(".")[:2])
    out = os.path.join(sys.argv[1], f"torch-{release}")
    os.makedirs(out, exist_ok=True)
    for old in os.listdir(out):
        os.remove(os.path.join(out, old))

    def save(name, values, **options):
        torch.save(values, os.path.join(out, name), **options)
        expect(out, name, values)

    made = tensors()
    for name, values in made.items():
        save(name + ".pt", values)
    save("objects.pt", objects())
    # As an item of a DCP directory is.
    item = {"": torch.arange(6.0).reshape(2, 3)}
    stream = io.BytesIO()
    torch.save(item[""], stream)
    with open(os.path.join(out, "item.pt"), "wb") as f:
        f.write(stream.getvalue())
    # An archive within a tensor within an archive, as Gefen's payloads are.
    inner = io.BytesIO()
    torch.save({"index": torch.arange(6, dtype=torch.uint8), "scale": torch.arange(2.0)}, inner)
    payload = torch.frombuffer(bytearray(inner.getvalue()), dtype=torch.uint8)
    save("nested.pt", {"before": torch.arange(3.0), "payload": payload})

    torch.serialization.set_crc32_options(False)
    save("no-crc.pt", made["many"])
    torch.serialization.set_crc32_options(True)

    typed = {name: t for name, t in made["dtypes"].items() if name in TYPES[:12]}
    save("big-endian.pt", typed)
    path = os.path.join(out, "big-endian.pt")
    numbers = {}
    for i, t in enumerate(typed.values()):
        numbers[str(i)] = t.element_size() // (2 if t.is_complex() else 1)
    pack(path, list(big_endian(members(path), numbers)))
    for name, t in torch.load(path).items():
        assert bytes(t.untyped_storage()) == bytes(typed[name].untyped_storage()), name

    small = {"a": torch.arange(40.0), "b": torch.arange(3)}
    variants = {
        "deflated": dict(method=zipfile.ZIP_DEFLATED),
        "folders": dict(folders=True),
        "comment": dict(comment=b"repacked PK\x05\x06 by hand"),
        "other-prefix": dict(folder="epoch 3 (best)"),
    }
    for name, options in variants.items():
        save(name + ".pt", small)
        path = os.path.join(out, name + ".pt")
        pack(path, members(path), **options)
        assert torch.equal(torch.load(path)["a"], small["a"]), name
    save("python2.pt", small)
    path = os.path.join(out, "python2.pt")
    content = members(path)
    pack(path, replace(content, data_pkl=byte_strings(dict(content)["data.pkl"])))
    assert torch.equal(torch.load(path)["a"], small["a"])
    save("data-version.pt", small)
    path = os.path.join(out, "data-version.pt")
    pack(path, [({"version": ".data/version"}.get(n, n), b"3" if n == "version" else d) for n, d in members(path) if n != "byteorder"])
    assert torch.equal(torch.load(path)["a"], small["a"])

    torch.save(small, os.path.join(out, "legacy.pt"), _use_new_zipfile_serialization=False)
    torch.jit.script(nn.Identity()).save(os.path.join(out, "torchscript.pt"))
    mp.spawn(shard, args=(2, free_port(), out), nprocs=2)


def large(out):
    """An archive with members past 4 GiB, as what is not zero in it. It needs
    9 GB of disk and takes a while."""
    with tempfile.TemporaryDirectory(dir=out) as folder:
        path = os.path.join(folder, "large.pt")
        huge = {"a": torch.zeros(2**32 + 5, dtype=torch.uint8), "b": torch.arange(3), "c": torch.zeros(2**32 + 7, dtype=torch.uint8), "d": torch.arange(4)}
        torch.save(huge, path)
        parts = []
        with open(path, "rb") as f:
            at = 0
            while block := f.read(1 << 16):
                kept = block.lstrip(b"\0")
                if kept and parts and at == parts[-1][0] + len(parts[-1][1]):
                    parts[-1][1] += block
                elif kept:
                    parts.append([at + len(block) - len(kept), kept])
                at += len(block)
    parts = [{"at": start, "bytes": data.rstrip(b"\0").hex()} for start, data in parts]
    with open(os.path.join(out, "large.json"), "w") as f:
        json.dump({"size": at, "parts": parts}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    large(sys.argv[2]) if sys.argv[1] == "large" else main()
