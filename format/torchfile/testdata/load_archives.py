"""Load with PyTorch the archives that package torchfile writes.

    go test ./format/torchfile -run 'PyTorch|RoundTrip' -interop DIR
    python load_archives.py DIR

loads each archive below DIR with torch.load, weights_only=True where what it
holds allows that, with and without mmap, and compares every element: with
expected.json, and real checkpoints with the files they were read from.
"""

import json
import os
import sys

import torch
import torch.distributed.tensor  # its classes are allowed once it is imported

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKPOINTS = os.path.join(HERE, "../../../testdata/checkpoints")
# What holds classes of the script that made it, or of the mesh.
OBJECTS = {"objects.pt", "dtensor.pt"}


class Scaled(torch.Tensor):
    pass


def raw(t):
    return bytes(t.detach().contiguous().clone().untyped_storage())


def check_expected(path, want, **options):
    values = torch.load(path, **options)
    count = 0
    for key, w in want.items():
        if not hasattr(torch, w["dtype"]):
            continue
        t = values[key]
        if hasattr(t, "to_local"):
            t = t.to_local().detach()
        got = [str(t.dtype).removeprefix("torch."), list(t.shape), raw(t).hex(), t.requires_grad, isinstance(t, torch.nn.Parameter)]
        assert got == [w["dtype"], w["shape"], w["data"], w["grad"], w["parameter"]], (path, key, got, w)
        count += 1
    return count


def same(a, b):
    """Counts the tensors of two equal trees."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b) and a.requires_grad == b.requires_grad
        return 1
    if isinstance(a, dict):
        assert list(a) == list(b)
        return sum(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        return sum(map(same, a, b))
    assert a == b, (a, b)
    return 0


def readable(path):
    """Whether this release knows the types in an archive."""
    try:
        torch.load(path, weights_only=False)
    except AttributeError as e:
        assert "float8_e8m0fnu" in str(e), e
        return False
    return True


def main(out):
    archives = tensors = 0
    for release in sorted(os.listdir(out)):
        if release == "checkpoints":
            continue
        expected = json.load(open(os.path.join(HERE, release, "expected.json")))
        for name in sorted(os.listdir(os.path.join(out, release))):
            path = os.path.join(out, release, name)
            if not readable(path) or name == "dtensor.pt" and release > "torch-2.6" and torch.__version__ < "2.14":
                print("left out:", release, name)
                continue
            for mmap in (False, True):
                tensors += check_expected(path, expected[name], weights_only=name not in OBJECTS, mmap=mmap)
            archives += 1
    for case in sorted(os.listdir(os.path.join(out, "checkpoints"))):
        for name in sorted(os.listdir(os.path.join(out, "checkpoints", case))):
            path = os.path.join(out, "checkpoints", case, name)
            was = torch.load(os.path.join(CHECKPOINTS, case, name), weights_only=False)
            for mmap in (False, True):
                tensors += same(torch.load(path, weights_only=True, mmap=mmap), was)
            archives += 1
    print(f"PyTorch {torch.__version__}: {archives} archives loaded, {tensors} tensors compared")


if __name__ == "__main__":
    main(sys.argv[1])
