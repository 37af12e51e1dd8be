// Records what a shuffle has done, so that it can go on after it was killed. The file has lines "CRC32C JSON", each of
// which is synced; a torn last line does not count.
#ifndef CAIRN_CORPUS_SHUFFLE_JOURNAL_H_
#define CAIRN_CORPUS_SHUFFLE_JOURNAL_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn::corpus {

// Only one thread may use it at a time.
class Journal {
 public:
  // Opens or creates the file and locks it against other processes. BAD_REQUEST: another process runs this shuffle.
  // STORAGE_ERROR, STORAGE_READ_ONLY, NO_SPACE: it cannot be made, read or locked.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Returns the entries that Open found, in order; empty when called again.
  std::vector<nlohmann::json> TakeEntries() { return std::exchange(entries_, {}); }
  // Puts entries back, so that TakeEntries returns them again.
  void Restore(std::vector<nlohmann::json> entries) { entries_ = std::move(entries); }
  // Forgets all entries, also in the file, and begins with this one.
  absl::Status BeginAnew(const nlohmann::json& first);
  // How many entries the file has.
  size_t entries() const { return count_; }
  // Appends an entry, which is durable when it returns.
  absl::Status Append(const nlohmann::json& entry);

 private:
  Journal(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  absl::Status Load();

  const std::string path_;
  const UniqueFd fd_;  // holds the lock
  uint64_t size_ = 0;
  size_t count_ = 0;
  std::vector<nlohmann::json> entries_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_JOURNAL_H_
