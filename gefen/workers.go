package gefen

import (
	"sync"
	"sync/atomic"
)

// taskElements is about how many elements a worker takes at a time.
const taskElements = 1 << 16

// parallel runs tasks 0 to n-1 on up to that many workers.
func parallel(workers, n int, run func(task int)) {
	workers = min(workers, n)
	if workers <= 1 {
		for task := range n {
			run(task)
		}
		return
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for task := int(next.Add(1) - 1); task < n; task = int(next.Add(1) - 1) {
				run(task)
			}
		})
	}
	wait.Wait()
}
