// The calls of NCCL, as the stand-in makes them. tests/README.md says how it differs from the library.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/driver/nccl_api.h"
#include "tests/testing/stand_in/cuda/controls.h"
#include "tests/testing/stand_in/nccl/communicator.h"
#include "tests/testing/stand_in/nccl/controls.h"

namespace cairn::stand_in {
namespace {

using cuda::Stream;
using nccl::Comm;
using nccl::Result;

// The stand-in for CUDA's driver that this process has loaded.
struct Driver {
  decltype(&cairn_stand_in_enqueue) enqueue = nullptr;
  decltype(&cairn_stand_in_reach) reach = nullptr;
  decltype(&cairn_stand_in_current_device) current_device = nullptr;
  bool complete() const { return enqueue != nullptr && reach != nullptr && current_device != nullptr; }
};

Driver FindDriver() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::string name = info->dlpi_name;
        if (name.find("libcairn_stand_in_cuda.so") != std::string::npos) *static_cast<std::string*>(found) = name;
        return 0;
      },
      &path);
  Driver driver;
  void* library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return driver;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
  };
  get(driver.enqueue, "cairn_stand_in_enqueue");
  get(driver.reach, "cairn_stand_in_reach");
  get(driver.current_device, "cairn_stand_in_current_device");
  return driver;
}

// A call adds this to the group that is open in this thread.
struct Added {
  std::shared_ptr<Communicator> comm;
  Stream stream = nullptr;
  Operation operation;
};

struct Group {
  int depth = 0;
  std::vector<Added> added;
  Result error = nccl::kSuccess;
};

thread_local Group group;

struct Communicators {
  std::mutex mutex;
  std::map<Comm, std::shared_ptr<Communicator>> known;
  std::string last_error;
};

// It is never destroyed: threads may run while the process ends.
Communicators& All() {
  static Communicators& all = *new Communicators;
  return all;
}

std::shared_ptr<Communicator> Find(Comm comm) {
  const std::lock_guard lock(All().mutex);
  const auto found = All().known.find(comm);
  return found == All().known.end() ? nullptr : found->second;
}

Result Refuse(Result result, const std::string& why) {
  const std::lock_guard lock(All().mutex);
  All().last_error = why;
  return result;
}

// Returns whether this is the call that a setting names by its number.
bool IsCall(const char* setting, int64_t number) { return NcclSetting(setting, 0) == number; }

void Hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

Result Launch(Group& launched) {
  static std::atomic<int64_t> calls = 0;
  const int64_t number = ++calls;
  if (IsCall("group_end_kills", number)) raise(SIGKILL);
  if (IsCall("group_end_stops", number)) raise(SIGSTOP);
  if (IsCall("group_end_hangs", number)) Hang();
  const bool stalls = IsCall("group_stalls", number);
  if (launched.error != nccl::kSuccess || launched.added.empty()) return launched.error;
  static const Driver driver = FindDriver();  // the group's communicators have found it complete
  std::map<std::pair<std::shared_ptr<Communicator>, Stream>, std::vector<Operation>> by_stream;
  for (Added& added : launched.added) {
    void* reached = driver.reach(added.operation.bytes, added.operation.count);
    if (reached == nullptr) return Refuse(nccl::kUnhandledCudaError, "Cuda failure 'an illegal memory access'");
    added.operation.bytes = static_cast<char*>(reached);
    by_stream[{added.comm, added.stream}].push_back(added.operation);
  }
  struct Work {
    std::shared_ptr<Communicator> comm;
    std::vector<Operation> operations;
    bool stalls = false;
  };
  for (auto& [where, operations] : by_stream) {
    auto* work = new Work{where.first, std::move(operations), stalls};
    where.first->MarkEnqueued();
    const auto run = [](void* argument) {
      const std::unique_ptr<Work> owned(static_cast<Work*>(argument));
      if (owned->stalls) owned->comm->Stall();
      owned->comm->Move(std::move(owned->operations));
    };
    if (!driver.enqueue(where.second, run, work)) {
      delete work;
      return Refuse(nccl::kInvalidArgument, "the stream is not one");
    }
  }
  return nccl::kInProgress;
}

Result EndGroup() {
  if (--group.depth > 0) return nccl::kSuccess;
  Group launched = std::exchange(group, Group());
  return Launch(launched);
}

Result Add(Comm comm, Stream stream, std::vector<Operation> operations, int datatype) {
  const std::shared_ptr<Communicator> found = Find(comm);
  if (found == nullptr) return Refuse(nccl::kInvalidArgument, "the communicator is not one");
  for (const Operation& operation : operations) {
    if (operation.peer < 0 || operation.peer >= found->ranks()) {
      return Refuse(nccl::kInvalidArgument, "Invalid rank " + std::to_string(operation.peer));
    }
  }
  if (datatype != nccl::kUint8) return Refuse(nccl::kInvalidArgument, "the stand-in moves bytes only");
  if (!found->ready()) return Refuse(nccl::kInvalidUsage, "the communicator is not ready");
  ++group.depth;
  for (Operation& operation : operations) {
    if (operation.count > 0) group.added.push_back({found, stream, operation});
  }
  return EndGroup();
}

