package checkpoint

import "gefenckpt/internal/fault"

// mostFaults is how many faults, and how many warnings, are gathered: a broken
// checkpoint of thousands of shards may have some for each.
const mostFaults = 1000

// gather appends e, or, once there are enough, that more follow.
func gather(list []*fault.Error, e *fault.Error) []*fault.Error {
	switch {
	case len(list) > mostFaults:
		return list
	case len(list) == mostFaults:
		e = fault.New(e.Kind, "more follow, which are not listed").File(e.Path)
	}
	return append(list, e)
}

// Fault notes what keeps a real loader from accepting the checkpoint.
func (c *Checkpoint) Fault(kind fault.Kind, item, format string, args ...any) {
	c.FaultErr(fault.New(kind, format, args...), item)
}

// FaultErr notes an error as a fault.
func (c *Checkpoint) FaultErr(err error, item string) {
	c.Faults = gather(c.Faults, fault.Of(err).In(item).File(c.Path))
}

// Warn notes what a real loader accepts and a user should know.
func (c *Checkpoint) Warn(item, format string, args ...any) {
	c.WarnErr(fault.New(fault.Corrupt, format, args...), item)
}

// WarnErr notes an error as a warning.
func (c *Checkpoint) WarnErr(err error, item string) {
	c.Warnings = gather(c.Warnings, fault.Of(err).In(item).File(c.Path))
}
