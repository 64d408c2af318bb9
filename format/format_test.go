package format

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/fault"
)

const checkpoints = "../testdata/checkpoints/"

func TestFormsOfRealCheckpoints(t *testing.T) {
	type want struct {
		form      checkpoint.Form
		layout    checkpoint.Layout
		optimizer checkpoint.Optimizer
		world     int
		params    int
	}
	plain := func(l checkpoint.Layout, world int) want {
		return want{checkpoint.Compact, l, checkpoint.Gefen, world, 13}
	}
	for path, w := range map[string]want{
		"plain-2/full.pt":            plain(checkpoint.Nested, 2),
		"plain-2/flat.pt":            plain(checkpoint.Flat, 2),
		"plain-2/raw.pt":             plain(checkpoint.Raw, 2),
		"plain-2/dcp_payload":        plain(checkpoint.Nested, 2),
		"plain-2/reshard_1/full.pt":  plain(checkpoint.Nested, 1),
		"plain-2/reshard_4/full.pt":  plain(checkpoint.Nested, 4),
		"plain-4/full.pt":            plain(checkpoint.Nested, 4),
		"uneven-3/full.pt":           plain(checkpoint.Nested, 3),
		"uneven-3/reshard_5/full.pt": plain(checkpoint.Nested, 5),
		"bf16-2/full.pt":             plain(checkpoint.Nested, 2),
		"default-2/flat.pt":          plain(checkpoint.Flat, 2),
		"fsdp-2/full.pt":             plain(checkpoint.Nested, 2),
		"fsdp-default-2/raw.pt":      plain(checkpoint.Raw, 2),
		"plain-2/dcp_dense":          {checkpoint.Dense, "", checkpoint.Gefen, 2, 13},
		"uneven-3/dcp_dense":         {checkpoint.Dense, "", checkpoint.Gefen, 3, 13},
		"native-block-1/full.pt":     {checkpoint.Native, checkpoint.Raw, checkpoint.Gefen, 0, 13},
		"native-factored-1/full.pt":  {checkpoint.Native, checkpoint.Raw, checkpoint.Gefen, 0, 13},
		"muon-approx-2/full.pt":      {checkpoint.Compact, checkpoint.Nested, checkpoint.Muon, 2, 6},
		"muon-approx-2/dcp_payload":  {checkpoint.Compact, checkpoint.Nested, checkpoint.Muon, 2, 6},
		"muon-exact-2/full.pt":       {checkpoint.Native, checkpoint.Nested, checkpoint.Muon, 0, 6},
		"muon-distributed-2/raw.pt":  {checkpoint.Native, checkpoint.Raw, checkpoint.Muon, 0, 6},
		"muon-native-1/full.pt":      {checkpoint.Native, checkpoint.Raw, checkpoint.Muon, 0, 6},
		"fsdp-muon-2/flat.pt":        {checkpoint.Compact, checkpoint.Flat, checkpoint.Muon, 2, 6},
		"hybrid-approx-2/full.pt":    {checkpoint.Compact, checkpoint.Raw, checkpoint.Hybrid, 2, 13},
		"hybrid-native-1/full.pt":    {checkpoint.Native, checkpoint.Raw, checkpoint.Hybrid, 0, 13},
		"muon-exact-2/dcp_payload":   {checkpoint.Native, checkpoint.Nested, checkpoint.Muon, 0, 6},
	} {
		t.Run(path, func(t *testing.T) {
			c, err := Open(checkpoints+path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			params := len(c.Params)
			for _, h := range c.Halves {
				params += len(h.Checkpoint.Params)
			}
			if got := (want{c.Form, c.Layout, c.Optimizer, c.World, params}); got != w {
				t.Errorf("read as %v, expected %v", got, w)
			}
			if c.GlobalStep != 4 {
				t.Errorf("step %d, expected 4", c.GlobalStep)
			}
			if len(c.Warnings) > 0 {
				t.Errorf("warnings: %v", c.Warnings)
			}
		})
	}
}

func TestOtherFilesAreRefusedByName(t *testing.T) {
	save := func(t *testing.T, root pickle.Value) string {
		path := filepath.Join(t.TempDir(), "x.pt")
		write(t, path, root)
		return path
	}
	zero := tensor.FromFloat32s([]int64{1}, []float32{0})
	optimizer := func(state ...pickle.Value) pickle.Value {
		return pickle.NewDict("state", pickle.NewDict(int64(0), pickle.NewDict(state...)),
			"param_groups", pickle.NewList(pickle.NewDict("lr", 0.1, "params", pickle.NewList(int64(0)))))
	}
	for name, c := range map[string]struct {
		path string
		root pickle.Value
		kind fault.Kind
		says string
	}{
		"recording":    {path: checkpoints + "plain-2/continuation.pt", kind: fault.Unsupported, says: "recording of gradients"},
		"nothing":      {path: checkpoints + "none", kind: fault.Incomplete, says: "nothing at this path"},
		"scheduler":    {root: pickle.NewDict("base_lrs", pickle.NewList(0.1), "last_epoch", int64(3)), kind: fault.Unsupported, says: "scheduler"},
		"model":        {root: pickle.NewDict("w", zero, "b", zero), kind: fault.Unsupported, says: "a model's state dict"},
		"adamw":        {root: optimizer("exp_avg", zero, "exp_avg_sq", zero), kind: fault.Unsupported, says: "Adam or AdamW"},
		"bitsandbytes": {root: optimizer("absmax1", zero), kind: fault.Unsupported, says: "bitsandbytes"},
		"sgd":          {root: optimizer("momentum_buffer", zero), kind: fault.Unsupported, says: "SGD"},
		"fsdp1":        {root: pickle.NewDict("_fsdp_wrapped_module._flat_param", zero), kind: fault.Unsupported, says: "FSDP1"},
		"zero":         {root: pickle.NewDict("partition_count", int64(2), "base_optimizer_state", pickle.NewDict()), kind: fault.Unsupported, says: "ZeRO"},
		"zero with Gefen": {root: pickle.NewDict("optimizer_state_dict", pickle.NewDict("zero_stage", int64(2), "single_partition_of_fp32_groups", zero,
			"base_optimizer_state", optimizer("m_codebook", zero))), kind: fault.Unsupported, says: "under optimizer_state_dict is what looks like a DeepSpeed ZeRO"},
		"Gefen on fsdp1": {root: pickle.NewDict("state", pickle.NewDict("_fsdp_wrapped_module._flat_param", pickle.NewDict("m_codebook", zero)),
			"param_groups", pickle.NewList(pickle.NewDict("lr", 0.1, "params", pickle.NewList("_fsdp_wrapped_module._flat_param")))), kind: fault.Unsupported, says: "FSDP1"},
		"adafactor":         {root: optimizer("exp_avg_sq_row", zero), kind: fault.Unsupported, says: "Adafactor"},
		"nested scheduler":  {root: pickle.NewDict("lr_scheduler", pickle.NewDict("base_lrs", pickle.NewList(0.1)), "epoch", int64(1)), kind: fault.Unsupported, says: "under lr_scheduler is what looks like"},
		"a number":          {root: int64(3), kind: fault.Unsupported, says: "this holds 3"},
		"nothing to see":    {root: pickle.NewDict("epoch", int64(1), "args", pickle.NewDict("lr", 0.1)), kind: fault.Unsupported, says: "among 2 keys (epoch, args)"},
		"a fresh optimizer": {root: optimizer(), kind: fault.Unsupported, says: "without anything that Gefen writes"},
		"portable":          {root: pickle.NewDict("opt.__gefen_portable_metadata_v2__", zero), kind: fault.Unsupported, says: "portable"},
		"two": {root: pickle.NewDict("a", optimizer("m_codebook", zero), "b", optimizer("m_codebook", zero)),
			kind: fault.Usage, says: "2 optimizers"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.path
			if path == "" {
				path = save(t, c.root)
			}
			cp, err := Open(path, Options{})
			if cp != nil || err == nil {
				t.Fatalf("opened as %+v", cp)
			}
			f := fault.Of(err)
			if f.Kind != c.kind || !strings.Contains(f.Message, c.says) || f.Hint == "" || f.Path != path {
				t.Errorf("%v: %q (hint %q, path %q)", f.Kind, f.Message, f.Hint, f.Path)
			}
		})
	}
}

func write(t *testing.T, path string, root pickle.Value) {
	t.Helper()
	f, err := torchfile.New(root, torchfile.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}
