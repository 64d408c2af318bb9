"""Make the small real checkpoints of this folder with PyTorch and Gefen-X.

    python make_checkpoints.py OUT [CASE ...]

Each case is a folder of OUT with what Gefen-X writes where the usual fixtures
do not go: other placements, a permuted mesh, other containers and key depths,
legacy and mixed optimizers. Most have moments.pt, the truth to compare with:
{name: (momentum, second moment)} of the whole parameters, as the optimizer that
was saved holds them.
"""

import os
import socket
import sys
import traceback

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from gefen import Gefen, GefenDCPState, GefenMuon, GefenMuonHybrid

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
FLAT = StateDictOptions(full_state_dict=True, cpu_offload=True, flatten_optimizer_state_dict=True)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.Embed = nn.Parameter(torch.randn(7, 4))
        self.proj = nn.Parameter(torch.randn(6, 8))
        self.bias = nn.Parameter(torch.randn(6))
        self.gain = nn.Parameter(torch.randn(2))


def distribute(model, mesh, placements=None):
    for name, p in list(model.named_parameters()):
        placement = Shard(0) if placements is None else placements[name]
        if placement is not None:
            setattr(model, name, nn.Parameter(distribute_tensor(p.detach(), mesh, [placement])))


def like(p, whole):
    """A gradient for p: distributed as p is."""
    if not isinstance(p, DTensor):
        return whole
    if p.device_mesh.mesh.tolist() == sorted(p.device_mesh.mesh.tolist()):
        return distribute_tensor(whole, p.device_mesh, p.placements)
    # distribute_tensor takes shapes from coordinates and rows from ranks
    rows = whole.chunk(dist.get_world_size())[dist.get_rank()]
    return DTensor.from_local(rows, p.device_mesh, p.placements, shape=p.shape, stride=p.stride(), run_check=False)


def local(t):
    return t.to_local() if isinstance(t, DTensor) else t


def train(model, opt, steps=3, skip=()):
    for step in range(steps):
        for i, (name, p) in enumerate(model.named_parameters()):
            if name in skip:
                continue
            g = torch.Generator().manual_seed(100 * step + i)
            whole = torch.randn(p.shape, generator=g) * 10 ** -i
            p.grad = like(p, whole)
        opt.step()
        opt.zero_grad(set_to_none=True)


def moments(model, opt):
    out = {}
    for group in opt.param_groups:
        for name, p in zip(group["param_names"], group["params"]):
            st = opt.state[p]
            shape = local(p).shape
            m = v = torch.zeros(shape)
            if "m_codebook" in st:
                m = (opt._gefen_codebook[st["m_codebook"].long()] * st["m_magnitude"]).reshape(shape)
                if "vmean" in st:
                    v = st["vmean"].expand(-1, st["automatic_period"]).reshape(shape)
            if isinstance(p, DTensor):
                whole = lambda x: DTensor.from_local(
                    x.contiguous(), p.device_mesh, p.placements, shape=p.shape, stride=p.stride(), run_check=False).full_tensor()
                m, v = whole(m), whole(v)
            out[name] = (m.clone(), v.clone())
    return out


def save(rank, value, path):
    if rank == 0:
        torch.save(value, path)
    if dist.is_initialized():
        dist.barrier()


def plain(model, **options):
    return Gefen(list(model.named_parameters()), lr=1e-2, fused=False, **{"factored_v_2d": False, **options})


def permuted(rank, out):
    """A mesh [1, 0] through fully_shard: rows follow the ranks all the same."""
    model = Tiny()
    fully_shard(model, mesh=DeviceMesh("cpu", [1, 0]))
    opt = plain(model)
    train(model, opt)
    save(rank, {"opt": get_optimizer_state_dict(model, opt, options=FULL)}, out + "/full.pt")
    save(rank, moments(model, opt), out + "/moments.pt")


def permuted_uneven(rank, out):
    """The same mesh through distribute_tensor, which cuts 7 rows wrongly: it takes
    their number from the coordinate and the rows themselves by rank."""
    model = Tiny()
    distribute(model, DeviceMesh("cpu", [1, 0]))
    opt = plain(model)
    for p in model.parameters():
        p.grad = DTensor.from_local(torch.ones_like(p.to_local()), p.device_mesh, p.placements, shape=p.shape, stride=p.stride(), run_check=False)
    opt.step()
    save(rank, {"opt": get_optimizer_state_dict(model, opt, options=FULL)}, out + "/full.pt")


def placements(rank, out):
    """Shard(1), Replicate, Shard(0) and a plain tensor in one optimizer."""
    model = Tiny()
    distribute(model, init_device_mesh("cpu", (2,)), {"Embed": Shard(1), "proj": Shard(0), "bias": Replicate(), "gain": None})
    opt = plain(model)
    train(model, opt)
    save(rank, {"opt": get_optimizer_state_dict(model, opt, options=FULL)}, out + "/full.pt")
    save(rank, moments(model, opt), out + "/moments.pt")


