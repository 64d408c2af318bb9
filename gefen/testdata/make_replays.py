"""Make replays/*.json.gz and recordings*.json.gz: what Gefen-X computes, step by step.

    python make_replays.py fixtures CASES OUT     real checkpoints and their continuations
    python make_replays.py record OUT.json.gz     runs of synthetic gradients
    python make_replays.py muon OUT.json.gz       the same of GefenMuon
    python make_replays.py compare A B            where two recordings differ

CASES is a directory of checkpoints, a folder for each, with full.pt, info.json and
continuation.pt: parameters before, full gradients, and parameters after each step. A
folder reshard_M within has what the reference holds on M ranks, full.pt, and the
parameters after the same gradients, continuation.pt.

Arrays are little-endian bytes in hex beside a dtype and a shape; a digest is the first
8 bytes of the SHA-256 of such bytes. The recordings in this directory were made with
PyTorch 2.15.0 and are the same with 2.6.0, recordings-nofma.json.gz with
ATEN_CPU_CAPABILITY=default in the environment.

The wheels of PyTorch for x86-64 on PyPI take square roots with MKL, which begins with
the processor's approximate reciprocal root: one in six is not correctly rounded, and
which depends on the processor. No state depends on a root, parameters do, in their last
bits. So record takes roots with numpy, which rounds correctly, as PyTorch does where it
is built without MKL. With GEFEN_LIBRARY_SQRT=1 in the environment it does not.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import socket
import sys

import numpy as np
import torch

sys.modules.setdefault("pathlib._local", pathlib)


def raw(t):
    t = t.detach().cpu().contiguous()
    if t.dtype == torch.bfloat16:
        return "bf16", t.view(torch.int16).numpy().tobytes()
    return str(t.dtype).removeprefix("torch."), t.numpy().tobytes()


def arr(t):
    dtype, data = raw(t)
    return {"dtype": dtype, "shape": list(t.shape), "hex": data.hex()}


def digest(t):
    return hashlib.sha256(raw(t)[1]).digest()[:8].hex()


def write(path, value):
    with open(path, "wb") as f, gzip.GzipFile("", "wb", 9, f, 0) as z:
        z.write(json.dumps(value, separators=(",", ":"), sort_keys=True).encode())


# Real checkpoints.


def ranks_of(osd):
    """The codebook, and per parameter the local shape and the state, of every rank."""
    carrier = next((s for s in osd["state"].values() if any("_payload_" in str(k) for k in s)), None)
    if carrier is None:
        names = [n for g in osd["param_groups"] for n in g["param_names"]]
        return [(osd["gefen_codebook"], [(n, None, False, osd["state"][i]) for i, n in enumerate(names)])]
    out = []
    for r in range(sum("_payload_" in str(k) for k in carrier)):
        payload = torch.load(io.BytesIO(carrier["_gefen_rank_local_payload_%d" % r].numpy().tobytes()), weights_only=True)
        out.append((payload["codebook"], [
            (sig["name"], sig["local_shape"], sig["sharded"], state)
            for sig, state in zip(payload["signature"], payload["states"])]))
    return out


def topology(path, names, after):
    """The state of every rank in path, and the parameters that it leads to."""
    osd = torch.load(path + "/full.pt", weights_only=True)["optimizer"]
    ranks = []
    for codebook, states in ranks_of(osd):
        ranks.append({
            "codebook": None if codebook is None else arr(codebook),
            "states": [
                {"local_shape": shape, "sharded": sharded,
                 **{k: arr(v) if torch.is_tensor(v) else v for k, v in state.items() if k != "name"}}
                for _, shape, sharded, state in states],
        })
    order = [name for name, _, _, _ in ranks_of(osd)[0][1]]
    return order, osd["param_groups"], {"ranks": ranks, "after": [[digest(step[names[n]]) for n in order] for step in after]}


def fixtures(cases, out):
    os.makedirs(out, exist_ok=True)
    for case in sorted(os.listdir(cases)):
        path = cases + "/" + case
        if not os.path.exists(path + "/info.json"):
            continue
        with open(path + "/info.json") as f:
            info = json.load(f)
        if info["scenario"] not in ("plain", "default"):
            continue
        run = torch.load(path + "/continuation.pt", weights_only=True)
        names = {n.lower(): n for n in run["before"]}
        order, groups, source = topology(path, names, run["after"])
        group_of = {n: i for i, g in enumerate(groups) for n in g["param_names"]}
        value = {
            "torch": info["torch"], "factored": info["scenario"] == "default",
            "groups": [{k: float(g[k]) for k in ("lr", "beta1", "beta2", "eps", "weight_decay")} for g in groups],
            "parameters": [{
                "name": n, "group": group_of[n], "before": arr(run["before"][names[n]]),
                "grads": [arr(g[names[n]]) for g in run["grads"]],
                "after": [arr(a[names[n]]) for a in run["after"]],
            } for n in order],
            "topologies": [source],
        }
        for m in sorted(os.listdir(path)):
            if m.startswith("reshard_"):
                after = torch.load(path + "/" + m + "/continuation.pt", weights_only=True)["after"]
                value["topologies"].append(topology(path + "/" + m, names, after)[2])
        write(out + "/" + case + ".json.gz", value)


# Synthetic runs.


def splitmix(x):
    """A 64-bit hash, of each element of an array of uint64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def synthetic(key, shape, scale):
    """Values of a bell shape, times scale, times a factor per row that is 0 in one of
    16 rows. Every operation is exact or a single rounding to float32."""
    n = int(np.prod(shape, dtype=np.int64))
    rows = shape[0]
    start = splitmix(np.array([key], dtype=np.uint64))
    with np.errstate(over="ignore"):
        z = splitmix(start + np.arange(n, dtype=np.uint64))
        r = splitmix(~start + np.arange(rows, dtype=np.uint64))
    low = np.uint64(0xFFFF)
    total = sum(((z >> np.uint64(s)) & low).astype(np.int64) for s in (0, 16, 32, 48)) - 2 * 65535
    factor = np.ldexp(1 + (r & low).astype(np.float32) / np.float32(65536), -((r >> np.uint64(16)) & np.uint64(7)).astype(np.int32))
    factor = np.where((r >> np.uint64(20)) & np.uint64(15) == 0, np.float32(0), factor.astype(np.float32)) * np.float32(scale)
    x = total.astype(np.float32).reshape(rows, -1) * factor[:, None]
    return torch.from_numpy((x * np.float32(2.0**-16)).reshape(shape))


