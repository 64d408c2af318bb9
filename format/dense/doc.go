// Package dense reads and writes the dense form: the float32 slots of
// GefenDCPState, format version 2, in a DCP directory.
//
// # What gefenckpt adds
//
// A slot says what the optimizer means, and not how the ranks kept it. So a
// directory that gefenckpt makes from a compact checkpoint has, under the key
// "gefenckpt" beside the slots, what leads back to it. dcp.load reads what it is
// asked for, so that GefenDCPState never sees these items; a directory that Gefen-X
// saves again has none. P is the number of parameters, N of the compact
// checkpoint's ranks, and a slot's key counts parameters as the slots do:
//
//	version                  int64 ()        1
//	description              a tuple of one dict, so that it is one item:
//	  mesh                   device_type, dim_names, ranks (in mesh order)
//	  rows_by                "rank" or, in some permuted meshes, "coordinate"
//	  params                 per parameter: fqn, dtype, local_dtype, requires_grad,
//	                         and module, that of the class Shard
//	  groups                 per group: its options, verbatim
//	codebooks                float32 (N, 256), zeros for a rank without momentum
//	periods                  int64 (P, N)    block length; 0 for a shard without state
//	steps, vmean_steps       int64 (P, N)    the state's counters; -1 for one that is not there
//	slot_%08d.magnitude      float32 (blocks,)  of all ranks, in their order
//	stored_indices           uint8 (P, N)    1 where the indices are stored
//	slot_%08d.index          uint8 (elements,)  of these ranks, in their order
//
// Indices are not stored where they can be told: an element's index is the first
// whose codeword times the block's magnitude, rounded to float32, is its momentum,
// and the one nearest to zero in a block of zeros. That fails where codewords
// repeat, or where their products with the magnitude do. The second moment of a
// block is that of its first element. All parameters are Shard(0).
package dense
