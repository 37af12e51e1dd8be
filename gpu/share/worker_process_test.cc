// A worker in a process of its own, with the stand-ins for CUDA's driver and NCCL.
#include "gpu/share/worker_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);
constexpr uint64_t kBytes = uint64_t{1} << 20;

std::string Absolute(const char* path) { return std::filesystem::absolute(path).string(); }

struct File {
  File() : fd(memfd_create("worker-test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd.get(), kBytes), 0);
    data = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  }
  ~File() { munmap(data, kBytes); }
  UniqueFd fd;
  char* data = nullptr;
};

worker::Map Memory(uint64_t number, uint64_t bytes, bool writable) {
  worker::Map map;
  map.set_memory(number);
  map.set_bytes(bytes);
  map.set_writable(writable);
  return map;
}

class WorkerProcessTest : public testing::Test {
 protected:
  WorkerProcessTest() {
    options_.program = Absolute("gpu/share/cairn-gpu-worker");
    options_.libcuda = Absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so");
    options_.libnccl = Absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so");
    options_.grace = absl::Seconds(20);
    controls_ = testing::TempDir() + "/controls";
    setenv("STAND_IN_NCCL", controls_.c_str(), 1);
  }
  ~WorkerProcessTest() override { std::filesystem::remove(controls_); }

  void Set(const std::string& setting) { std::ofstream(controls_, std::ios::app) << setting << "\n"; }
  // The worker is a shell that does this. Its socket is descriptor 3.
  void UseScript(const std::string& commands) {
    options_.program = testing::TempDir() + "/worker-" + RandomToken(6);
    std::ofstream(options_.program) << "#!/bin/sh\n" << commands << "\n";
    std::filesystem::permissions(options_.program, std::filesystem::perms::owner_all);
  }
  // Each worker says that it is on another machine, so that all may use one device.
  std::unique_ptr<WorkerProcess> Start() {
    setenv("NCCL_HOSTID", std::to_string(++started_).c_str(), 1);
    auto worker = WorkerProcess::Start(options_);
    EXPECT_TRUE(worker.ok()) << worker.status();
    return *std::move(worker);
  }
  static absl::Status Join(WorkerProcess& worker, uint32_t rank, uint32_t ranks, const std::string& id) {
    worker::Join join;
    join.set_rank(rank);
    join.set_ranks(ranks);
    join.set_unique_id(id);
    return worker.Join(join, kLimit).status();
  }
  static worker::Step StepOf(uint64_t number, uint32_t peer) {
    worker::Step step;
    step.set_number(number);
    for (const bool send : {true, false}) {
      worker::Transfer& transfer = *step.add_transfers();
      transfer.set_peer(peer);
      transfer.set_send(send);
      transfer.set_memory(send ? 1 : 2);
      transfer.set_bytes(kBytes);
    }
    return step;
  }
  static absl::Status DoStep(WorkerProcess& worker, const worker::Step& step, absl::Duration timeout) {
    const absl::Status begun = worker.BeginStep(step);
    return begun.ok() ? worker.AwaitStep(step.number(), timeout) : begun;
  }
  struct Pair {
    std::unique_ptr<WorkerProcess> worker[2];
    File out[2], in[2];
  };
  // Two workers in one group, each with memory 1 to send and memory 2 to receive.
  void MakePair(Pair& pair) {
    for (auto& worker : pair.worker) worker = Start();
    const auto id = pair.worker[0]->MakeUniqueId(kLimit);
    ASSERT_TRUE(id.ok()) << id.status();
    absl::Status other;
    std::thread joining([&] { other = Join(*pair.worker[1], 1, 2, *id); });
    const absl::Status first = Join(*pair.worker[0], 0, 2, *id);
    joining.join();
    ASSERT_TRUE(first.ok() && other.ok()) << first << other;
    for (int i = 0; i < 2; ++i) {
      std::memset(pair.out[i].data, 'a' + i, kBytes);
      ASSERT_TRUE(pair.worker[i]->Map(Memory(1, kBytes, false), pair.out[i].fd.get(), kLimit).ok());
      ASSERT_TRUE(pair.worker[i]->Map(Memory(2, kBytes, true), pair.in[i].fd.get(), kLimit).ok());
    }
  }

  WorkerProcessOptions options_;
  std::string controls_;
  int started_ = 0;
};

TEST_F(WorkerProcessTest, Describe_StandIns_SaysTheirVersions) {
  const auto described = Start()->Describe(kLimit);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->nccl_version(), 22809);
  EXPECT_EQ(described->devices(), 2);
  EXPECT_TRUE(described->stand_in());
}

TEST_F(WorkerProcessTest, Describe_NoNccl_SaysWhichLibraryIsMissing) {
  options_.libnccl = "/nowhere/libnccl.so.2";
  const auto described = Start()->Describe(kLimit);
  EXPECT_TRUE(HasReason(described.status(), Reason::kTransportFailed));
  EXPECT_NE(described.status().message().find("/nowhere/libnccl.so.2"), std::string::npos) << described.status();
}

