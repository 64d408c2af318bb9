// Package verify proves what a conversion did: that a real loader would accept a
// checkpoint, that two checkpoints mean the same state, and that training
// continues alike from both.
package verify
