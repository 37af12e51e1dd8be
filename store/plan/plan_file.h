// A file that holds the inputs of a save plan: the distinct layouts of all ranks, the nodes and the options. It is one
// file, so that keeping a plan takes the same few calls of storage for any number of ranks.
//
// Form (numbers are little-endian):
//    0  8  magic "CAIRNPLN"
//    8  4  version
//   12  8  bytes of the index
//   20  8  bytes of all layouts
//   28  4  CRC32C of the index
//   32  4  CRC32C of the 32 bytes before
//   36     the index, in protobuf's wire format: see plan_file.cc
//          the layouts, one behind the other, in the order of the index; the file ends behind the last one
//
// No checkpoint depends on such a file: if it cannot be read, the plan is made anew from layouts that the agents
// upload.
#ifndef CAIRN_STORE_PLAN_PLAN_FILE_H_
#define CAIRN_STORE_PLAN_PLAN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/save/save_options.h"
#include "store/storage/storage.h"

namespace cairn {

struct PlanInputs {
  int bins = 0;
  MovePolicy moves = MovePolicy::kNever;
  std::vector<std::string> layout;  // digests, by rank
  std::vector<std::string> node;    // by rank
};

// Thread-safe but for moves.
class PlanFile {
 public:
  struct Layout {
    std::string digest;
    uint64_t offset = 0;  // in the file
    uint64_t bytes = 0;   // at most kMaxLayoutBytes
    uint32_t crc32c = 0;
  };

  // Reads the head and the index; takes memory for no more than the file has. NOT_FOUND (PLAN_UNKNOWN): it is not a
  // plan file, is damaged or has another version. Else the errors of storage.
  static absl::StatusOr<PlanFile> Open(std::unique_ptr<StoredFile> stored);

  const PlanInputs& inputs() const { return inputs_; }
  // Returns the distinct layouts, sorted by digest.
  const std::vector<Layout>& layouts() const { return layouts_; }
  // Returns null if there is no layout of this digest.
  const Layout* Find(std::string_view digest) const;
  // Reads the bytes of one of layouts() and checks their CRC32C; the caller checks the digest. NOT_FOUND
  // (PLAN_UNKNOWN): the CRC32C is wrong. Else the errors of storage.
  absl::StatusOr<std::string> ReadLayout(const Layout& layout) const;

 private:
  explicit PlanFile(std::unique_ptr<StoredFile> stored) : stored_(std::move(stored)) {}
  absl::Status Damaged(std::string_view what) const;
  absl::StatusOr<std::string> ReadPart(uint64_t offset, uint64_t size) const;
  absl::Status ReadIndex(std::string_view index, uint64_t first, uint64_t layout_bytes);

  std::unique_ptr<StoredFile> stored_;
  PlanInputs inputs_;
  std::vector<Layout> layouts_;
};

// Writes a plan file durably, in place of one that is there, and returns its length in bytes. `bytes` are the layouts,
// parallel to inputs.layout; they are not copied. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): more ranks or longer names
// than Open accepts. Else the errors of storage.
absl::StatusOr<uint64_t> WritePlanFile(Storage& storage, std::string_view path, const PlanInputs& inputs,
                                       const std::vector<std::shared_ptr<const std::string>>& bytes);

}  // namespace cairn

#endif  // CAIRN_STORE_PLAN_PLAN_FILE_H_
