// Strided copies (cairn.v1.Copy) checked against their buffer and packed into a stream.
#ifndef CAIRN_AGENT_TRANSPORT_COPY_PACKER_H_
#define CAIRN_AGENT_TRANSPORT_COPY_PACKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// Returns how many bytes a copy moves. INVALID_ARGUMENT (BAD_REQUEST): negative extents, or 2^63 bytes or more.
absl::StatusOr<uint64_t> CopyBytes(const v1::Copy& copy);

// INVALID_ARGUMENT (BAD_REQUEST): the source of `copy` does not lie within [0, buffer_bytes). Copies come from the
// wire.
absl::Status CheckSource(const v1::Copy& copy, uint64_t buffer_bytes);

// Appends `copy` to `pieces`, cut into copies of at most `max_bytes` (> 0) that together do the same, in its order.
// `copy` must have passed CheckSource.
void SplitCopy(const v1::Copy& copy, uint64_t max_bytes, std::vector<v1::Copy>& pieces);

// Copies that are packed into one window of memory.
struct CopyWindow {
  std::vector<v1::Copy> copies;
  uint64_t bytes = 0;
};

// Cuts `copies`, in their order, into windows of at most `max_bytes` (> 0), of which there is at least one. A larger
// copy is split. INVALID_ARGUMENT (BAD_REQUEST): extents and strides that differ in number, and errors of CopyBytes.
absl::StatusOr<std::vector<CopyWindow>> CutIntoWindows(const std::vector<v1::Copy>& copies, uint64_t max_bytes);

// Returns `copy` with its source packed at `source_offset`, row-major.
v1::Copy PackedCopy(const v1::Copy& copy, uint64_t source_offset);

// Packs copies one after the other, in pieces. Not thread-safe.
class CopyPacker {
 public:
  // All `copies` must pass CheckSource for `buffer`.
  CopyPacker(const char* buffer, std::vector<v1::Copy> copies);

  // Up to `max_bytes` more; empty when all is packed.
  std::string Next(size_t max_bytes);
  // The same, to memory that has room for them; returns how many.
  size_t Fill(char* to, size_t max_bytes);

 private:
  // Calls put(bytes, count) for each run of bytes.
  template <typename Put>
  size_t Pack(size_t max_bytes, const Put& put);
  void Begin();
  bool Advance();

  const char* const buffer_;
  const std::vector<v1::Copy> copies_;
  size_t copy_ = 0;
  std::vector<int64_t> index_;
  uint64_t done_ = 0;  // of the element at index_
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_COPY_PACKER_H_