TEST_F(WorkerProcessTest, Start_NoSuchProgram_SaysWhichOne) {
  options_.program = "/nowhere/cairn-gpu-worker";
  const auto worker = WorkerProcess::Start(options_);
  EXPECT_NE(worker.status().message().find("/nowhere/cairn-gpu-worker"), std::string::npos) << worker.status();
}

TEST_F(WorkerProcessTest, Step_TwoWorkers_ExchangeMemoryByDescriptor) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(MakePair(pair));
  absl::Status other;
  for (const uint64_t number : {1, 2}) {
    std::thread stepping([&] { other = DoStep(*pair.worker[1], StepOf(number, 0), kLimit); });
    const absl::Status first = DoStep(*pair.worker[0], StepOf(number, 1), kLimit);
    stepping.join();
    ASSERT_TRUE(first.ok() && other.ok()) << first << other;
    EXPECT_EQ(std::memcmp(pair.in[0].data, pair.out[1].data, kBytes), 0);
    EXPECT_EQ(std::memcmp(pair.in[1].data, pair.out[0].data, kBytes), 0);
    std::memset(pair.out[0].data, 'x', kBytes);
  }
  EXPECT_TRUE(pair.worker[0]->Unmap(1, kLimit).ok());
}

TEST_F(WorkerProcessTest, Step_Broadcasts_BringsTheBytesToTheOthers) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(MakePair(pair));
  // Each of them broadcasts, and worker 1 sends something besides.
  const auto step = [](uint32_t rank) {
    worker::Step made;
    made.set_number(1);
    for (const uint32_t root : {0, 1}) {
      worker::Transfer& transfer = *made.add_transfers();
      transfer.set_peer(root);
      transfer.set_send(root == rank);
      transfer.set_broadcast(true);
      transfer.set_memory(root == rank ? 1 : 2);
      transfer.set_bytes(kBytes / 2);
    }
    worker::Transfer& sent = *made.add_transfers();
    sent.set_peer(1 - rank);
    sent.set_send(rank == 1);
    sent.set_memory(rank == 1 ? 1 : 2);
    sent.set_offset(kBytes / 2);
    sent.set_bytes(kBytes / 2);
    return made;
  };
  absl::Status other;
  std::thread stepping([&] { other = DoStep(*pair.worker[1], step(1), kLimit); });
  const absl::Status first = DoStep(*pair.worker[0], step(0), kLimit);
  stepping.join();
  ASSERT_TRUE(first.ok() && other.ok()) << first << other;
  EXPECT_EQ(std::memcmp(pair.in[0].data, pair.out[1].data, kBytes), 0);
  EXPECT_EQ(std::memcmp(pair.in[1].data, pair.out[0].data, kBytes / 2), 0);
}

TEST_F(WorkerProcessTest, Join_OtherVersions_IsRefusedOnBoth) {
  auto first = Start();
  const auto id = first->MakeUniqueId(kLimit);
  const std::string controls = controls_ + "-old";
  std::ofstream(controls) << "version 22707\n";
  setenv("STAND_IN_NCCL", controls.c_str(), 1);
  auto second = Start();
  absl::Status other;
  std::thread joining([&] { other = Join(*second, 1, 2, *id); });
  const absl::Status joined = Join(*first, 0, 2, *id);
  joining.join();
  for (const absl::Status& status : {joined, other}) {
    EXPECT_NE(status.message().find("Mismatched NCCL version"), std::string::npos) << status;
  }
}

TEST_F(WorkerProcessTest, Join_OneDeviceTwice_IsRefused) {
  auto first = Start();
  const auto id = first->MakeUniqueId(kLimit);
  --started_;
  auto second = Start();
  absl::Status other;
  std::thread joining([&] { other = Join(*second, 1, 2, *id); });
  const absl::Status joined = Join(*first, 0, 2, *id);
  joining.join();
  EXPECT_NE(joined.message().find("Duplicate GPU"), std::string::npos) << joined;
}

TEST_F(WorkerProcessTest, Step_PeerIsKilled_FailsWithoutTheTimeout) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(MakePair(pair));
  kill(pair.worker[1]->pid(), SIGKILL);
  const absl::Status stepped = DoStep(*pair.worker[0], StepOf(1, 1), kLimit);
  EXPECT_NE(stepped.message().find("ncclRemoteError"), std::string::npos) << stepped;
  const absl::Status dead = DoStep(*pair.worker[1], StepOf(1, 0), kLimit);
  EXPECT_NE(dead.message().find("was ended by signal 9"), std::string::npos) << dead;
}

TEST_F(WorkerProcessTest, Step_OneWorkerHangs_IsToldFromTheOneThatWaits) {
  options_.grace = absl::Milliseconds(100);
  Set("group_end_hangs.1 1");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(MakePair(pair));
  absl::Status hung;
  std::thread stepping([&] { hung = DoStep(*pair.worker[1], StepOf(1, 0), absl::Milliseconds(100)); });
  const absl::Status waited = DoStep(*pair.worker[0], StepOf(1, 1), absl::Seconds(5));
  stepping.join();
  EXPECT_TRUE(HasReason(waited, Reason::kTimedOut)) << waited;
  EXPECT_TRUE(HasReason(hung, Reason::kTransportFailed)) << hung;
  EXPECT_NE(hung.message().find("does not answer any more"), std::string::npos) << hung;
}