def run_spec(name, shapes, steps, **kw):
    return {"name": name, "shapes": shapes, "steps": steps, **kw}


SMALL = [[16, 24], [24], [5], [1], [7, 3], [3, 2, 8, 8], [1, 40]]
BLOCKS = SMALL + [[130, 33], [1, 5000], [64, 128], [2053], [3, 2500], [6000]]
MATRICES = SMALL + [[40, 1], [5, 7], [600, 50], [1, 3000], [3000, 1], [33, 100], [2, 2, 2]]

RUNS = [
    run_spec("blocks", BLOCKS, 4, factored=False),
    run_spec("two groups", BLOCKS, 4, factored=False, options=[
        {"lr": 0.02, "betas": [0.8, 0.95], "eps": 2e-8, "weight_decay": 0.1}, {"lr": 0.003, "betas": [0.95, 0.99]}]),
    run_spec("bf16", BLOCKS, 4, factored=False, dtype="bf16", options=[{"weight_decay": 0.1}, {"lr": 0.05}]),
    run_spec("factored", MATRICES, 4, options=[{"lr": 0.02, "weight_decay": 0.1}, {"betas": [0.3, 0.98]}]),
    run_spec("factored bf16", MATRICES, 4, dtype="bf16", options=[{"lr": 0.02, "weight_decay": 0.1}]),
    run_spec("factored in chunks", [[2100, 513]], 2),
    run_spec("beta1 zero", SMALL, 3, factored=False, options=[{"betas": [0.0, 0.9]}]),
    run_spec("beta1 a half", SMALL, 3, options=[{"betas": [0.5, 0.0]}]),
    run_spec("beta1 just over a half", SMALL, 3, options=[{"betas": [0.51, 0.9]}]),
    run_spec("large eps", SMALL, 3, options=[{"eps": 0.5}]),
    run_spec("learning rate zero", SMALL, 2, options=[{"lr": 0.0, "weight_decay": 0.1}]),
    run_spec("tensor learning rate", SMALL, 4, tensor_lr=[0.01, 0.003, 0.1, 0.0001], options=[{"weight_decay": 0.3}]),
    run_spec("sizes of gradients", SMALL, 7, factored=False, scales=[1, 1e-30, 0, 1e-38, 1e15, 1e-3, 1e-42]),
    run_spec("sizes of gradients, factored", SMALL, 7, scales=[1, 1e-30, 0, 1e-38, 1e15, 1e-3, 1e-42]),
    run_spec("missing gradients", SMALL, 5, factored=False, missing=[[0, 1, 2, 3, 4, 5, 6], [3, 5], [0, 1], [], [2, 6]]),
    run_spec("missing gradients, factored", SMALL, 5, missing=[[0, 5], [1, 4], [], [0, 1, 2, 3, 4, 5, 6], [4]]),
    run_spec("forced periods", SMALL, 3, factored=False, policy={"force_1d_period_one": True, "force_2d_period_one": True}),
    run_spec("periods by name", SMALL, 3, policy={"period_one_substrings": ["P1", "p4"]}),
    run_spec("codebook refreshed", BLOCKS[:9], 6, factored=False, policy={"codebook_refresh_every": 2}),
    run_spec("factored from step 3", SMALL, 5, toggles=[False, False, True, True, True], factored=False),
    run_spec("by blocks from step 3", SMALL, 5, toggles=[True, True, False, False, True]),
    run_spec("vmean of unknown age", SMALL, 4, factored=False, legacy=2),
    run_spec("forty steps", [[16, 24], [48]], 40, options=[{"betas": [0.95, 0.98]}]),
    run_spec("two ranks", BLOCKS, 4, world=2, options=[{"weight_decay": 0.1}, {}]),
    run_spec("three uneven ranks", SMALL + [[33, 40], [2, 8], [10]], 4, world=3, missing=[[2], [], [0, 1], []]),
    run_spec("three uneven ranks, bf16", SMALL + [[33, 40], [2, 8], [10]], 4, world=3, dtype="bf16", factored=False),
    run_spec("replicas beside shards", SMALL + [[33, 40]], 3, world=2, plain=[0, 1, 4, 7]),
    run_spec("codebook refreshed on ranks", SMALL, 5, world=2, policy={"codebook_refresh_every": 3}),
]

