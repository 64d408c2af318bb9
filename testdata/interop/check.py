"""Load what gefenckpt writes with real PyTorch and Gefen-X.

    python check.py --binary ./gefenckpt [--keep DIR]

Makes fresh checkpoints with make_fixtures.py, converts and reshards them with
the given binary, and lets load_check.py load the results and continue training.
One line per check, and a last line 'N passed, N failed'.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent

# name, arguments of make_fixtures.py; each is resharded by Gefen-X too.
CASES = {
    "plain-2": ["--world", "2", "--seed", "31", "--reshard", "3", "4"],
    "plain-4": ["--world", "4", "--seed", "32", "--reshard", "2"],
    "uneven-3": ["--world", "3", "--seed", "33", "--dim", "12", "--hidden", "31", "--vocab", "50", "--reshard", "2", "5"],
    "default-2": ["--world", "2", "--seed", "34", "--scenario", "default"],
    "bf16-2": ["--world", "2", "--seed", "35", "--dtype", "bf16", "--reshard", "4"],
    "fsdp-2": ["--world", "2", "--seed", "36", "--fsdp", "--reshard", "3"],
}
SMALL = ["--dim", "16", "--hidden", "40", "--layers", "1", "--vocab", "48"]

# What GefenDCPState's own directory gives when it is loaded on the same ranks.
SAME = ("momentum_rel_l2", "second_moment_rel_l2", "update_rel_l2", "bytes_per_param")


def equal_to(reference):
    """The report agrees with that of another directory in every figure."""
    def check(report):
        return [f"{k}: {report[k]} instead of {reference[k]}" for k in SAME if report[k] != reference[k]]
    return check


def lossless(report):
    """The state is the source's, bit for bit."""
    return [f"{k} is {report[k]}" for k in ("momentum_rel_l2", "second_moment_rel_l2") if report[k] != 0]


def bit_exact(report):
    """Training continues as if nothing had happened."""
    return lossless(report) + ([] if report["bit_exact"] else ["the continuation differs"])


def loads(report):
    return []


def better_than_reference(factor):
    """The update is nearer to the source's than after Gefen-X's own reshard, at every step."""
    def check(report):
        pairs = zip(report["update_rel_l2"], report["reference_update_rel_l2"])
        return [f"step {i}: update {a:.4g}, Gefen-X {b:.4g}" for i, (a, b) in enumerate(pairs) if a > factor * b]
    return check


def like_gefenx(report):
    """The continuation is that of Gefen-X's own reshard, bit for bit."""
    return [] if report["update_rel_l2"] == report["reference_update_rel_l2"] else [
        f"update {report['update_rel_l2']}, Gefen-X {report['reference_update_rel_l2']}"]


def run(command, timeout=300, tries=2):
    """stdout of a command; gloo may hang on a busy machine, so it gets another try."""
    for attempt in range(tries):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0 or attempt == tries - 1:
            return done
    raise RuntimeError("timed out: " + " ".join(map(str, command)))


class Checks:
    def __init__(self, binary, work):
        self.binary, self.work = binary, work
        self.passed = self.failed = 0

    def say(self, name, problems):
        if problems:
            self.failed += 1
            print("FAIL", name, "; ".join(problems), flush=True)
        else:
            self.passed += 1
            print("ok  ", name, flush=True)

    def make(self, name):
        done = run([sys.executable, HERE / "make_fixtures.py", self.work / name, *SMALL, *CASES[name]], timeout=600)
        return done.stderr[-2000:] if done.returncode else None

    def load(self, case, candidate, world, *more):
        """The report of load_check.py. Ranks that lose each other give none: again then."""
        command = [sys.executable, HERE / "load_check.py", self.work / case, candidate, "--world", str(world), *more]
        for _ in range(3):
            done = run(command)
            try:
                report = json.loads(done.stdout.strip().splitlines()[-1])
            except (IndexError, ValueError):
                report = {"error": "no report: " + done.stderr[-500:]}
            if "no report" not in report.get("error", ""):
                break
        return report

    def convert(self, args):
        done = run([self.binary, *args, "--quiet", "--force"])
        return None if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()}"

    def one(self, row):
        """Convert, load, check. Returns the check's name and its problems."""
        name, case, args, target, world, more, check = row
        out = self.work / "out" / f"{case}-{name}{target}"
        problem = self.convert([a.format(case=self.work / case, out=out) for a in args])
        if problem:
            return name, case, world, [problem]
        report = self.load(case, out, world, *more)
        if "error" in report:
            return name, case, world, [report["error"][-600:]]
        return name, case, world, check(self, case, world, more)(report)


