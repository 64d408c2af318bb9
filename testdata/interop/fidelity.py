"""Measure with real Gefen-X what a reshard costs at each fidelity.

    python fidelity.py --binary ./gefenckpt [--keep DIR] [--only TEXT]

Makes fresh checkpoints, reshards them, lets real Gefen-X load the results and
continue training, and prints a table in Markdown, one line per reshard. FIDELITY in
cases.py says which checkpoints. Gefen-X is its own reshard through GefenDCPState.

  bytes      indices, magnitudes and second moments per parameter, against the
             source's
  m, v       relative L2 error of momentum and second moment right after loading
  update     relative L2 difference of the whole update after the last step from
             that of the run which was never resharded

It fails where lossless is not, where the report's prediction of m or v is off by
more than 1 %, or where reference is not Gefen-X's to the last bit of the
parameters.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import cases
import check
import load_check
import ranks

GEFENX = "Gefen-X"
LEVELS = ("lossless", "balanced", "reference", GEFENX)
HEAD = ("case", "ranks", "lossless: bytes", "m, v", "balanced: bytes", "m", "v", "update", "Gefen-X: bytes", "m", "v", "update",
        "balanced / Gefen-X, update by step")


def measure(run, item):
    """(what load_check finds, what gefenckpt foretold) of one level of a reshard."""
    case, world, level = item
    folder = run.case(case)
    if level == GEFENX:
        return load_check.check(folder, folder / "dcp_dense", world), None
    candidate = folder / ("%s-%d.pt" % (level, world))
    argv = [run.binary, "reshard", folder / "full.pt", candidate, "--to", str(world), "--fidelity", level, "--force", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=check.COMMAND_TIMEOUT)
    return load_check.check(folder, candidate, world), json.loads(done.stdout)


def problems(levels):
    for level, (got, told) in levels.items():
        for key in ("momentum_rel_l2", "second_moment_rel_l2"):
            if told and abs(got[key] - told[key]) > 0.01 * got[key] + 1e-12:
                yield "%s: %s is %g, foretold %g" % (level, key, got[key], told[key])
            if level == "lossless" and got[key]:
                yield "lossless: %s is %g" % (key, got[key])
    if levels["reference"][0]["vs_source"] != levels[GEFENX][0]["vs_source"]:
        yield "reference: the parameters are not Gefen-X's"


def line(before, case, world, levels):
    source = levels["balanced"][1]["bytes_per_parameter"]["source"]
    size = {level: "%.3f" % (got["bytes_per_param"] / source) for level, (got, _) in levels.items()}

    def errors(level):
        got = levels[level][0]
        return [number(x) for x in (got["momentum_rel_l2"], got["second_moment_rel_l2"], got["update_rel_l2"][-1])]

    parts = zip(levels["balanced"][0]["update_rel_l2"], levels[GEFENX][0]["update_rel_l2"])
    return (case, "%d → %d" % (before, world), size["lossless"], ", ".join(errors("lossless")[:2]), size["balanced"], *errors("balanced"),
            size[GEFENX], *errors(GEFENX), " ".join("%.2f" % (b / g) for b, g in parts))


def number(x):
    return "0" if x == 0 else "%.2g" % x


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--keep", help="folder to work in, kept; cases in it are not made again")
    p.add_argument("--only", default="", help="cases whose name contains this")
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    made = {c: arguments for c, arguments in cases.FIDELITY.items() if a.only in c and check.able(c)}
    reshards = [(c, int(w)) for c, arguments in made.items() for w in arguments.split("--reshard ")[1].split()]
    items = [(*r, level) for r in reshards for level in LEVELS]
    wrong = []
    ranks.warm()
    with tempfile.TemporaryDirectory() as temporary:
        run = check.Run(os.path.abspath(a.binary), pathlib.Path(a.keep or temporary).resolve())
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            list(pool.map(check.make, [run] * len(made), made, made.values()))
            print("| %s |\n|%s" % (" | ".join(HEAD), "---|" * len(HEAD)))
            measured = pool.map(measure, [run] * len(items), items)
            for case, world in reshards:
                levels = {level: next(measured) for level in LEVELS}
                before = json.loads((run.case(case) / "info.json").read_text())["world"]
                print("| %s |" % " | ".join(line(before, case, world, levels)), flush=True)
                wrong += ["%s on %d: %s" % (case, world, p) for p in problems(levels)]
    for w in wrong:
        print(w, file=sys.stderr)
    sys.exit(1 if wrong or not reshards else 0)


if __name__ == "__main__":
    main()
