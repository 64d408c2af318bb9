// Package heap measures, for tests, how much memory something holds.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// Within fails a test if do holds more than limit bytes at a time, beyond what was
// held before. What do allocates in all is no less, and mostly settles it; else do
// runs once more, and garbage collections look at what is live meanwhile.
func Within(t testing.TB, limit int64, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	if after.TotalAlloc-before.TotalAlloc <= uint64(limit) {
		return
	}
	if live := peak(do); live > limit {
		t.Errorf("%d bytes of memory are held at a time, expected at most %d", live, limit)
	}
}

// peak is the most that garbage collections see live while do runs.
func peak(do func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	runtime.GC()
	base := live()
	done, peak := make(chan struct{}), make(chan int64)
	go func() {
		most := base
		for {
			most = max(most, live())
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	do()
	close(done)
	return <-peak - base
}

func live() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
