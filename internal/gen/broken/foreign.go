package broken

import (
	"os"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// other is a case that is something else than a checkpoint of Gefen.
func other(name, what, text string, root *pickle.Dict) Case {
	return Case{name, what, 5, text, func(_ *Sound, path string) error {
		data, err := archive(root)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o666)
	}}
}

var (
	weights = tensor.FromFloat32s([]int64{2}, []float32{1, 2})
	groups  = pickle.NewList(pickle.NewDict("lr", 0.1, "params", pickle.NewList(int64(0))))
)

// optimizerOf is an optimizer's state dict with one parameter.
func optimizerOf(fields *pickle.Dict) *pickle.Dict {
	return pickle.NewDict("state", pickle.NewDict(int64(0), fields), "param_groups", groups)
}

// foreign are things that people give instead.
var foreign = []Case{
	other("adamw.pt", "the state of AdamW", "Adam or AdamW", optimizerOf(pickle.NewDict("step", int64(1), "exp_avg", weights, "exp_avg_sq", weights))),
	other("sgd.pt", "the state of SGD", "SGD with momentum", optimizerOf(pickle.NewDict("momentum_buffer", weights))),
	other("adam8bit.pt", "the state of an 8-bit optimizer of bitsandbytes", "bitsandbytes", optimizerOf(pickle.NewDict("step", int64(1), "state1", weights, "absmax1", weights, "qmap1", weights))),
	other("model.pt", "a model's weights", "a model's state dict", pickle.NewDict("a.weight", weights, "b.weight", weights)),
	other("scheduler.pt", "the state of a learning rate scheduler", "scheduler", pickle.NewDict("base_lrs", pickle.NewList(0.1), "last_epoch", int64(3))),
	other("scaler.pt", "the state of a gradient scaler", "gradient scaler", pickle.NewDict("scale", 65536.0, "growth_factor", 2.0)),
	other("zero.pt", "a partition of DeepSpeed ZeRO", "ZeRO", pickle.NewDict("optimizer_state_dict", pickle.NewDict("partition_count", int64(2), "base_optimizer_state", pickle.NewList()))),
	other("flat-param.pt", "an FSDP1 checkpoint with flat parameters", "FSDP1", pickle.NewDict("model", pickle.NewDict("_fsdp_wrapped_module._flat_param", weights))),
}