DEFAULT_SCHEDULE = [[3.4445, -4.775, 2.0315]] * 5
TUNED_SCHEDULE = [[3.9, -8.1, 5.2], [3.5, -5.9, 3.4], [3.0, -3.6, 1.6]]
MUON = [[16, 24], [24, 16], [9, 40], [1, 8]]

MUON_RUNS = [
    run_spec("nesterov", MUON, 3, muon={"momentum": 0.95, "nesterov": True}),
    run_spec("larger", [[64, 96], [48, 40]], 2, muon={"momentum": 0.95, "nesterov": True}),
    run_spec("bf16", MUON, 3, dtype="bf16", muon={"momentum": 0.95, "nesterov": True}),
    run_spec("no nesterov", MUON, 3, muon={"momentum": 0.4, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
    run_spec("no nesterov, bf16", MUON, 3, dtype="bf16", muon={"momentum": 0.9, "nesterov": False}),
    run_spec("NorMuon", MUON, 3, muon={"momentum": 0.95, "nesterov": True, "normuon": True, "schedule": TUNED_SCHEDULE}),
    run_spec("NorMuon, bf16", MUON, 3, dtype="bf16", muon={"momentum": 0.95, "nesterov": True, "normuon": True}),
    run_spec("cautious", MUON, 3, muon={"momentum": 0.95, "nesterov": True, "cautious": True}),
    run_spec("sizes of gradients", MUON, 6, dtype="bf16", scales=[1, 1e-30, 0, 1e-38, 1e15, 1e-3],
             muon={"momentum": 0.95, "nesterov": True}),
    run_spec("three uneven ranks", MUON, 3, world=3, muon={"momentum": 0.95, "nesterov": True, "normuon": True}),
]

FIELDS = ("m_codebook", "m_magnitude", "vmean", "v_row", "v_col")
COUNTERS = ("automatic_period", "step", "vmean_step", "factored_step")


def local(t):
    return t.to_local() if hasattr(t, "to_local") else t


def exact_roots():
    """Have torch round square roots correctly."""

    def root(x, out=None):
        out = torch.empty_like(x) if out is None else out
        np.sqrt(x.numpy(), out=out.numpy())
        return out

    torch.sqrt = root
    torch.Tensor.sqrt_ = lambda x: root(x, out=x)


def play(run, mesh):
    """Run on this rank; what it holds after every step."""
    from gefen import Gefen, GefenMuon, gefen_muon
    from torch.distributed.tensor import Shard, distribute_tensor

    if not os.environ.get("GEFEN_LIBRARY_SQRT"):
        exact_roots()
    dtype = torch.bfloat16 if run.get("dtype") == "bf16" else torch.float32
    index = run["index"]

    def tensor(kind, i, scale):
        key = ((index * 64 + kind) * 64 + i) & 0xFFFFFFFF
        return synthetic(key, run["shapes"][i], scale).to(dtype)

    def place(i, t):
        if mesh is None or i in run.get("plain", ()):
            return t
        return distribute_tensor(t, mesh, [Shard(0)])

    params = [torch.nn.Parameter(place(i, tensor(63, i, 0.1))) for i in range(len(run["shapes"]))]
    options = run.get("options", [{}])
    groups = [{"params": [("p%d" % i, p) for i, p in enumerate(params) if i % len(options) == g]} for g in range(len(options))]
    defaults = {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
    for g, o in zip(groups, options):
        o = {**defaults, **o}
        g.update(lr=o["lr"], beta1=o["betas"][0], beta2=o["betas"][1], eps=o["eps"], weight_decay=o["weight_decay"])

    seen = []  # of every orthogonalization: what it took, and made

    def build(factored):
        fresh = [{**g, "params": list(g["params"])} for g in groups]
        if "muon" in run:
            given = {k: v for k, v in run["muon"].items() if k != "schedule"}
            return GefenMuon(groups[0]["params"], lr=0.02, weight_decay=0.1, fused=False, sharded_mode="approx",
                             ns_schedule=run["muon"].get("schedule"), **given)
        return Gefen(fresh, fused=False, factored_v_2d=factored, **run.get("policy", {}))

    orthogonalize = gefen_muon._zeropower_via_newtonschulz

    def observed(x, *args, **kw):
        seen.append([digest(x), orthogonalize(x, *args, **kw)])
        return seen[-1][1].clone()

    factored = run.get("factored", True)
    opt = build(factored)
    steps = []
    for k in range(run["steps"]):
        want = run["toggles"][k] if "toggles" in run else factored
        if want != factored or run.get("legacy") == k:
            state = opt.state_dict()
            if run.get("legacy") == k:
                for s in state["state"].values():
                    s.pop("vmean_step", None)
            factored = want
            opt = build(factored)
            opt.load_state_dict(state)
        if "tensor_lr" in run:
            for g in opt.param_groups:
                g["lr"] = torch.tensor(run["tensor_lr"][k])
        missing = run["missing"][k] if "missing" in run else []
        scale = run["scales"][k] if "scales" in run else 1.0
        for i, p in enumerate(params):
            p.grad = None if i in missing else place(i, tensor(k, i, scale))
        seen.clear()
        gefen_muon._zeropower_via_newtonschulz = observed
        opt.step()
        gefen_muon._zeropower_via_newtonschulz = orthogonalize
        book = opt._gefen_codebook
        after = []
        for p in params:
            s = opt.state[p]
            after.append({"param": digest(local(p)), **{f: digest(s[f]) for f in FIELDS if f in s},
                          **{c: int(s[c]) for c in COUNTERS if c in s}})
            if "muon" in run and "step" in s and p.grad is not None:
                made = seen.pop(0)
                after[-1].update(taken=made[0], made=arr(made[1]), value=arr(local(p)))
                if "normuon_v" in s:
                    after[-1].update(normuon_v=arr(s["normuon_v"]), normuon_step=int(s["normuon_step"]))
        steps.append({"codebook": None if book is None else digest(book), "after": after})
    return [list(local(p).shape) for p in params], steps


def worker(rank, world, port, run, queue):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), USE_LIBUV="0")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    queue.put((rank, play(run, init_device_mesh("cpu", (world,)))))
    dist.barrier()
    os._exit(0)  # gloo's teardown can hang on a busy machine


def ranks_after(run):
    world = run.get("world", 0)
    if world == 0:
        return [play(run, None)]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=worker, args=(r, world, port, run, queue)) for r in range(world)]
    for r in ranks:
        r.start()
    found = dict(queue.get() for _ in ranks)
    for r in ranks:
        r.join()
    return [found[r] for r in range(world)]


