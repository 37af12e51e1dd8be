// Tests the worker with valid requests, and with requests that it must refuse. It runs in a thread, with the stand-ins
// for CUDA's driver and NCCL.
#include "gpu/share/worker.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {
namespace {

using worker::WorkerEvent;
using worker::WorkerRequest;

constexpr uint64_t kBytes = 8192;
constexpr absl::Duration kLimit = absl::Seconds(30);

// A worker, and the agent's end of its socket.
class RunningWorker {
 public:
  RunningWorker() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    agent_ = std::make_unique<WorkerSocket>(UniqueFd(ends[0]));
    const auto absolute = [](const char* path) { return std::filesystem::absolute(path).string(); };
    WorkerLibraries libraries{absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so"),
                              absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so")};
    thread_ = std::thread([socket = UniqueFd(ends[1]), libraries = std::move(libraries)]() mutable {
      Worker(std::move(socket), std::move(libraries)).Run();
    });
  }
  ~RunningWorker() { End(); }

  // Idempotent.
  void End() {
    agent_->Close();
    if (thread_.joinable()) thread_.join();
  }

  void Send(const WorkerRequest& request, int descriptor = -1) { EXPECT_TRUE(agent_->Send(request, descriptor).ok()); }
  // The next event; nothing if the worker has ended, or hangs.
  std::optional<WorkerEvent> Next() {
    WorkerEvent event;
    UniqueFd descriptor;
    const auto came = agent_->Await(kLimit);
    EXPECT_TRUE(came.ok() && *came) << "the worker hangs";
    if (!came.ok() || !*came) return std::nullopt;
    const auto received = agent_->Receive(event, descriptor);
    return received.ok() && *received ? std::optional(event) : std::nullopt;
  }
  WorkerEvent Ask(const WorkerRequest& request, int descriptor = -1) {
    Send(request, descriptor);
    return Next().value_or(WorkerEvent());
  }

 private:
  std::unique_ptr<WorkerSocket> agent_;
  std::thread thread_;
};

WorkerRequest MakeIdRequest() {
  WorkerRequest request;
  request.mutable_make_id();
  return request;
}
WorkerRequest JoinRequest(const std::string& id, uint32_t rank = 0, uint32_t ranks = 1) {
  WorkerRequest request;
  request.mutable_join()->set_unique_id(id);
  request.mutable_join()->set_rank(rank);
  request.mutable_join()->set_ranks(ranks);
  return request;
}
WorkerRequest MapRequest(uint64_t memory, uint64_t bytes = kBytes, bool writable = false) {
  WorkerRequest request;
  request.mutable_map()->set_memory(memory);
  request.mutable_map()->set_bytes(bytes);
  request.mutable_map()->set_writable(writable);
  return request;
}
WorkerRequest UnmapRequest(uint64_t memory) {
  WorkerRequest request;
  request.mutable_unmap()->set_memory(memory);
  return request;
}
WorkerRequest StepRequest(uint64_t number, const std::vector<worker::Transfer>& transfers = {}) {
  WorkerRequest request;
  request.mutable_step()->set_number(number);
  for (const worker::Transfer& transfer : transfers) *request.mutable_step()->add_transfers() = transfer;
  return request;
}
worker::Transfer TransferOf(uint64_t memory, uint64_t offset, uint64_t bytes, bool send = true, uint32_t peer = 0) {
  worker::Transfer transfer;
  transfer.set_memory(memory);
  transfer.set_offset(offset);
  transfer.set_bytes(bytes);
  transfer.set_send(send);
  transfer.set_peer(peer);
  return transfer;
}

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() : file_(memfd_create("worker-test", MFD_CLOEXEC)) { EXPECT_EQ(ftruncate(file_.get(), kBytes), 0); }

