package gefen

// Reblock is the block state that a dense state of one shard becomes when Gefen
// loads it: magnitude the largest |m| of each block, the nearest codewords, and
// the mean of the second moment. momentum is overwritten.
func Reblock(q *Quantizer, momentum, second []float32, period int) (index []uint8, magnitude, vmean []float32) {
	index = make([]uint8, len(momentum))
	magnitude = make([]float32, len(momentum)/period)
	vmean = make([]float32, len(momentum)/period)
	q.Requantize(index, magnitude, momentum, period)
	for b := range vmean {
		vmean[b] = Mean32(second[b*period : (b+1)*period])
	}
	return index, magnitude, vmean
}
