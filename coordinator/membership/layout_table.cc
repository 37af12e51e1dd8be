#include "coordinator/membership/layout_table.h"

#include <algorithm>

namespace cairn {

bool LayoutTable::contains(const std::string& digest) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(digest);
  return found != entries_.end() && found->second.here;
}

void LayoutTable::Add(const std::string& digest, uint64_t bytes) {
  MutexLock lock(mutex_);
  dropped_.erase(digest);  // its bytes are here again
  Entry& entry = entries_[digest];
  if (entry.here) return;
  entry.here = true;
  entry.bytes = bytes;
  if (entry.holds == 0) SetUnheld(digest, entry);
}

std::vector<std::string> LayoutTable::TakeDropped() {
  MutexLock lock(mutex_);
  const auto dropped = std::exchange(dropped_, {});
  return {dropped.begin(), dropped.end()};
}

size_t LayoutTable::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

LayoutHold LayoutTable::Hold(const std::string& digest) {
  MutexLock lock(mutex_);
  Entry& entry = entries_[digest];
  if (entry.holds++ == 0 && entry.here) {
    unheld_.erase(entry.unheld);
    unheld_bytes_ -= entry.bytes;
  }
  return LayoutHold(*this, digest);
}

void LayoutTable::Release(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(digest);
  if (--found->second.holds > 0) return;
  if (found->second.here) {
    SetUnheld(digest, found->second);
  } else {
    entries_.erase(found);
  }
}

void LayoutTable::SetUnheld(const std::string& digest, Entry& entry) {
  unheld_.push_front(digest);
  entry.unheld = unheld_.begin();
  unheld_bytes_ += entry.bytes;
  TrimUnheld(kUnheldKept, kUnheldBytesKept);
}

void LayoutTable::DropUnheld() {
  MutexLock lock(mutex_);
  TrimUnheld(0, 0);
}

void LayoutTable::TrimUnheld(size_t count, uint64_t bytes) {
  while (unheld_.size() > count || unheld_bytes_ > bytes) {
    const auto oldest = entries_.find(unheld_.back());
    unheld_bytes_ -= oldest->second.bytes;
    dropped_.insert(std::move(unheld_.back()));
    unheld_.pop_back();
    entries_.erase(oldest);
  }
}

void HoldExactly(LayoutTable& table, std::vector<std::string> digests, std::vector<LayoutHold>& holds) {
  std::sort(digests.begin(), digests.end());
  digests.erase(std::unique(digests.begin(), digests.end()), digests.end());
  std::erase(digests, "");
  const auto same = [](const LayoutHold& hold, const std::string& digest) { return hold.digest() == digest; };
  if (std::equal(holds.begin(), holds.end(), digests.begin(), digests.end(), same)) return;
  std::vector<LayoutHold> now;
  for (const std::string& digest : digests) now.push_back(table.Hold(digest));
  std::swap(holds, now);  // what is held before and after was never let go
}

}  // namespace cairn
