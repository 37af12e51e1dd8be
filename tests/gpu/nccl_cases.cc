#include "tests/gpu/nccl_cases.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace cairn {
namespace {

using nccl::Comm;
using nccl::Result;

constexpr size_t kBytes = size_t{3} << 20;
constexpr std::chrono::seconds kLimit(20);

// Shared pages that are registered with the device, as windows of the worker are.
struct Pages {
  explicit Pages(const GpuDriver& given) : driver(given) {
    const int file = memfd_create("contract", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, kBytes) != 0) std::abort();
    void* found = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    close(file);
    if (found == MAP_FAILED) std::abort();
    bytes = static_cast<char*>(found);
    if (driver.call().host_register(bytes, kBytes, cuda::kMemHostRegisterPortable) != cuda::kSuccess) std::abort();
  }
  ~Pages() {
    driver.call().host_unregister(bytes);
    munmap(bytes, kBytes);
  }
  void Fill(int seed) {
    for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed));
  }
  std::string Equals(int seed) const {
    for (size_t i = 0; i < kBytes; ++i) {
      if (bytes[i] != static_cast<char>(i * 31 + static_cast<size_t>(seed))) return "bytes differ";
    }
    return "bytes equal";
  }
  const GpuDriver& driver;
  char* bytes = nullptr;
};

struct Member {
  Member(const NcclRank& given, int ranks) : all(given), call(given.library.call()) {
    nccl::Config config;
    config.blocking = 0;
    begun = call.comm_init(&comm, ranks, all.id, all.rank, &config);
    all.driver.call().stream_create(&stream, cuda::kStreamNonBlocking);
  }
  // Waits for the state of the communicator; kInProgress if that does not end.
  Result Await() const {
    const auto until = std::chrono::steady_clock::now() + kLimit;
    Result state = nccl::kInProgress;
    while (state == nccl::kInProgress && std::chrono::steady_clock::now() < until) {
      call.comm_get_async_error(comm, &state);
      std::this_thread::yield();
    }
    return state;
  }
  Result Start() const { return begun == nccl::kInProgress || begun == nccl::kSuccess ? Await() : begun; }
  // Waits until the stream has done its work, or the communicator says why it does not.
  Result Finish() const {
    const auto until = std::chrono::steady_clock::now() + kLimit;
    while (std::chrono::steady_clock::now() < until) {
      const Result state = Await();
      if (state != nccl::kSuccess) return state;
      if (all.driver.call().stream_query(stream) == cuda::kSuccess) return nccl::kSuccess;
    }
    return nccl::kInProgress;
  }
  std::string Name(Result result) const {
    const std::string text = all.library.Describe(result, nullptr);
    return text.substr(0, text.find(':'));
  }
  const NcclRank& all;
  const nccl::Functions& call;
  Comm comm = nullptr;
  cuda::Stream stream = nullptr;
  Result begun = nccl::kSuccess;
};

std::string Exchange(const NcclRank& all) {
  Pages out(all.driver), in(all.driver);
  out.Fill(all.rank);
  const Member member(all, 2);
  const Result started = member.Start();
  if (started != nccl::kSuccess) return member.Name(started);
  member.call.group_start();
  member.call.send(out.bytes, kBytes, nccl::kUint8, 1 - all.rank, member.comm, member.stream);
  member.call.receive(in.bytes, kBytes, nccl::kUint8, 1 - all.rank, member.comm, member.stream);
  member.call.group_end();
  std::string outcome = member.Name(member.Finish());  // the bytes are looked at afterwards
  outcome += ", " + in.Equals(1 - all.rank);
  return outcome + ", abort " + member.Name(member.call.comm_abort(member.comm));
}

