package reshard

// blockCache holds one value per block for the last range of blocks that was
// asked for. A block longer than a window is asked for again and again, and
// takes a pass over its elements to make.
type blockCache struct {
	values []float32
	from   int64
}

// get returns the values of blocks [first, last], made by fill if they are not
// there.
func (c *blockCache) get(first, last int64, fill func(dst []float32, from int64) error) ([]float32, error) {
	n := int(last - first + 1)
	if first >= c.from && last < c.from+int64(len(c.values)) {
		return c.values[first-c.from:][:n], nil
	}
	values := grow(c.values, n)
	c.values, c.from = nil, 0 // nothing is cached if fill fails
	if err := fill(values, first); err != nil {
		return nil, err
	}
	c.values, c.from = values, first
	return values, nil
}
