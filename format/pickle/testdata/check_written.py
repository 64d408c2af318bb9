"""Loads what the Go package wrote, in written/, with CPython's unpicklers, and
with PyTorch's weights_only unpickler where PyTorch is installed.

    python3 check_written.py

Each file holds the case of make_pickles.py with its name.
"""

import io
import math
import pickle
import sys
from pathlib import Path

from make_pickles import CASES

try:
    from torch import _weights_only_unpickler as weights_only
except ImportError:
    weights_only = None

# What weights_only refuses whatever the writer: classes that it does not know,
# frozensets, integers of 255 bytes and more, and the POP that tuples and sets in
# themselves take.
NOT_WEIGHTS_ONLY = {"objects", "keywords", "sets", "longs", "cyclic", "cyclic_set"}


def same(a, b, seen):
    """Whether two values have the same types, contents and sharing."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and a == b
    if a is None or callable(a) or isinstance(a, (bool, int, str, bytes, complex, range)):
        return a == b
    if isinstance(a, bytearray) and a != b:
        return False
    if id(a) in seen:
        return seen[id(a)][1] is b
    seen[id(a)] = a, b  # kept alive, so that no other value gets their ids
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and (a == b or all(same(x, y, seen) for x, y in zip(a, b)))
    if isinstance(a, (list, tuple)) and not (len(a) == len(b) and all(same(x, y, seen) for x, y in zip(a, b))):
        return False
    if isinstance(a, dict) and not same([*a, *a.values()], [*b, *b.values()], seen):
        return False
    slots = getattr(type(a), "__slots__", ())
    return same(getattr(a, "__dict__", None), getattr(b, "__dict__", None), seen) and all(
        hasattr(a, s) == hasattr(b, s) and same(getattr(a, s, None), getattr(b, s, None), seen) for s in slots
    )


def main():
    folder = Path(__file__).parent / "written"
    loaders = {"pickle": pickle.load, "pickle.py": lambda f: pickle._Unpickler(f).load()}
    failures = loads = 0
    for case in CASES:
        for protocol in (2, 4):
            data = (folder / f"{case.__name__}.{protocol}.pickle").read_bytes()
            use = dict(loaders)
            if weights_only and protocol == 2 and case.__name__ not in NOT_WEIGHTS_ONLY:
                use["weights_only"] = lambda f: weights_only.load(f, encoding="utf-8")
            for name, load in use.items():
                loads += 1
                got = load(io.BytesIO(data))
                if not same(case(), got, {}):
                    failures += 1
                    print(f"{case.__name__}.{protocol}: {name} reads {got!r:.200}")
    print(f"{loads} loads, {failures} differ{'' if weights_only else '; PyTorch is not installed'}")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
