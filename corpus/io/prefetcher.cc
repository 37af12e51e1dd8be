#include "corpus/io/prefetcher.h"

#include <utility>

#include "common/resources/thread.h"

namespace cairn::corpus {

Prefetcher::Prefetcher(char* memory, size_t block_bytes) : block_bytes_(block_bytes) {
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].data = memory + i * block_bytes;
  if (auto thread = StartThread("to read ahead", [this] { Loop(); }); thread.ok()) thread_ = *std::move(thread);
}

Prefetcher::~Prefetcher() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Prefetcher::Start(std::unique_ptr<ByteSource> source) {
  Finish();
  MutexLock lock(mutex_);
  source_ = std::move(source);
  for (Slot& slot : slots_) slot.state = SlotState::kFree;
  next_fill_ = next_use_ = 0;
  ended_ = false;
  changed_.NotifyAll();
}

bool Prefetcher::Finish() {
  MutexLock lock(mutex_);
  ended_ = true;
  while (reading_) changed_.Wait(mutex_);
  const bool direct = source_ != nullptr && source_->direct();
  source_.reset();
  return direct;
}

absl::StatusOr<std::string_view> Prefetcher::Next() {
  MutexLock lock(mutex_);
  if (!thread_.joinable()) {
    if (ended_) return std::string_view();
    absl::StatusOr<size_t> result = source_->Read(slots_[0].data, block_bytes_);
    ended_ = !result.ok() || *result == 0;
    if (!result.ok()) return result.status();
    return std::string_view(slots_[0].data, *result);
  }
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::kInUse) slot.state = SlotState::kFree;
  }
  changed_.NotifyAll();
  Slot& slot = slots_[next_use_];
  while (slot.state != SlotState::kFull) {
    if (ended_ && !reading_) return std::string_view();
    changed_.Wait(mutex_);
  }
  slot.state = SlotState::kInUse;
  next_use_ = 1 - next_use_;
  if (!slot.result.ok()) return slot.result.status();
  return std::string_view(slot.data, *slot.result);
}

void Prefetcher::Loop() {
  mutex_.Lock();
  while (!stopping_) {
    Slot& slot = slots_[next_fill_];
    if (ended_ || slot.state != SlotState::kFree) {
      changed_.Wait(mutex_);
      continue;
    }
    reading_ = true;
    ByteSource* const source = source_.get();
    mutex_.Unlock();
    absl::StatusOr<size_t> result = source->Read(slot.data, block_bytes_);
    mutex_.Lock();
    reading_ = false;
    if (!result.ok() || *result == 0) ended_ = true;
    slot.result = std::move(result);
    slot.state = SlotState::kFull;
    next_fill_ = 1 - next_fill_;
    changed_.NotifyAll();
  }
  mutex_.Unlock();
}

}  // namespace cairn::corpus
