// The stand-in's devices: their memory, streams and faults.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_CUDA_STATE_H_
#define CAIRN_TESTS_TESTING_STAND_IN_CUDA_STATE_H_

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "common/gpu/driver_api.h"

namespace cairn::stand_in {

// A queue of work that one thread does in order. A ticket is the number of a piece of work.
class Queue {
 public:
  explicit Queue(bool blocking);
  // Waits for the work.
  ~Queue();

  int64_t Add(std::function<void()> work);
  int64_t last();
  bool IsDone(int64_t ticket);
  void Await(int64_t ticket);
  // Whether it waits for the default stream, and that one for it.
  bool blocking() const { return blocking_; }

 private:
  struct Shared;
  const bool blocking_;
  std::shared_ptr<Shared> shared_;
};

struct Allocation {
  int device = 0;
  size_t bytes = 0;
  char* alias = nullptr;  // the same pages, where the host may touch them
};

struct EventState {
  std::shared_ptr<Queue> queue;  // null until it is recorded
  int64_t ticket = 0;
};

struct Settings {
  int64_t devices = 2;
  int64_t device_bytes = int64_t{1} << 30;
  int64_t pinnable_bytes = int64_t{1} << 30;
  int64_t bytes_per_second = 0;
  int64_t copy_delay_us = 0;
  int64_t engine_stopped = 0;
  int64_t capturing = 0;
  int64_t broken = 0;
};

struct Failure {
  int64_t calls_left = 0;
  cuda::Result result = 0;
};

// Says how memory of the host lies: in one pinned range, in none, or partly in one, which no copy may use.
enum class HostKind { kPinned, kPageable, kMixed };

// There is one, which is never destroyed. `mutex` guards all of it.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  Settings settings;
  std::map<std::string, int64_t> counts;
  std::map<std::string, Failure> failures;
  std::set<std::string> hanging;
  pid_t process = 0;  // that called cuInit
  std::map<cuda::DevicePointer, Allocation> memory;
  std::map<uintptr_t, size_t> registered;
  std::map<uintptr_t, size_t> host_allocations;
  std::map<int, int64_t> contexts;  // device -> how often it is retained
  std::map<uintptr_t, std::shared_ptr<Queue>> streams;
  std::map<uintptr_t, EventState> events;
  std::map<uintptr_t, std::string> modules;
  uintptr_t next_handle = 0x1000;

  // These want the mutex held.
  const Allocation* Find(cuda::DevicePointer address, size_t bytes, size_t* offset) const;
  HostKind KindOf(uintptr_t address, size_t bytes) const;
  // Whether all of it is pinned, in one range or in several that follow one another.
  bool IsPinned(uintptr_t address, size_t bytes) const;
  int64_t BytesOf(const std::map<uintptr_t, size_t>& ranges) const;
  int64_t UsedBytes(int device) const;
  // The default stream is made when it is first used.
  std::shared_ptr<Queue> FindStream(cuda::Stream stream);
};

State& TheState();

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_STATE_H_