// The stand-in writes what the caller calls a source only if it is a target.
char* Bytes(const void* memory) { return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(memory)); }

}  // namespace
}  // namespace cairn::stand_in

// NOLINTBEGIN(readability-identifier-naming): the names are the library's.
using namespace cairn::stand_in;
using namespace cairn::nccl;
using cairn::cuda::Stream;

extern "C" {

Result ncclGetVersion(int* version) {
  *version = static_cast<int>(NcclSetting("version", 22809));
  return kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  return ServeUniqueId(id) ? kSuccess : Refuse(kSystemError, "Bootstrap : no socket interface found");
}

Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  *comm = nullptr;
  if (config->magic != Config().magic) return Refuse(kInvalidArgument, "ncclConfig_t is not initialized");
  if (ranks < 1 || ranks > Segment::kMostRanks || rank < 0 || rank >= ranks) {
    return Refuse(kInvalidArgument, "Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(ranks));
  }
  if (config->blocking != 0) return Refuse(kInvalidUsage, "the stand-in does not block");
  const auto refused = static_cast<Result>(NcclSetting("init_result", 0));
  if (refused != kSuccess) return Refuse(refused, "the test wants it");
  const Driver driver = FindDriver();
  if (!driver.complete()) return Refuse(kUnhandledCudaError, "Cuda failure 'initialization error'");
  Hello hello;
  hello.ranks = ranks;
  hello.rank = rank;
  hello.version = static_cast<int32_t>(NcclSetting("version", 22809));
  hello.device = static_cast<int32_t>(driver.current_device());
  hello.shared_device = static_cast<int32_t>(NcclSetting("shared_device", 0));
  const char* host = std::getenv("NCCL_HOSTID");
  if (host != nullptr) {
    std::strncpy(hello.host, host, sizeof(hello.host) - 1);
  } else {
    gethostname(hello.host, sizeof(hello.host) - 1);
  }
  if (hello.device < 0) return Refuse(kUnhandledCudaError, "Cuda failure 'invalid device context'");
  SetRank(rank);
  auto made = std::make_shared<Communicator>(ranks, rank);
  *comm = reinterpret_cast<Comm>(made.get());
  made->Join(id, hello);
  const std::lock_guard lock(All().mutex);
  All().known[*comm] = std::move(made);
  return kInProgress;
}

Result ncclCommGetAsyncError(Comm comm, Result* error) {
  const std::shared_ptr<Communicator> found = Find(comm);
  if (found == nullptr) return kInvalidArgument;
  *error = found->AsyncError();
  return kSuccess;
}

Result ncclCommAbort(Comm comm) {
  if (NcclSetting("abort_hangs", 0) != 0) Hang();
  const std::shared_ptr<Communicator> found = Find(comm);
  if (found == nullptr) return kInvalidArgument;
  found->Abort();
  const std::lock_guard lock(All().mutex);
  All().known.erase(comm);
  return kSuccess;
}

const char* ncclGetErrorString(Result result) { return result == kSuccess ? "no error" : "an error of the stand-in"; }

const char* ncclGetLastError(Comm comm) {
  static thread_local std::string text;
  const std::shared_ptr<Communicator> found = Find(comm);
  text = found == nullptr ? "" : found->last_error();
  const std::lock_guard lock(All().mutex);
  if (text.empty()) text = All().last_error;
  return text.c_str();
}

Result ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}

Result ncclGroupEnd() {
  if (group.depth == 0) return Refuse(kInvalidUsage, "ncclGroupEnd: not in a group call.");
  return EndGroup();
}

Result ncclSend(const void* memory, size_t count, int datatype, int peer, Comm comm, Stream stream) {
  return Add(comm, stream, {{true, peer, Bytes(memory), count}}, datatype);
}

Result ncclRecv(void* memory, size_t count, int datatype, int peer, Comm comm, Stream stream) {
  return Add(comm, stream, {{false, peer, Bytes(memory), count}}, datatype);
}

Result ncclBroadcast(const void* source, void* target, size_t count, int datatype, int root, Comm comm, Stream stream) {
  const std::shared_ptr<Communicator> found = Find(comm);
  if (found == nullptr) return Refuse(kInvalidArgument, "the communicator is not one");
  std::vector<Operation> operations;
  if (found->rank() != root) {
    operations.push_back({false, root, Bytes(target), count});
  } else {
    for (int peer = 0; peer < found->ranks(); ++peer) {
      if (peer != root || source != target) operations.push_back({true, peer, Bytes(source), count});
    }
    if (source != target) operations.push_back({false, root, Bytes(target), count});
  }
  return Add(comm, stream, std::move(operations), datatype);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
