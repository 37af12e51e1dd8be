// Knows which layouts are kept, and for whom.
#ifndef CAIRN_COORDINATOR_MEMBERSHIP_LAYOUT_TABLE_H_
#define CAIRN_COORDINATOR_MEMBERSHIP_LAYOUT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/mutex.h"

namespace cairn {

class LayoutHold;

// A layout is kept while somebody holds it: the agent that reports it, or a plan. Only the newest of the layouts stay
// that nobody holds. The bytes themselves are elsewhere. Thread-safe, because jobs share it; must outlive its holds.
class LayoutTable {
 public:
  static constexpr size_t kUnheldKept = 16;
  static constexpr uint64_t kUnheldBytesKept = uint64_t{64} << 20;

  // True if the bytes are here.
  bool contains(const std::string& digest) const;
  // The bytes have come.
  void Add(const std::string& digest, uint64_t bytes);
  LayoutHold Hold(const std::string& digest);
  // Keeps no layout any more that nobody holds.
  void DropUnheld();
  // Returns the layouts that have ceased to be kept since the last call.
  std::vector<std::string> TakeDropped();
  // Counts the layouts that somebody holds or that are here.
  size_t size() const;

 private:
  friend class LayoutHold;
  struct Entry {
    size_t holds = 0;
    bool here = false;
    uint64_t bytes = 0;
    std::list<std::string>::iterator unheld;  // if nobody holds it, which is only so of one that is here
  };

  void Release(const std::string& digest);
  void SetUnheld(const std::string& digest, Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the oldest ones that nobody holds until so many, of so many bytes, are left.
  void TrimUnheld(size_t count, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<std::string> unheld_ ABSL_GUARDED_BY(mutex_);  // newest first
  uint64_t unheld_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<std::string> dropped_ ABSL_GUARDED_BY(mutex_);
};

// Keeps one layout while it lives.
class LayoutHold {
 public:
  LayoutHold(LayoutHold&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)), digest_(std::move(other.digest_)) {}
  LayoutHold& operator=(LayoutHold&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(digest_, other.digest_);
    return *this;
  }
  ~LayoutHold() {
    if (table_ != nullptr) table_->Release(digest_);
  }

  const std::string& digest() const { return digest_; }

 private:
  friend class LayoutTable;
  LayoutHold(LayoutTable& table, std::string digest) : table_(&table), digest_(std::move(digest)) {}

  LayoutTable* table_;
  std::string digest_;
};

// Makes `holds` hold exactly `digests`. Empty digests and repetitions are ignored.
void HoldExactly(LayoutTable& table, std::vector<std::string> digests, std::vector<LayoutHold>& holds);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_MEMBERSHIP_LAYOUT_TABLE_H_
