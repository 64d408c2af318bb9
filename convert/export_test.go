package convert

import (
	"context"

	"gefenckpt/internal/fsx"
)

// RunOn is Run onto another file system.
func RunOn(ctx context.Context, fs fsx.FS, src, dst string, o Options) (*Result, error) {
	return run(ctx, src, dst, o, output{fs: fs})
}
