package gefen

import "slices"

// Divisors are the divisors of n, n itself included, in order.
func Divisors(n int) []int {
	var low, high []int
	for d := 1; d <= n/d; d++ {
		if n%d == 0 {
			low = append(low, d)
			if d != n/d {
				high = append(high, n/d)
			}
		}
	}
	slices.Reverse(high)
	return append(low, high...)
}
