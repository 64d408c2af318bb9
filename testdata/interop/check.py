"""Load what gefenckpt writes with real PyTorch and Gefen-X.

    python check.py --binary ./gefenckpt [--keep DIR] [--only TEXT]

Makes fresh checkpoints, converts and reshards them and those of
../checkpoints with the given binary, and lets real Gefen-X load the results and
continue training. cases.py says which. One line per check, with the momentum's
and the last update's error, and a last line 'N passed, N failed'.
"""

import argparse
import concurrent.futures
import io
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import cases
import load_check
import make_fixtures
import ranks

STORED = pathlib.Path(__file__).resolve().parent.parent / "checkpoints"
COMMAND_TIMEOUT = 120  # seconds


class Run:
    """What a row is run with: the binary, and where cases and outputs lie."""

    def __init__(self, binary, work):
        self.binary, self.work = binary, work

    def case(self, name):
        return STORED / name[len(cases.STORED):] if name.startswith(cases.STORED) else self.work / name

    def output(self, row):
        return self.work / "out" / re.sub("[^a-z0-9]+", "-", str(row))

    def convert(self, row):
        """Run a row's commands; raises Problem where one fails."""
        paths = {"case": self.case(row.case), "out": self.output(row)}
        for command in row.commands:
            argv = [self.binary, *(a.format(**paths) for a in command), "--quiet", "--force"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_TIMEOUT)
            if done.returncode:
                raise cases.Problem("exit %d: %s" % (done.returncode, done.stderr.strip()))
        return str(paths["out"]) + (pathlib.Path(row.commands[-1][2]).suffix if row.commands else "")

    def load(self, case, candidate, row):
        return load_check.check(self.case(case), candidate, row.world, row.factored)

    def own(self, case, world):
        """The report on the dense directory that Gefen-X itself saved."""
        return load_check.check(self.case(case), self.case(case) / "dcp_dense", world)


def tree(path):
    """All that a checkpoint holds, whatever its container."""
    if not os.path.isdir(path):
        return torch.load(path, weights_only=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = os.path.join(folder, "whole.pt")
        dcp_to_torch_save(path, whole)
        return torch.load(whole, weights_only=True)


def differences(got, want, path=""):
    """Where two trees differ."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in want.keys() | got.keys():
            where = "%s.%s" % (path, key)
            if key not in got or key not in want:
                if key not in cases.OUR_OWN_KEYS:
                    yield where + (" is missing" if key in want else " is one too many")
            else:
                yield from differences(got[key], want[key], where)
    elif isinstance(want, (list, tuple)) and type(got) is type(want) and len(got) == len(want):
        for i, pair in enumerate(zip(got, want)):
            yield from differences(*pair, "%s.%d" % (path, i))
    elif torch.is_tensor(want) and torch.is_tensor(got):
        if path.rsplit(".")[-1].startswith(load_check.PAYLOAD):
            yield from differences(payload(got), payload(want), path)
        elif got.dtype != want.dtype or not torch.equal(got, want):
            yield path + " differs"
    elif type(got) is not type(want) or got != want:
        yield "%s is %r instead of %r" % (path, got, want)


def payload(archive):
    return torch.load(io.BytesIO(archive.numpy().tobytes()), weights_only=True)


def compare(rank, world, got, want, extra):
    got = tree(got)
    for key in extra:
        del got[key]
    return list(differences(got, tree(want)))


def make(run, case, arguments=None):
    """A fresh case, unless it is there already."""
    if not (run.case(case) / "done").exists():
        make_fixtures.make([run.case(case), *(arguments or cases.CASES[case]).split()])
        (run.case(case) / "done").touch()
    return "made", []


def attempt(run, what, row):
    """(figures, problems) of a row or a case."""
    try:
        return what(run, row)
    except cases.Problem as e:
        return "", [str(e)]
    except ranks.Failed as e:
        return "", ["Gefen-X: " + str(e).strip()]
    except subprocess.TimeoutExpired as e:
        return "", ["timed out: " + " ".join(e.cmd)]


def check(run, row):
    out = run.convert(row)
    if row.same_as:
        return "", ranks.run(0, compare, out, str(run.case(row.case) / row.same_as), row.extra)
    report = run.load(row.case, row.candidate.format(case=run.case(row.case), out=out), row)
    figures = "momentum %.2g" % report["momentum_rel_l2"] if report["momentum_rel_l2"] is not None else ""
    figures += ", update %.2g" % report["update_rel_l2"][-1]
    if "reference_update_rel_l2" in report:
        figures += " (Gefen-X %.2g)" % report["reference_update_rel_l2"][-1]
    return figures, row.check(report, lambda: run.own(row.case, row.world))


def able(case):
    """fully_shard on a CPU came with PyTorch 2.7."""
    version = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
    return version >= (2, 7) or "--fsdp" not in {**cases.CASES, **cases.FIDELITY}.get(case, "")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--keep", help="folder to work in, kept; cases in it are not made again")
    p.add_argument("--only", default="", help="rows whose 'case: name' contains this")
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    rows = [r for r in cases.rows() if a.only in str(r)]
    unable = sorted({r.case for r in rows if not able(r.case)})
    if unable:
        print("not with PyTorch", torch.__version__ + ":", *unable)
    rows = [r for r in rows if able(r.case)]
    fresh = [c for c in cases.CASES if any(r.case == c for r in rows)]
    ranks.warm()
    counts = {True: 0, False: 0}

    def all_of(pool, what, items):
        for item, (figures, problems) in zip(items, pool.map(attempt, [run] * len(items), [what] * len(items), items)):
            print("FAIL " if problems else "ok   ", item, "  ", "; ".join(problems) or figures, flush=True)
            counts[not problems] += 1

    with tempfile.TemporaryDirectory() as temporary:
        run = Run(os.path.abspath(a.binary), pathlib.Path(a.keep or temporary).resolve())
        (run.work / "out").mkdir(parents=True, exist_ok=True)
        fork = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
            all_of(pool, make, fresh)
            all_of(pool, check, rows)
    print("%d passed, %d failed" % (counts[True], counts[False]))
    sys.exit(1 if counts[False] or not counts[True] else 0)


if __name__ == "__main__":
    main()