def containers(rank, out):
    """One state of two groups in every container, and at several key depths."""
    model = Tiny()
    del model.proj, model.bias
    distribute(model, init_device_mesh("cpu", (2,), mesh_dim_names=("dp",)))
    named = list(model.named_parameters())
    opt = Gefen([{"params": named[:1], "weight_decay": 0.1, "initial_lr": 0.5}, {"params": named[1:]}], lr=1e-2, fused=False, factored_v_2d=False)
    train(model, opt)
    nested = get_optimizer_state_dict(model, opt, options=FULL)
    flat = get_optimizer_state_dict(model, opt, options=FLAT)
    raw = opt.state_dict()
    save(rank, nested, out + "/optimizer.bin")  # bare, as accelerate writes it
    save(rank, {"run": {"train.state": [{"opt": raw}]}, "epoch": 3}, out + "/deep.pt")
    os.makedirs(out + "/ranks", exist_ok=True)
    torch.save({"optimizer": raw, "rng": rank}, out + "/ranks/state_rank%d.pt" % rank)
    dist.barrier()
    dcp.save({"optimizer": flat, "epoch": 3}, checkpoint_id=out + "/dcp_flat")
    dcp.save({"optimizer": raw, "epoch": 3}, checkpoint_id=out + "/dcp_raw")
    os.makedirs(out + "/accelerate", exist_ok=True)
    dcp.save({"optimizer": get_optimizer_state_dict(model, opt)}, checkpoint_id=out + "/accelerate/optimizer_0")
    save(rank, moments(model, opt), out + "/moments.pt")


def broken_dense(rank, out):
    """An empty shard, with which GefenDCPState writes counters that it refuses."""
    model = Tiny()
    model.gain = nn.Parameter(torch.randn(1))
    distribute(model, init_device_mesh("cpu", (2,)))
    opt = plain(model)
    train(model, opt)
    dcp.save({"optimizer": GefenDCPState(opt)}, checkpoint_id=out + "/dcp_dense")
    save(rank, get_optimizer_state_dict(model, opt, options=FULL), out + "/optimizer.pt")


def partly(rank, out):
    """A parameter that never had a gradient, and one that is frozen."""
    model = Tiny()
    model.proj.requires_grad_(False)
    distribute(model, init_device_mesh("cpu", (2,)))
    model.proj.requires_grad_(False)
    opt = plain(model)
    train(model, opt, skip=("proj", "bias"))
    save(rank, {"optimizer": opt.state_dict()}, out + "/raw.pt")


def mixed_muon(rank, out):
    """Groups of GefenMuon in modes approx and exact: payloads with whole states."""
    model = Tiny()
    del model.bias, model.gain
    distribute(model, init_device_mesh("cpu", (2,)))
    named = list(model.named_parameters())
    opt = GefenMuon([{"params": named[:1], "sharded_mode": "approx"}, {"params": named[1:], "sharded_mode": "exact"}], lr=1e-2, fused=False, normuon=True)
    train(model, opt)
    save(rank, opt.state_dict(), out + "/raw.pt")


def hybrid(rank, out):
    """The default GefenMuonHybrid under FSDP2: a native half and a rank-local one."""
    model = Tiny()
    distribute(model, init_device_mesh("cpu", (2,)))
    opt = GefenMuonHybrid.from_model(model, lr=1e-2, fused=False)
    train(model, opt)
    save(rank, {"optimizer": opt.state_dict()}, out + "/full.pt")


def hybrid_adamw(rank, out):
    """An AdamW half whose moments are DTensors: a file for each rank."""
    model = Tiny()
    distribute(model, init_device_mesh("cpu", (2,)))
    opt = GefenMuonHybrid.from_model(model, lr=1e-2, fused=False, backup_optimizer="adamw")
    train(model, opt)
    torch.save(opt.state_dict(), out + "/rank%d.pt" % rank)
    dist.barrier()


def hybrid_adamw_1(rank, out):
    """An AdamW half in one process."""
    model = Tiny()
    opt = GefenMuonHybrid.from_model(model, lr=1e-2, fused=False, backup_optimizer="adamw")
    train(model, opt)
    save(rank, {"optimizer": opt.state_dict(), "model": model.state_dict()}, out + "/full.pt")


def native(rank, out):
    """capturable=True, whose counters are tensors, and lr is one too; and a state
    that was factored before factored_v_2d was turned off."""
    model = Tiny()
    opt = plain(model, capturable=True)
    opt.param_groups[0]["lr"] = torch.tensor(1e-2)
    train(model, opt)
    save(rank, opt.state_dict(), out + "/capturable.pt")
    save(rank, moments(model, opt), out + "/moments.pt")
    model = Tiny()
    opt = plain(model, factored_v_2d=True)
    train(model, opt)
    toggled = plain(model)
    toggled.load_state_dict(opt.state_dict())
    train(model, toggled, steps=1)
    save(rank, {"opt": toggled.state_dict()}, out + "/toggled.pt")


CASES = {
    "permuted": (permuted, 2), "permuted-uneven": (permuted_uneven, 2),
    "placements": (placements, 2), "containers": (containers, 2), "broken-dense": (broken_dense, 2),
    "partly": (partly, 2), "mixed-muon": (mixed_muon, 2), "hybrid": (hybrid, 2), "hybrid-adamw-2": (hybrid_adamw, 2),
    "hybrid-adamw-1": (hybrid_adamw_1, 0), "native": (native, 0),
}


def worker(rank, world, port, case, out):
    try:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        if world:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), USE_LIBUV="0")
            dist.init_process_group("gloo", rank=rank, world_size=world)
        case(rank, out)
        if world:
            dist.barrier()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main():
    out, names = sys.argv[1], sys.argv[2:] or list(CASES)
    for name in names:
        case, world = CASES[name]
        os.makedirs(out + "/" + name, exist_ok=True)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        mp.spawn(worker, args=(world, port, case, out + "/" + name), nprocs=max(world, 1), join=True)
        print(name)


if __name__ == "__main__":
    main()
