"""What check.py makes, converts and expects: add a row here."""

import dataclasses
import typing


class Problem(Exception):
    """What went wrong with a row."""


# Fresh cases: the arguments of make_fixtures.py. Gefen-X reshards to some worlds
# too, to be compared with.
SMALL = "--dim 16 --hidden 40 --layers 1 --vocab 48 "
CASES = {
    "plain-2": SMALL + "--world 2 --seed 31 --reshard 3 4",
    "plain-4": SMALL + "--world 4 --seed 32 --reshard 2",
    "uneven-3": "--dim 12 --hidden 31 --layers 1 --vocab 50 --world 3 --seed 33 --reshard 2 5",
    "default-2": SMALL + "--world 2 --seed 34 --scenario default",
    "bf16-2": SMALL + "--world 2 --seed 35 --dtype bf16 --reshard 4",
    "fsdp-2": SMALL + "--world 2 --seed 36 --fsdp --reshard 3",
    "native-block-1": SMALL + "--world 0 --seed 37",
    "muon-approx-2": SMALL + "--world 2 --seed 38 --scenario muon --sharded-mode approx",
    "muon-exact-2": SMALL + "--world 2 --seed 39 --scenario muon --sharded-mode exact",
    "hybrid-approx-2": SMALL + "--world 2 --seed 40 --scenario hybrid --sharded-mode approx",
}

# What fidelity.py makes: small ones, whose shards have few blocks; uneven ones; and
# large ones, whose weights have shards of 4,096 elements and more.
UNEVEN = "--dim 12 --hidden 31 --layers 1 --vocab 50 "
LARGE = "--dim 96 --hidden 256 --layers 2 --vocab 512 "
FIDELITY = {
    "small-1": SMALL + "--world 1 --seed 51 --reshard 4",
    "small-2": SMALL + "--world 2 --seed 52 --reshard 3 4",
    "small-4": SMALL + "--world 4 --seed 53 --reshard 1 2 3",
    "uneven-3": UNEVEN + "--world 3 --seed 54 --reshard 2 5",
    "uneven-4": UNEVEN + "--world 4 --seed 55 --reshard 3",
    "bf16-2": SMALL + "--world 2 --seed 56 --dtype bf16 --reshard 3 4",
    "bf16-4": SMALL + "--world 4 --seed 57 --dtype bf16 --reshard 1 2",
    "fsdp-2": SMALL + "--world 2 --seed 58 --fsdp --reshard 3 4",
    "large-2": LARGE + "--world 2 --seed 59 --reshard 3 4",
    "large-4": LARGE + "--world 4 --seed 60 --reshard 2",
    "large-bf16-4": LARGE + "--world 4 --seed 61 --dtype bf16 --reshard 2",
}

# Before the name of a case: it is one of ../checkpoints, as older PyTorch wrote it.
STORED = "testdata/"

# Keys that only gefenckpt writes, and dcp.load ignores.
OUR_OWN_KEYS = {"gefenckpt"}


def loads(report, own):
    """It loads, and the momentum is about right."""
    m = report["momentum_rel_l2"]
    return [] if m is not None and m < 0.05 else ["the momentum's error is %s" % m]


def lossless(report, own):
    """The state is the source's, bit for bit."""
    problems = ["%s is %s" % (k, report[k]) for k in ("momentum_rel_l2", "second_moment_rel_l2") if report[k]]
    if report["momentum_rel_l2"] is None:
        problems.append("there is no momentum")
    if report["normuon_equal"] is False:
        problems.append("NorMuon's rows differ")
    return problems


def bit_exact(report, own):
    """And training continues as if nothing had happened."""
    return lossless(report, own) + ([] if report["bit_exact"] else ["the continuation differs"])


def like_own(report, own):
    """Every figure is that of the dense directory that Gefen-X saved itself."""
    want = own()
    keys = ("momentum_rel_l2", "second_moment_rel_l2", "update_rel_l2", "bytes_per_param")
    return ["%s: %s instead of %s" % (k, report[k], want[k]) for k in keys if report[k] != want[k]]


def like_gefenx(report, own):
    """The continuation is that of Gefen-X's own reshard, bit for bit."""
    got, want = report["update_rel_l2"], report["reference_update_rel_l2"]
    return [] if got == want else ["update %s, Gefen-X %s" % (got, want)]


def better_than_gefenx(report, own):
    """The update is nearer to the source's than after Gefen-X's own reshard, at every step."""
    pairs = zip(report["update_rel_l2"], report["reference_update_rel_l2"])
    return ["step %d: update %.4g, Gefen-X %.4g" % (i, a, b) for i, (a, b) in enumerate(pairs) if a > b]