def own(checks, case, world, more):
    return equal_to(checks.load(case, checks.work / case / "dcp_dense", world, *more))


def fixed(check):
    return lambda checks, case, world, more: check


def rows():
    dense = ["convert", "{case}/full.pt", "{out}", "--to", "dense"]
    rescue = ["convert", "{case}/dcp_payload", "{out}", "--to", "dense"]
    for case, world in (("plain-2", 1), ("plain-2", 3), ("plain-4", 2), ("uneven-3", 5), ("bf16-2", 4), ("fsdp-2", 3)):
        yield (f"dense-{world}", case, dense, "", world, (), own)
    yield ("rescue", "plain-2", rescue, "", 4, (), own)
    yield ("rescue", "fsdp-2", rescue, "", 2, (), own)
    yield ("dense", "default-2", dense, "", 3, ("--factored", "0"), fixed(loads))
    yield ("compact", "plain-2", ["convert", "{case}/dcp_payload", "{out}", "--to", "compact"], ".pt", 2, (), fixed(bit_exact))
    for fidelity, check, cases in (
        ("lossless", lossless, (("plain-2", 4), ("plain-2", 3), ("plain-4", 2), ("uneven-3", 5), ("fsdp-2", 3))),
        ("balanced", better_than_reference(1.0), (("plain-2", 3), ("plain-4", 2), ("bf16-2", 4), ("fsdp-2", 3))),
        ("reference", like_gefenx, (("plain-2", 3), ("plain-4", 2), ("uneven-3", 2))),
    ):
        for case, world in cases:
            args = ["reshard", "{case}/full.pt", "{out}", "--to", str(world), "--fidelity", fidelity]
            yield (f"{fidelity}-{world}", case, args, ".pt", world, (), fixed(check))


def compare_trees(checks, case):
    """Our dense directory holds what Gefen-X's own does, tensor for tensor."""
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    def flat(directory):
        path = checks.work / "flat.pt"
        dcp_to_torch_save(str(directory), str(path))
        return torch.load(path, weights_only=True)["optimizer"]

    out = checks.work / "out" / f"{case}-tree"
    problem = checks.convert(["convert", str(checks.work / case / "full.pt"), str(out), "--to", "dense"])
    if problem:
        return [problem]
    ours, theirs = flat(out), flat(checks.work / case / "dcp_dense")
    problems = []
    for key, want in theirs.items():
        got = ours.get(key)
        same = torch.equal(got, want) and got.dtype == want.dtype if torch.is_tensor(want) else got == want
        if not same:
            problems.append(key + " differs")
    return problems


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--keep", help="folder to work in, kept; what is in it already is not made again")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(a.keep or temporary).resolve()
        (work / "out").mkdir(parents=True, exist_ok=True)
        checks = Checks(os.path.abspath(a.binary), work)
        with ThreadPoolExecutor(2) as pool:
            missing = [c for c in CASES if not (work / c / "continuation.pt").exists()]
            for case, problem in zip(missing, pool.map(checks.make, missing)):
                checks.say(f"make {case}", [problem] if problem else [])
            for case in CASES:
                if (work / case / "dcp_dense").exists():
                    checks.say(f"{case}: dense directory, tensor for tensor", compare_trees(checks, case))
            for name, case, world, problems in pool.map(checks.one, rows()):
                checks.say(f"{case}: {name} on {world}", problems)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed or not checks.passed else 0)


if __name__ == "__main__":
    main()