// Two groups that the sender begins one after the other, and one group of two receives.
std::string InOrder(const NcclRank& all) {
  Pages first(all.driver), second(all.driver);
  const Member member(all, 2);
  const Result started = member.Start();
  if (started != nccl::kSuccess) return member.Name(started);
  if (all.rank == 0) {
    first.Fill(5);
    second.Fill(6);
    member.call.send(first.bytes, kBytes, nccl::kUint8, 1, member.comm, member.stream);
    if (const Result between = member.Await(); between != nccl::kSuccess) return member.Name(between);
    member.call.send(second.bytes, kBytes, nccl::kUint8, 1, member.comm, member.stream);
  } else {
    member.call.group_start();
    member.call.receive(first.bytes, kBytes, nccl::kUint8, 0, member.comm, member.stream);
    member.call.receive(second.bytes, kBytes, nccl::kUint8, 0, member.comm, member.stream);
    member.call.group_end();
  }
  std::string outcome = member.Name(member.Finish());
  outcome += ", " + first.Equals(5) + ", " + second.Equals(6);
  member.call.comm_abort(member.comm);
  return outcome;
}

// Sends and receives one piece of memory.
Result Swap(const Member& member, const Pages& out, const Pages& in) {
  member.call.group_start();
  member.call.send(out.bytes, kBytes, nccl::kUint8, 1 - member.all.rank, member.comm, member.stream);
  member.call.receive(in.bytes, kBytes, nccl::kUint8, 1 - member.all.rank, member.comm, member.stream);
  member.call.group_end();
  return member.Finish();
}

// A rank that is done may not abort at once: what it has sent may still be under way, and its peer then gets an error
// in place of the bytes.
std::string Broadcast(const NcclRank& all) {
  const Pages in(all.driver);
  Pages pages(all.driver);
  if (all.rank == 1) pages.Fill(9);
  const Member member(all, 2);
  const Result started = member.Start();
  if (started != nccl::kSuccess) return member.Name(started);
  member.call.broadcast(pages.bytes, pages.bytes, kBytes, nccl::kUint8, 1, member.comm, member.stream);
  std::string outcome = member.Name(member.Finish());
  outcome += ", " + pages.Equals(9);
  Swap(member, pages, in);
  member.call.comm_abort(member.comm);
  return outcome;
}

// A process ends without a word to the library, while the other rank waits for it over connections that are made.
std::string PeerDies(const NcclRank& all) {
  const Pages out(all.driver), in(all.driver);
  const Member member(all, 2);
  const Result started = member.Start();
  if (started != nccl::kSuccess) return member.Name(started);
  if (const Result swapped = Swap(member, out, in); swapped != nccl::kSuccess) return member.Name(swapped);
  if (all.rank == 1) return "ended";
  std::string outcome = member.Name(Swap(member, out, in));
  return outcome + ", abort " + member.Name(member.call.comm_abort(member.comm));
}

std::string StartOnly(const NcclRank& all) {
  const Member member(all, 2);
  return member.Name(member.Start());
}

std::string AbortWithoutPeer(const NcclRank& all) {
  if (all.rank == 1) return "did not come";
  const Member member(all, 2);
  Result state = nccl::kSuccess;
  member.call.comm_get_async_error(member.comm, &state);
  return member.Name(member.begun) + ", " + member.Name(state) + ", abort " +
         member.Name(member.call.comm_abort(member.comm));
}

std::string BadCalls(const NcclRank& all) {
  const nccl::Functions& call = all.library.call();
  const auto name = [&](Result result) {
    const std::string text = all.library.Describe(result, nullptr);
    return text.substr(0, text.find(':'));
  };
  Comm comm = nullptr;
  nccl::Config config;
  config.blocking = 0;
  const std::string rank = name(call.comm_init(&comm, 2, all.id, 2, &config));
  config.magic = 0;
  const std::string magic = name(call.comm_init(&comm, 2, all.id, all.rank, &config));
  return rank + ", " + magic + ", " + name(call.group_end());
}

}  // namespace

const std::vector<NcclCase>& NcclCases() {
  static const std::vector<NcclCase> cases = {
      {"abort_before_all_ranks_came", true, -1, AbortWithoutPeer},
      {"bad_calls", true, -1, BadCalls},
      {"broadcast", true, -1, Broadcast},
      {"exchange", true, -1, Exchange},
      {"groups_with_one_peer_keep_their_order", true, -1, InOrder},
      {"one_device_for_two_ranks", false, -1, StartOnly},
      {"peer_dies", true, 1, PeerDies},
      {"start", true, -1, StartOnly},
  };
  return cases;
}

}  // namespace cairn
