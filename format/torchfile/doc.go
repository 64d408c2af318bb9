// Package torchfile reads and writes torch.save archives.
//
// An archive is a zip file of stored members under one folder: data.pkl, a
// pickle that refers to tensors; data/<key>, one raw storage each; version and
// byteorder. It is read in place at any offset of a larger file: an item of a
// .distcp file is an archive, and a rank's payload is an archive inside a
// tensor inside an archive. docs/formats.md has the layout byte by byte.
package torchfile