  // A worker that is alone in its group, with memory 1, which it may only read.
  std::unique_ptr<RunningWorker> Joined() {
    auto worker = std::make_unique<RunningWorker>();
    const WorkerEvent id = worker->Ask(MakeIdRequest());
    EXPECT_TRUE(id.has_made_id()) << id.ShortDebugString();
    EXPECT_TRUE(worker->Ask(JoinRequest(id.made_id().unique_id())).has_joined());
    EXPECT_TRUE(worker->Ask(MapRequest(1), file_.get()).has_mapped());
    return worker;
  }
  // How often this process has mapped the file.
  static int TimesMapped() {
    std::ifstream maps("/proc/self/maps");
    int times = 0;
    for (std::string line; std::getline(maps, line);) times += line.find("worker-test") == line.npos ? 0 : 1;
    return times;
  }
  // The worker says that it will not do this, and ends.
  void ExpectRefused(RunningWorker& worker, const WorkerRequest& request, int descriptor = -1) {
    const WorkerEvent event = worker.Ask(request, descriptor);
    ASSERT_TRUE(event.has_failed()) << request.ShortDebugString() << " -> " << event.ShortDebugString();
    EXPECT_FALSE(worker.Next().has_value()) << request.ShortDebugString();
  }
  void ExpectRefused(const WorkerRequest& request, int descriptor = -1) {
    RunningWorker fresh;
    ExpectRefused(fresh, request, descriptor);
  }
  void ExpectRefusedInGroup(const WorkerRequest& request, int descriptor = -1) {
    ExpectRefused(*Joined(), request, descriptor);
  }

  UniqueFd file_;
};

TEST_F(WorkerTest, Requests_InTheirOrder_AreAnswered) {
  const auto worker = Joined();
  EXPECT_EQ(worker->Ask(StepRequest(1)).step_done().number(), 1);
  EXPECT_EQ(worker->Ask(StepRequest(2)).step_done().number(), 2);
  EXPECT_EQ(worker->Ask(UnmapRequest(1)).unmapped().memory(), 1);
  EXPECT_TRUE(worker->Ask(MapRequest(1), file_.get()).has_mapped()) << "the number is free again";
}

TEST_F(WorkerTest, Step_TheFirstIsNotDone_WaitsBehindIt) {
  const auto worker = Joined();
  const UniqueFd other(memfd_create("worker-test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(other.get(), kBytes), 0);
  ASSERT_TRUE(worker->Ask(MapRequest(2, kBytes, true), other.get()).has_mapped());
  const char letters[] = "ab";
  ASSERT_EQ(pwrite(file_.get(), letters, 2, 0), 2);
  for (int round = 0; round < 20; ++round) {
    // Both write the same byte, so the last one must be the last.
    const auto number = static_cast<uint64_t>(2 * round);
    for (const uint64_t step : {1, 2}) {
      worker->Send(StepRequest(number + step, {TransferOf(1, step - 1, 1), TransferOf(2, 0, 1, false)}));
    }
    for (const uint64_t step : {1, 2}) EXPECT_EQ(worker->Next()->step_done().number(), number + step);
    char last = 0;
    ASSERT_EQ(pread(other.get(), &last, 1, 0), 1);
    EXPECT_EQ(last, 'b');
  }
}

TEST_F(WorkerTest, Join_AGroupThatIsNone_IsRefused) {
  const std::string id(128, 'i');
  ExpectRefused(JoinRequest(id, 0, 0));
  ExpectRefused(JoinRequest(id, 2, 2));
  ExpectRefused(JoinRequest(id, 0, 1'000'000));
  ExpectRefused(JoinRequest("short", 0, 1));
  ExpectRefusedInGroup(JoinRequest(id));
}

TEST_F(WorkerTest, Requests_BeforeTheGroup_AreRefused) {
  ExpectRefused(MapRequest(1), file_.get());
  ExpectRefused(StepRequest(1));
  ExpectRefused(UnmapRequest(1));
}

TEST_F(WorkerTest, Request_Unknown_EndsTheWorker) {
  const int field = 15;  // of a later version, perhaps
  WorkerRequest request;
  ASSERT_TRUE(request.ParseFromString(std::string{static_cast<char>(field << 3 | 2), '\0'}));
  ExpectRefused(request);
}

TEST_F(WorkerTest, Map_WhatIsNotThere_IsRefused) {
  ExpectRefusedInGroup(MapRequest(2));  // no descriptor
  ExpectRefusedInGroup(MapRequest(2, 0), file_.get());
  ExpectRefusedInGroup(MapRequest(2, kBytes + 1), file_.get());
  ExpectRefusedInGroup(MapRequest(2, UINT64_MAX), file_.get());
  for (const uint64_t offset : {uint64_t{4096}, uint64_t{kBytes}, UINT64_MAX}) {
    WorkerRequest part = MapRequest(2, kBytes);
    part.mutable_map()->set_offset(offset);
    ExpectRefusedInGroup(part, file_.get());
  }
  WorkerRequest crooked = MapRequest(2, 64);
  crooked.mutable_map()->set_offset(100);
  ExpectRefusedInGroup(crooked, file_.get());
  ExpectRefusedInGroup(MapRequest(1), file_.get());  // the number is taken
}

TEST_F(WorkerTest, Map_MoreThanItHolds_IsRefused) {
  const auto worker = Joined();
  for (uint64_t memory = 2; memory <= 64; ++memory) {
    ASSERT_TRUE(worker->Ask(MapRequest(memory), file_.get()).has_mapped()) << memory;
  }
  ExpectRefused(*worker, MapRequest(65), file_.get());
}

TEST_F(WorkerTest, Step_TheOneBeforeItDidNotCome_IsRefused) {
  for (const uint64_t number : {0, 1, 3}) {
    const auto worker = Joined();
    EXPECT_EQ(worker->Ask(StepRequest(1)).step_done().number(), 1);
    ExpectRefused(*worker, StepRequest(number));
  }
}

TEST_F(WorkerTest, Step_OutsideOfTheMemoryOrTheGroup_IsRefused) {
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(2, 0, 1)}));
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(1, 0, 0)}));
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(1, 0, kBytes + 1)}));
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(1, kBytes, 1)}));
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(1, UINT64_MAX, 2)}));
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(1, 0, kBytes, /*send=*/true, /*peer=*/1)}));
  // One wrong transfer is enough, and nothing of the step is done.
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(1, 0, 1), TransferOf(1, 0, kBytes + 1)}));
}

