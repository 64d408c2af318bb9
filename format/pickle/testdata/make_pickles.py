"""Writes the pickles in python/: each case in each protocol that can hold it.

The Go tests know what each case holds. check_written.py loads what the Go
package writes for them and compares it with the same cases.

    python3 make_pickles.py
"""

import collections
import enum
import pickle
import sys
import types
from pathlib import Path

PROTOCOLS = range(6)


class Thing:
    """An object with a __dict__."""


class Slotted:
    __slots__ = ("a", "b")


class Named:
    """Made by __new__ with keyword arguments."""

    def __new__(cls, x, *, y):
        self = super().__new__(cls)
        self.x, self.y = x, y
        return self

    def __getnewargs_ex__(self):
        return (self.x,), {"y": self.y}


class Items(list):
    pass


class Table(dict):
    pass


class Color(enum.Enum):
    RED = 1


things = types.ModuleType("things")
for cls in (Thing, Slotted, Named, Items, Table, Color):
    cls.__module__ = "things"
    setattr(things, cls.__name__, cls)
sys.modules["things"] = things


def scalars():
    return [
        None, True, False,
        0, 255, 256, 65535, 65536, -1, 2**31 - 1, -2**31, 2**31, -2**31 - 1,
        2**63 - 1, -2**63, 2**63, -2**63 - 1, 2**77, -2**77, 128, -128, 32768, -32768,
        1.5, -0.0, 1e300, float("inf"), float("-inf"),
        "", "ascii", "caf\u00e9 \u6f22 \U0001f600", "lone \ud800 surrogate", "back\\slash\nnewline\r\x00\x1a", "x" * 300,
    ]


def longs():
    return [2**2039 - 1, -2**2039, 2**2040, -2**2040, 2**4000]


def raw():
    return [b"", b"abc", bytes(range(256)), b"y" * 300, bytearray(), bytearray(b"\x00\xff")]


def containers():
    return {
        "empty": [(), [], {}],
        "tuples": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "nested": {"a": {"b": [{"c": (1, [2, (3,)])}]}},
        7: "integer key",
        (1, "x"): "tuple key",
        None: "None key",
    }


def sets():
    return [set(), {1}, frozenset(), frozenset({"x"}), {frozenset({(1, 2)})}]


def batches():
    return [list(range(1001)), {i: None for i in range(1001)}, [0] * 1000, set(range(1001))]


def shared():
    inner, text, data = [1], "shared text", b"shared bytes"
    return [inner, inner, (inner,), {"k": inner}, text, text, data, data]


def cyclic():
    in_list = []
    in_list.append(in_list)
    in_dict = {}
    in_dict["self"] = in_dict
    in_object = Thing()
    in_object.me = in_object
    short, long = ([],), (1, 2, 3, [])
    short[0].append(short)
    long[3].append(long)
    return [in_list, in_dict, in_object, short, long]


def cyclic_set():
    member = Thing()
    member.sets = {member}
    return member.sets


def objects():
    thing = Thing()
    thing.a, thing.b = 1, [2]
    slotted = Slotted()
    slotted.a = 3
    items = Items([1, 2])
    items.note = "kept"
    table = Table(k="v")
    ordered = collections.OrderedDict([("z", 1), ("a", 2)])
    ordered.note = "kept"
    counter = collections.Counter("aab")
    default = collections.defaultdict(list, {"k": [1]})
    return [Thing(), thing, slotted, items, table, ordered, counter, default, Color.RED, complex(1, -2), range(3), int, str, len]


def keywords():
    return Named(1, y=[2])


CASES = {
    # Protocol 2 is the first with objects made by __new__; 0 and 1 write them
    # otherwise.
    scalars: PROTOCOLS,
    longs: PROTOCOLS,
    raw: PROTOCOLS,
    containers: PROTOCOLS,
    sets: PROTOCOLS,
    batches: (2, 4),
    shared: PROTOCOLS,
    cyclic: range(2, 6),
    cyclic_set: range(2, 6),
    objects: range(2, 6),
    keywords: range(2, 6),
}


def main():
    folder = Path(__file__).parent / "python"
    folder.mkdir(exist_ok=True)
    for case, protocols in CASES.items():
        for protocol in protocols:
            data = pickle.dumps(case(), protocol)
            (folder / f"{case.__name__}.{protocol}.pickle").write_bytes(data)


if __name__ == "__main__":
    main()