TEST_F(WorkerProcessTest, Cancel_WhileAStepHangs_EndsTheCall) {
  Pair pair;
  Set("group_end_hangs 1");
  ASSERT_NO_FATAL_FAILURE(MakePair(pair));
  absl::Status stepped;
  std::thread stepping([&] { stepped = DoStep(*pair.worker[0], StepOf(1, 1), kLimit); });
  pair.worker[0]->Cancel();
  stepping.join();
  EXPECT_TRUE(HasReason(stepped, Reason::kTransportFailed)) << stepped;
}

TEST_F(WorkerProcessTest, End_AbortHangs_KillsTheWorkerAfterItsGrace) {
  options_.grace = absl::Milliseconds(100);
  Set("abort_hangs 1");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(MakePair(pair));
  const pid_t pid = pair.worker[0]->pid();
  pair.worker[0].reset();
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(WorkerProcessTest, Join_OneWorkerIsStopped_IsToldFromTheOneThatWaits) {
  options_.grace = absl::Milliseconds(100);
  const auto first = Start(), second = Start();
  const auto id = first->MakeUniqueId(kLimit);
  ASSERT_TRUE(id.ok()) << id.status();
  kill(second->pid(), SIGSTOP);
  worker::Join join;
  join.set_ranks(2);
  join.set_unique_id(*id);
  const absl::Status waited = first->Join(join, absl::Seconds(2)).status();
  EXPECT_TRUE(HasReason(waited, Reason::kTimedOut)) << waited;
  EXPECT_EQ(waited.message(), "NCCL has waited for the other ranks for 2s");
  join.set_rank(1);
  const absl::Status stopped = second->Join(join, absl::Milliseconds(100)).status();
  EXPECT_TRUE(HasReason(stopped, Reason::kTransportFailed)) << stopped;
  EXPECT_NE(stopped.message().find("does not answer any more"), std::string::npos) << stopped;
}

TEST_F(WorkerProcessTest, BeginStep_TheWorkerDoesNotGetIt_SaysSo) {
  UseScript("exec sleep 100");
  options_.grace = absl::ZeroDuration();
  const auto worker = Start();
  absl::Status begun;
  for (uint64_t number = 1; begun.ok() && number < 10'000; ++number) begun = worker->BeginStep(StepOf(number, 1));
  EXPECT_TRUE(HasReason(begun, Reason::kTransportFailed)) << begun;
}

TEST_F(WorkerProcessTest, AwaitStep_AStepIsLeftOut_Fails) {
  worker::WorkerEvent event;
  event.mutable_step_done()->set_number(2);
  std::string octal;
  for (const unsigned char byte : event.SerializeAsString()) absl::StrAppendFormat(&octal, "\\%03o", byte);
  UseScript(absl::StrCat("printf '", octal, "' >&3; exec sleep 100"));
  options_.grace = absl::ZeroDuration();
  const auto worker = Start();
  const absl::Status stepped = DoStep(*worker, StepOf(1, 1), kLimit);
  EXPECT_TRUE(HasReason(stepped, Reason::kTransportFailed)) << stepped;
  EXPECT_NE(stepped.message().find("not done the steps in their order"), std::string::npos) << stepped;
}

TEST_F(WorkerProcessTest, Step_OutsideOfItsMemory_IsRefused) {
  struct Fault {
    const char* what;
    void (*make)(worker::Transfer&);
  };
  static constexpr Fault kFaults[] = {
      {"peer", [](worker::Transfer& transfer) { transfer.set_peer(2); }},
      {"memory", [](worker::Transfer& transfer) { transfer.set_memory(9); }},
      {"end", [](worker::Transfer& transfer) { transfer.set_offset(1); }},
      {"overflow", [](worker::Transfer& transfer) { transfer.set_offset(~uint64_t{0}); }},
      {"receives into what is read-only", [](worker::Transfer& transfer) { transfer.set_send(false); }},
      {"nothing", [](worker::Transfer& transfer) { transfer.set_bytes(0); }},
  };
  for (const Fault& fault : kFaults) {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(MakePair(pair));
    worker::Step step = StepOf(1, 1);
    fault.make(*step.mutable_transfers(0));
    const absl::Status stepped = DoStep(*pair.worker[0], step, kLimit);
    EXPECT_NE(stepped.message().find("outside of the group or of its memory"), std::string::npos)
        << fault.what << ": " << stepped;
  }
}

TEST_F(WorkerProcessTest, Map_MoreThanTheFileHas_IsRefused) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(MakePair(pair));
  const File file;
  const absl::Status mapped = pair.worker[0]->Map(Memory(3, 2 * kBytes, false), file.fd.get(), kLimit);
  EXPECT_NE(mapped.message().find("larger than its file"), std::string::npos) << mapped;
}

}  // namespace
}  // namespace cairn
