// Reads pieces of files, by their descriptors, straight into a trainer's arrays, and sums what stands there. It is a C
// interface that Python loads with ctypes, which releases the interpreter's lock.
#ifndef CAIRN_PYTHON_NATIVE_PIECE_READER_H_
#define CAIRN_PYTHON_NATIVE_PIECE_READER_H_

#include <cstdint>

// A piece of a file, and its place in a target of target_bytes bytes.
struct CairnPiece {
  int64_t descriptor;
  int64_t may_wait;  // not 0: only what is in the page cache is read
  int64_t offset;
  int64_t bytes;
  void* target;
  int64_t target_bytes;
  int64_t target_offset;
};

extern "C" {

// Reads `count` pieces, whose targets do not overlap, with up to `threads` threads, and stores the CRC32C of each,
// which is that of the bytes in the target. Returns -1 if all were read. Otherwise some targets may be overwritten; it
// returns the index of a piece that was not read, and stores why in `error`: 0 if the piece would leave its target, in
// which case nothing was read; an errno of the system; or -1 if the file ends before the piece does.
int64_t cairn_read_pieces(const CairnPiece* pieces, int64_t count, int64_t threads, uint32_t* checksums,
                          int64_t* error);

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_PIECE_READER_H_
