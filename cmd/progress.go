package cmd

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// quietInterval is how often progress is said where there is no terminal.
const quietInterval = 30 * time.Second

// progress tells people how far a command is: a bar on a terminal, else a line
// now and then, nothing with --quiet or --json.
type progress struct {
	mu   sync.Mutex
	app  *app
	bar  *progressbar.ProgressBar
	off  bool
	last time.Time
}

func (a *app) progress() *progress {
	return &progress{app: a, off: a.quiet || a.json, last: time.Now()}
}

// update is called with the bytes done and in all.
func (p *progress) update(done, total int64) {
	if p.off {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.app.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if p.bar == nil {
			p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(f), progressbar.OptionShowBytes(true),
				progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
		}
		_ = p.bar.Set64(done)
		return
	}
	if now := time.Now(); now.Sub(p.last) >= quietInterval {
		p.last = now
		fmt.Fprintf(p.app.err, "gefenckpt: %s of %s written\n", humanize.IBytes(uint64(done)), humanize.IBytes(uint64(total)))
	}
}

func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
