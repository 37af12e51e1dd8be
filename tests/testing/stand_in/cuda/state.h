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
#include <thread>
#include <utility>
#include <vector>

#include "gpu/driver/driver_api.h"

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
  // Returns whether it waits for the default stream, and that one for it.
  bool blocking() const { return blocking_; }

 private:
  struct Shared;
  const bool blocking_;
  std::shared_ptr<Shared> shared_;
};

// What a handle says that is bytes alone: of CUDA IPC, and of the fabric.
struct MemoryName {
  pid_t process = 0;
  int file = -1;
  uint64_t id = 0;
};

// A device's memory, in a file that processes can hand to each other. It is used up as long as somebody maps it or has
// a handle of it, in whatever process. It is made, used and dropped with the state's mutex held.
class Physical {
 public:
  // Takes memory of a device of this process.
  Physical(int device, size_t bytes, unsigned long long handle_types);
  // Takes part in memory of another process, whose file this is. Null if it is none, or is not of `id` (0: any).
  static std::shared_ptr<Physical> Import(int file, uint64_t id);
  static std::shared_ptr<Physical> Import(const MemoryName& name);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  // Returns whether another process, or another import of this one, has memory of this file.
  static bool IsHeldElsewhere(int file);
  size_t length() const;  // whole pages

  const uint64_t handle;
  int device = 0;
  size_t bytes = 0;
  unsigned long long handle_types = 0;  // as what it may be exported
  uint64_t id = 0;                      // on this machine
  int file = -1;
  bool imported = false;
  bool exported = false;

 private:
  Physical();
};

// A piece of a device's address space behind which memory lies.
struct Allocation {
  int device = 0;
  bool leaving = false;  // it is being freed: only work that was enqueued before still reaches it
  size_t bytes = 0;
  char* alias = nullptr;  // the same pages, where the host may touch them
  std::shared_ptr<Physical> physical;
  int access = cuda::kAccessReadWrite;
  // The reserved addresses that it lies in, which may have several that follow one another; 0 if it has its own.
  cuda::DevicePointer reservation = 0;
};

struct Reservation {
  size_t bytes = 0;
  char* alias = nullptr;
};

// Memory that was freed here. It counts as long as another process holds it.
struct LentMemory {
  int file = -1;
  int device = 0;
  size_t bytes = 0;
};

// Host memory that was registered. As a driver does, copies reach the pages that were there then, whatever is mapped at
// the address by now.
struct Registered {
  size_t bytes = 0;
  char* pages = nullptr;  // the same pages a second time; the address itself if it is private memory, of which none can
};

struct EventState {
  std::shared_ptr<Queue> queue;  // null until it is recorded
  int64_t ticket = 0;
  bool captured = false;
};

// A stream that records a graph. Work that is enqueued in it does not run.
struct Capture {
  int mode = cuda::kCaptureGlobal;
  std::thread::id thread;
  bool invalidated = false;
};

struct Settings {
  int64_t devices = 2;
  int64_t device_bytes = int64_t{1} << 30;
  int64_t pinnable_bytes = int64_t{1} << 30;
  int64_t bytes_per_second = 0;
  int64_t copy_delay_us = 0;
  int64_t engine_stopped = 0;
  int64_t broken = 0;
  int64_t first_device = 0;
  int64_t fabric = 0;
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
  std::map<cuda::DevicePointer, Reservation> reservations;
  struct Handle {
    std::shared_ptr<Physical> physical;
    int references = 0;
  };
  std::map<cuda::AllocationHandle, Handle> handles;
  std::set<const Physical*> physicals;
  std::vector<LentMemory> lent;
  std::map<uintptr_t, Registered> registered;
  std::map<uintptr_t, size_t> host_allocations;
  std::map<int, int64_t> contexts;  // device -> how often it is retained
  std::map<uintptr_t, std::shared_ptr<Queue>> streams;
  std::map<uintptr_t, EventState> events;
  std::map<uintptr_t, Capture> captures;  // by stream
  std::map<uintptr_t, std::string> modules;
  uintptr_t next_handle = 0x1000;

  // These want the mutex held.
  // Null unless all of these bytes are memory of one device which it may access so. They may reach over several pieces
  // of one reservation.
  const Allocation* Find(cuda::DevicePointer address, size_t bytes, size_t* offset,
                         int access = cuda::kAccessRead) const;
  // As Find(), for work that was enqueued before: also of memory that is being freed.
  const Allocation* FindEnqueued(cuda::DevicePointer address, size_t bytes, size_t* offset, int access) const;
  // Sets `pages` to where the bytes are reached, if they are pinned.
  HostKind KindOf(uintptr_t address, size_t bytes, char** pages = nullptr) const;
  int64_t RegisteredBytes() const;
  // Returns whether all of it is pinned, in one range or in several that follow one another.
  bool IsPinned(uintptr_t address, size_t bytes) const;
  int64_t BytesOf(const std::map<uintptr_t, size_t>& ranges) const;
  // Returns what is used of one device, or of all if it is negative, with what others hold of memory that was freed
  // here.
  int64_t UsedBytes(int device) const;
  // Returns what others hold of memory that was taken here.
  int64_t LentBytes() const;
  // Gives up what was lent and is not held any more.
  void ForgetLent();
  std::vector<std::pair<std::shared_ptr<Queue>, int64_t>> AllWork() const;
  // The default stream is made when it is first used.
  std::shared_ptr<Queue> FindStream(cuda::Stream stream);
};

State& TheState();

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_STATE_H_