def record(path, runs=RUNS):
    torch.set_num_threads(1)
    out = []
    for i, run in enumerate(runs):
        ranks = ranks_after({**run, "index": i})
        out.append({**run, "ranks": [{"local_shapes": shapes, "steps": steps} for shapes, steps in ranks]})
        print(run["name"], file=sys.stderr)
    write(path, {"no_fma": os.environ.get("ATEN_CPU_CAPABILITY") == "default", "runs": out})


def muon(path):
    record(path, MUON_RUNS)


def compare(a, b):
    """Say in how many of their states, and of their parameters, recordings differ."""
    with gzip.open(a) as f, gzip.open(b) as g:
        a, b = json.load(f), json.load(g)
    count, states, params = 0, 0, 0
    for x, y in zip(a["runs"], b["runs"], strict=True):
        for r, s in zip(x["ranks"], y["ranks"], strict=True):
            for i, j in zip(r["steps"], s["steps"], strict=True):
                for p, q in zip(i["after"], j["after"], strict=True):
                    count += 1
                    params += p.pop("param") != q.pop("param")
                    states += p != q or i["codebook"] != j["codebook"]
    print("of %d, states that differ: %d, parameters: %d" % (count, states, params))


if __name__ == "__main__":
    verb = {"fixtures": fixtures, "record": record, "muon": muon, "compare": compare}[sys.argv[1]]
    sys.exit(verb(*sys.argv[2:]))
