package checkpoint

import "gefenckpt/internal/fault"

// Fault notes what keeps a real loader from accepting the checkpoint.
func (c *Checkpoint) Fault(kind fault.Kind, item, format string, args ...any) {
	c.Faults = append(c.Faults, fault.New(kind, format, args...).In(item).File(c.Path))
}

// FaultErr notes an error as a fault.
func (c *Checkpoint) FaultErr(err error, item string) {
	c.Faults = append(c.Faults, fault.Of(err).In(item).File(c.Path))
}

// Warn notes what a real loader accepts and a user should know.
func (c *Checkpoint) Warn(item, format string, args ...any) {
	c.Warnings = append(c.Warnings, fault.New(fault.Corrupt, format, args...).In(item).File(c.Path))
}
