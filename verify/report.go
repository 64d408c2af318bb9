package verify

import "gefenckpt/internal/fault"

// Report is the outcome of a verification.
type Report struct {
	OK    bool   `json:"ok"`
	Level string `json:"level"` // structure, faithful
	// Rule says what the tolerances come from: exact (kept blocks and codebooks),
	// manifest (what the conversion predicted) or noise (of one quantization).
	Rule       string      `json:"rule,omitempty"`
	Measured   *Figures    `json:"measured,omitempty"`
	Allowed    *Figures    `json:"allowed,omitempty"`
	Steps      []Figures   `json:"steps,omitempty"` // along the continuation
	Parameters []Parameter `json:"parameters"`

	Faults   []*fault.Error `json:"-"`
	Warnings []*fault.Error `json:"-"`
}

// Figures are relative L2 differences; negative ones are not judged.
type Figures struct {
	Momentum     float64 `json:"momentum_rel_l2"`
	SecondMoment float64 `json:"second_moment_rel_l2"`
	Update       float64 `json:"update_rel_l2"`
}

// Parameter is one parameter of a comparison.
type Parameter struct {
	Name         string     `json:"name"`
	Momentum     Difference `json:"momentum"`
	SecondMoment Difference `json:"second_moment"`
	Update       float64    `json:"update_rel_l2"` // of the last step
	Allowed      Figures    `json:"allowed"`
	OK           bool       `json:"ok"`
}

func (r *Report) fail(kind fault.Kind, path, item, format string, args ...any) {
	r.Faults = append(r.Faults, fault.New(kind, format, args...).In(item).File(path))
}

// finish says whether nothing was found.
func (r *Report) finish() *Report {
	r.OK = len(r.Faults) == 0
	return r
}
