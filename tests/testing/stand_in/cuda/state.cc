#include "tests/testing/stand_in/cuda/state.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

namespace cairn::stand_in {

struct Queue::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  int64_t added = 0;
  int64_t done = 0;
  bool ending = false;
};

Queue::Queue(bool blocking) : blocking_(blocking), shared_(std::make_shared<Shared>()) {
  // A thread that is told to hang may outlive the queue, and even the test.
  std::thread([shared = shared_] {
    std::unique_lock lock(shared->mutex);
    for (;;) {
      shared->changed.wait(lock, [&] { return shared->ending || !shared->work.empty(); });
      if (shared->work.empty()) return;
      const std::function<void()> next = std::move(shared->work.front());
      shared->work.pop_front();
      lock.unlock();
      next();
      lock.lock();
      ++shared->done;
      shared->changed.notify_all();
    }
  }).detach();
}

Queue::~Queue() {
  const std::lock_guard lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
}

int64_t Queue::Add(std::function<void()> work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.push_back(std::move(work));
  shared_->changed.notify_all();
  return ++shared_->added;
}

int64_t Queue::last() {
  const std::lock_guard lock(shared_->mutex);
  return shared_->added;
}

bool Queue::IsDone(int64_t ticket) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->done >= ticket;
}

void Queue::Await(int64_t ticket) {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->done >= ticket; });
}

State& TheState() {
  static State& state = *new State;
  return state;
}

const Allocation* State::Find(cuda::DevicePointer address, size_t bytes, size_t* offset, int access) const {
  const Allocation* found = FindEnqueued(address, bytes, offset, access);
  return found != nullptr && !found->leaving ? found : nullptr;
}

const Allocation* State::FindEnqueued(cuda::DevicePointer address, size_t bytes, size_t* offset, int access) const {
  auto next = memory.upper_bound(address);
  if (next == memory.begin()) return nullptr;
  const auto found = --next;
  *offset = static_cast<size_t>(address - found->first);
  if (*offset >= found->second.bytes) return nullptr;
  const cuda::DevicePointer end = address + bytes;
  while ((next->second.access & access) == access) {
    const cuda::DevicePointer reached = next->first + next->second.bytes;
    if (bytes <= found->second.bytes - *offset || end <= reached) return &found->second;
    if (++next == memory.end() || next->first != reached || found->second.reservation == 0 ||
        next->second.reservation != found->second.reservation || next->second.device != found->second.device) {
      break;
    }
  }
  return nullptr;
}

HostKind State::KindOf(uintptr_t address, size_t bytes, char** pages) const {
  const auto look = [&](uintptr_t begin, size_t length, char* reached) {
    if (address >= begin + length || begin >= address + bytes) return HostKind::kPageable;
    if (address < begin || address + bytes > begin + length) return HostKind::kMixed;
    if (pages != nullptr) *pages = reached + (address - begin);
    return HostKind::kPinned;
  };
  for (const auto& [begin, each] : registered) {
    if (const HostKind kind = look(begin, each.bytes, each.pages); kind != HostKind::kPageable) return kind;
  }
  for (const auto& [begin, length] : host_allocations) {
    const HostKind kind = look(begin, length, reinterpret_cast<char*>(begin));
    if (kind != HostKind::kPageable) return kind;
  }
  return HostKind::kPageable;
}

int64_t State::RegisteredBytes() const {
  int64_t total = 0;
  for (const auto& [begin, each] : registered) total += static_cast<int64_t>(each.bytes);
  return total;
}

bool State::IsPinned(uintptr_t address, size_t bytes) const {
  uintptr_t at = address;
  const uintptr_t end = address + bytes;
  while (at < end) {
    uintptr_t reached = at;
    if (auto next = registered.upper_bound(at); next != registered.begin()) {
      --next;
      reached = std::max(reached, next->first + next->second.bytes);
    }
    if (auto next = host_allocations.upper_bound(at); next != host_allocations.begin()) {
      --next;
      reached = std::max(reached, next->first + next->second);
    }
    if (reached == at) return false;
    at = reached;
  }
  return true;
}

int64_t State::BytesOf(const std::map<uintptr_t, size_t>& ranges) const {
  int64_t total = 0;
  for (const auto& [address, bytes] : ranges) total += static_cast<int64_t>(bytes);
  return total;
}

int64_t State::UsedBytes(int device) const {
  int64_t total = 0;
  for (const Physical* physical : physicals) {
    if (!physical->imported && (physical->device == device || device < 0)) {
      total += static_cast<int64_t>(physical->bytes);
    }
  }
  for (const LentMemory& each : lent) {
    if ((each.device == device || device < 0) && Physical::IsHeldElsewhere(each.file)) {
      total += static_cast<int64_t>(each.bytes);
    }
  }
  return total;
}

int64_t State::LentBytes() const {
  int64_t total = 0;
  for (const Physical* physical : physicals) {
    if (!physical->imported && Physical::IsHeldElsewhere(physical->file)) {
      total += static_cast<int64_t>(physical->bytes);
    }
  }
  for (const LentMemory& each : lent) {
    if (Physical::IsHeldElsewhere(each.file)) total += static_cast<int64_t>(each.bytes);
  }
  return total;
}

void State::ForgetLent() {
  std::erase_if(lent, [](const LentMemory& each) {
    if (Physical::IsHeldElsewhere(each.file)) return false;
    close(each.file);
    return true;
  });
}

std::vector<std::pair<std::shared_ptr<Queue>, int64_t>> State::AllWork() const {
  std::vector<std::pair<std::shared_ptr<Queue>, int64_t>> work;
  for (const auto& [handle, queue] : streams) work.emplace_back(queue, queue->last());
  return work;
}

std::shared_ptr<Queue> State::FindStream(cuda::Stream stream) {
  uintptr_t handle = reinterpret_cast<uintptr_t>(stream);
  if (handle == cuda::kStreamLegacy) handle = 0;
  const auto found = streams.find(handle);
  if (found != streams.end()) return found->second;
  if (handle != 0) return nullptr;
  return streams[0] = std::make_shared<Queue>(true);
}

}  // namespace cairn::stand_in
