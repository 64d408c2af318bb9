// Package dcp reads and writes the directories of torch.distributed.checkpoint:
// a .metadata file, which is one pickle, and .distcp files, in which every item
// (a tensor, a chunk of one, or a Python object) is a whole torch.save archive.
//
// [Open] reads .metadata and nothing else. What it finds wrong it gathers in
// [Directory.Faults], so that a broken directory can still be looked at; an item
// that a fault touches gives that fault when it is read. [Directory.Root] is the
// tree that was saved, with items that are opened when they are first read.
//
// [NewWriter] lays a tree out as files whose sizes are known before the first
// byte, in the form that torch 2.4 and newer load.
package dcp