TEST_F(WorkerTest, Step_BroadcastsInTheNameOfAnother_IsRefused) {
  worker::Transfer received = TransferOf(1, 0, kBytes, /*send=*/false);  // by itself
  received.set_broadcast(true);
  ExpectRefusedInGroup(StepRequest(1, {received}));
}

TEST_F(WorkerTest, Step_ReceivesIntoMemoryThatMayOnlyBeRead_IsRefused) {
  ExpectRefusedInGroup(StepRequest(1, {TransferOf(1, 0, kBytes, /*send=*/false)}));
}

TEST_F(WorkerTest, Step_ANumberAgain_IsRefused) {
  const auto worker = Joined();
  ASSERT_TRUE(worker->Ask(StepRequest(1)).has_step_done());
  ExpectRefused(*worker, StepRequest(3));
}

// The device may go on writing for a moment, and must not find other memory there.
TEST_F(WorkerTest, Run_EndsInTheMiddleOfAStep_MemoryStaysMapped) {
  EXPECT_EQ(TimesMapped(), 0);
  {
    const auto worker = Joined();
    EXPECT_TRUE(worker->Ask(StepRequest(1, {TransferOf(1, 0, 64), TransferOf(2, 0, 64, false)})).has_failed());
  }
  EXPECT_EQ(TimesMapped(), 0) << "no step was under way";
  const auto worker = Joined();
  EXPECT_TRUE(worker->Ask(MapRequest(2, kBytes, true), file_.get()).has_mapped());
  const int mapped = TimesMapped();  // the stand-in for CUDA's driver maps registered memory too
  EXPECT_GE(mapped, 2);
  worker->Send(StepRequest(1, {TransferOf(2, 0, kBytes, false)}));  // nobody sends
  worker->Send(StepRequest(2));
  ExpectRefused(*worker, StepRequest(3));
  worker->End();
  EXPECT_EQ(TimesMapped(), mapped);
}

TEST_F(WorkerTest, Request_WhileTheGroupIsNotReady_IsRefusedAndEndsTheWait) {
  RunningWorker worker;
  const WorkerEvent id = worker.Ask(MakeIdRequest());
  worker.Send(JoinRequest(id.made_id().unique_id(), 0, 2));  // the other rank never comes
  ExpectRefused(worker, MakeIdRequest());
}

TEST_F(WorkerTest, Run_TheAgentIsGone_Ends) {
  RunningWorker worker;
  worker.Send(MakeIdRequest());
}

}  // namespace
}  // namespace cairn
