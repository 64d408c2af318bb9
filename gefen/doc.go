// Package gefen is the Gefen optimizer on CPU, to the bit: its quantizer, its
// codebook, its search for block lengths, and its step.
//
// Momentum is a uint8 index into a codebook of 256 float32 codewords, times one
// float32 magnitude per block of consecutive elements; the second moment is one
// float32 per block. Every float operation here is rounded as PyTorch on CPU
// rounds it. Products that are added are converted explicitly, float32(a*b)+c,
// since Go may otherwise fuse the two; where PyTorch fuses, [FMA32] does.
package gefen
