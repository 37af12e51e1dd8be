// Reads ranges of an input, which is a regular file or an object.
#ifndef CAIRN_CORPUS_IO_RANGED_INPUT_H_
#define CAIRN_CORPUS_IO_RANGED_INPUT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {

// Immutable, and so thread-safe. Can be moved.
class RangedInput {
 public:
  // INPUT_UNREADABLE: it is missing, cannot be read or is no regular file. Else fails as ObjectStores::Open.
  static absl::StatusOr<RangedInput> Open(const std::string& path);

  uint64_t bytes() const { return bytes_; }
  // A request to a store takes long, so an object is best read in larger pieces than a file.
  size_t best_piece() const { return object_ == nullptr ? size_t{1} << 20 : size_t{4} << 20; }
  // The descriptor of a file; -1 for an object.
  int fd() const { return fd_.get(); }
  // Reads up to `size` bytes and returns their number, which is lower only if the input ends before. INPUT_UNREADABLE.
  absl::StatusOr<size_t> Read(uint64_t offset, void* to, size_t size) const;

 private:
  std::string path_;
  uint64_t bytes_ = 0;
  UniqueFd fd_;
  std::unique_ptr<ObjectReader> object_;  // null: a file
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_RANGED_INPUT_H_