@dataclasses.dataclass
class Row:
    """One check.

    commands are arguments of gefenckpt, run one after the other; {case} is the
    folder of the case, {out} a path of the row's own, and the last command writes
    {out} with its suffix. The result is loaded on so many ranks (0: one process
    without FSDP2), and check lists what is wrong with load_check's report. With
    same_as nothing is loaded: the result must hold what that path in the case
    does, and the extra keys.
    """

    case: str
    name: str
    commands: typing.List[typing.List[str]]
    world: int = 0
    check: typing.Callable = loads
    factored: typing.Optional[int] = None
    same_as: str = ""
    extra: typing.Sequence[str] = ()
    candidate: str = "{out}"

    def __str__(self):
        return "%s: %s%s" % (self.case, self.name, "" if self.same_as else " on %d" % self.world)


def convert(source, target, to, *more):
    return ["convert", "{case}/" + source, target, "--to", to, *more]


def rows():
    # Compact to dense: what Gefen-X would have saved, and loaded just like it.
    dense = [convert("full.pt", "{out}", "dense")]
    for case in ("plain-2", "plain-4", "uneven-3", "bf16-2", "fsdp-2", STORED + "plain-2"):
        yield Row(case, "dense tree", dense, same_as="dcp_dense", extra=["epoch"])
    for case, world in (("plain-2", 1), ("plain-2", 5), ("plain-4", 2), ("uneven-3", 2), ("uneven-3", 4), ("bf16-2", 4),
                        ("fsdp-2", 3), (STORED + "plain-2", 3)):
        yield Row(case, "dense", dense, world, like_own)
    yield Row("default-2", "dense", dense, 3, factored=0)

    # The directories that dcp.load refuses.
    rescue = [convert("dcp_payload", "{out}", "dense")]
    yield Row("plain-2", "rescue", rescue, 4, like_own)
    yield Row("fsdp-2", "rescue", rescue, 2, like_own)
    yield Row(STORED + "plain-2", "rescue", rescue, 1, like_own)
    for case in ("uneven-3", STORED + "uneven-3"):
        for world in (2, 5):
            yield Row(case, "repair", [convert("reshard_5/dcp_dense", "{out}", "dense")], world)

    # Compact to compact, at the same world.
    for layout in ("nested", "flat", "raw"):
        commands = [convert("dcp_payload", "{out}.pt", "compact", "--layout", layout)]
        yield Row("plain-2", layout, commands, 2, bit_exact)
    yield Row("default-2", "nested", [convert("flat.pt", "{out}.pt", "compact", "--layout", "nested")], 2, bit_exact)
    yield Row("plain-2", "nested tree", [convert("full.pt", "{out}.pt", "compact")], same_as="full.pt")
    yield Row("plain-2", "directory of payloads", [convert("full.pt", "{out}", "compact", "--container", "dcp")], same_as="dcp_payload", extra=["epoch"])
    there_and_back = dense + [["convert", "{out}", "{out}.pt", "--to", "compact"]]
    for case, world in (("plain-2", 2), ("uneven-3", 3), ("bf16-2", 2), ("default-2", 2)):
        yield Row(case, "dense and back", there_and_back, world, bit_exact)

    # One process.
    yield Row("native-block-1", "native", [convert("full.pt", "{out}.pt", "native")], 0, bit_exact)
    yield Row("native-block-1", "dense", dense, 2)
    yield Row("plain-2", "native", [convert("full.pt", "{out}.pt", "native")], 0)
    ranked = convert("full.pt", "{out}.pt", "compact", "--world", "2", "--device-type", "cpu", "--mesh-dim-name", "dp", "--fidelity", "lossless")
    yield Row("native-block-1", "compact", [ranked], 2, lossless)

    # Resharded.
    for fidelity, check, targets in (
        ("lossless", lossless, (("plain-2", 4), ("plain-2", 3), ("plain-4", 2), ("uneven-3", 5), ("fsdp-2", 3))),
        ("balanced", better_than_gefenx, (("plain-2", 3), ("plain-2", 4), ("plain-4", 2), ("uneven-3", 2), ("uneven-3", 5), ("bf16-2", 4), ("fsdp-2", 3))),
        ("reference", like_gefenx, (("plain-2", 3), ("plain-4", 2), ("uneven-3", 2), ("uneven-3", 5), ("bf16-2", 4), ("fsdp-2", 3))),
    ):
        for case, world in targets:
            commands = [["reshard", "{case}/full.pt", "{out}.pt", "--to", str(world), "--fidelity", fidelity]]
            yield Row(case, fidelity, commands, world, check)

    # Gefen-X's own files, unconverted: that load_check.py loads them shows that it
    # can tell.
    for case, path in (("muon-approx-2", "full.pt"), ("muon-exact-2", "full.pt"), ("muon-exact-2", "raw.pt"), ("hybrid-approx-2", "full.pt")):
        yield Row(case, "Gefen-X's own " + path, [], 2, bit_exact, candidate="{case}/" + path)
