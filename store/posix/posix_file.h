// A file of a PosixStorage that is open to be read. With Cache::kUse all reads go through the page cache. Otherwise
// pages that are already cached come from it (not with Cache::kBypass), and the rest is read by direct I/O if the file
// system allows that.
#ifndef CAIRN_STORE_POSIX_POSIX_FILE_H_
#define CAIRN_STORE_POSIX_POSIX_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/confined_directory.h"
#include "common/file/unique_fd.h"
#include "store/posix/posix_calls.h"
#include "store/storage/stored_file.h"

namespace cairn {

class PosixFile : public StoredFile {
 public:
  // Opens `path` below `root`, as Storage::Open does. `full_path` is for messages.
  static absl::StatusOr<std::unique_ptr<PosixFile>> Open(ConfinedDirectory& root, std::string_view path,
                                                         std::string full_path, const OpenOptions& options,
                                                         const PosixCalls& calls);

  using StoredFile::Read;
  Way Begin(uint64_t offset, uint64_t size) override;
  absl::Status Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) override;
  bool shares_page_cache() const override;
  absl::StatusOr<UniqueFd> Share() const override;

 private:
  PosixFile(Facts facts, const OpenOptions& options, const PosixCalls& calls)
      : StoredFile(std::move(facts), options.cache),
        calls_(calls),
        counters_(options.counters == nullptr ? uncounted_ : *options.counters) {}

  // Checks that the open file has the length and the modification time that `options` name.
  absl::Status CheckFacts(const OpenOptions& options);
  // Makes all reads go through the page cache from now on.
  void RefuseDirect();
  // Reads at least `wanted` and at most `size` bytes to `to`. FILE_TRUNCATED: the file has fewer than `wanted`.
  absl::Status ReadFully(int fd, uint64_t offset, uint64_t size, uint64_t wanted, char* to,
                         std::atomic<uint64_t>& count);
  absl::Status ReadDirect(uint64_t offset, uint64_t size, char* to, bool in_place);
  absl::Status ReadRange(Way way, uint64_t offset, uint64_t size, char* to, bool in_place);
  absl::Status WrittenAnew() const;

  const PosixCalls calls_;
  ReadCounters uncounted_;
  ReadCounters& counters_;
  UniqueFd buffered_;
  UniqueFd direct_;
  std::atomic<bool> direct_refused_ = false;
  std::atomic<bool> random_ = false;  // the kernel was told that it need not read ahead
  bool without_checksums_ = false;
};

// True if all pages of the range are in the page cache; false also where the kernel does not say.
bool IsCached(int fd, uint64_t offset, uint64_t size);

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_POSIX_FILE_H_
