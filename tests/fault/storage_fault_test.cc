// Tests the real binaries on storage that misbehaves: locks that keep nobody out, a coordinator that ends between a
// outcome's name and its fsync, fsyncs that fail, file systems that refuse direct writes late, roots that are not the
// same. storage_faults.cc makes the faults.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/testing/fake_trainer.h"
#include "agent/testing/layouts.h"
#include "common/format/checkpoint_path.h"
#include "common/format/outcome.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "store/posix/posix_storage.h"
#include "store/read/verify.h"
#include "tests/testing/fake_agent.h"
#include "tests/testing/process.h"

namespace cairn::testing {
namespace {

// A running binary with the address at which it listens.
struct Service {
  Process process;
  std::string address;
  std::string log;
};
using Agents = std::vector<std::unique_ptr<FakeAgent>>;

class StorageFaultTest : public ::testing::Test {
 protected:
  StorageFaultTest() : root_(Path("root")), trace_(Path("trace")) {
    std::filesystem::create_directory(root_);
    EXPECT_NE(mkdtemp(sockets_.data()), nullptr);
    setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);  // the copies of tokens go there
  }
  ~StorageFaultTest() override {
    std::filesystem::remove_all(sockets_);
    for (const std::string& log : logs_) {
      if (HasFailure()) std::fprintf(stderr, "--- %s\n%s\n", log.c_str(), ReadWhole(log).c_str());
    }
  }

  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }

  Service Start(const std::string& binary, const std::vector<std::string>& flags,
                const std::vector<std::string>& faults) {
    Service service;
    const std::string file = Path(absl::StrCat("address-", ++starts_));
    service.log = Path(absl::StrCat("log-", starts_));
    logs_.push_back(service.log);
    std::vector<std::string> command = {"/usr/bin/env", "LD_PRELOAD=tests/fault/libstorage_faults.so"};
    command.insert(command.end(), faults.begin(), faults.end());
    for (const std::string& word : {binary, std::string("--address-file"), file}) command.push_back(word);
    command.insert(command.end(), flags.begin(), flags.end());
    service.process = Process(command, service.log);
    for (int i = 0; i < 3000 && !std::filesystem::exists(file); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    service.address = ReadWhole(file);
    while (!service.address.empty() && service.address.back() == '\n') service.address.pop_back();
    EXPECT_FALSE(service.address.empty()) << ReadWhole(service.log);
    return service;
  }
  Service StartCoordinator(const std::vector<std::string>& faults, const std::string& listen = "127.0.0.1:0") {
    return Start("coordinator/cairn-coordinator",
                 {"--root", root_, "--listen", listen, "--phase-timeout=60s", "--lease-ttl=4s", "--bins-per-rank=1"},
                 faults);
  }
  std::vector<std::string> AgentFlags(const Service& coordinator, int rank, int world, const std::string& root) {
    return {"--coordinator",
            coordinator.address,
            "--job",
            "demo",
            "--rank",
            absl::StrCat(rank),
            "--world-size",
            absl::StrCat(world),
            "--root",
            root,
            "--node",
            absl::StrCat("node-", rank),
            "--io-threads=2",
            "--socket-directory",
            absl::StrCat(sockets_, "/", rank),
            "--register-timeout=1s"};
  }

  Agents StartAgents(const Service& coordinator, int count = 3) {
    Agents agents;
    for (int rank = 0; rank < count; ++rank) {
      FakeAgentOptions options;
      options.coordinator = coordinator.address;
      options.root = root_;
      options.rank = rank;
      options.world_size = count;
      agents.push_back(std::make_unique<FakeAgent>(options));
    }
    for (const auto& agent : agents) EXPECT_TRUE(agent->WaitRegistered());
    return agents;
  }

  // Checks every byte of a committed step.
  void ExpectWhole(int64_t step, uint32_t attempt) {
    const auto storage = *PosixStorage::Open(root_, false);
    const auto bytes = storage->Read(OutcomePath("demo", step, attempt), 1 << 20);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto outcome = DecodeOutcome(*bytes);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const auto* manifest = std::get_if<Manifest>(&*outcome);
    ASSERT_NE(manifest, nullptr) << "an abort record";
    const VerifyReport report = VerifyCheckpoint(*storage, *manifest, {});
    EXPECT_GT(report.files, 0u);
    EXPECT_EQ(report.faults_in_all, 0u) << report.faults[0].message;
  }

  // Returns what happened to a directory, in order: "create", and "ok" or "failed" for an fsync.
  std::vector<std::string> TraceOf(const std::string& directory) const {
    std::vector<std::string> events;
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(ReadWhole(trace_), '\n'))) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() < 2 || words[1] != root_ + "/" + directory) continue;
      events.push_back(words.size() > 2 ? words[2] : words[0]);
    }
    return events;
  }
  // Returns true if, behind `begin`, the directory was changed and then synced, so that a name in it is durable.
  static bool Settled(const std::vector<std::string>& events, size_t begin) {
    const auto create = std::find(events.begin() + static_cast<std::ptrdiff_t>(begin), events.end(), "create");
    return std::find(create, events.end(), "ok") != events.end();
  }

  TemporaryDirectory directory_;
  const std::string root_;
  const std::string trace_;
  std::string sockets_ = "/tmp/cairn-test-XXXXXX";  // socket paths must be short
  int starts_ = 0;
  std::vector<std::string> logs_;
};

TEST_F(StorageFaultTest, Save_LockLetsTwoCoordinatorsIn_OneCommitsAndTheOtherNamesTheRoot) {
  // The first coordinator has found no attempt, and stops before it makes the directory.
  const std::string gate = Path("gate");
  Service first = StartCoordinator({"FAULT_FLOCK=1", "FAULT_GATE_MKDIR=0001:" + gate});
  Agents firsts = StartAgents(first);
  for (auto& agent : firsts) agent->Save(5);
  for (int i = 0; i < 3000 && !std::filesystem::exists(gate + ".reached"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(std::filesystem::exists(gate + ".reached"));
  // The second coordinator takes the number and begins to write.
  Service second = StartCoordinator({"FAULT_FLOCK=1"});
  Agents seconds = StartAgents(second);
  seconds[1]->HoldAt(v1::Phase::WRITING);
  for (auto& agent : seconds) agent->Save(5);
  ASSERT_TRUE(seconds[0]->WaitPhase(5, v1::Phase::WRITTEN));
  ASSERT_TRUE(seconds[1]->WaitPhase(5, v1::Phase::WRITING));
  std::ofstream(gate) << "open";
  EXPECT_EQ(first.process.Wait(absl::Seconds(60)), 1) << "it stops serving";
  EXPECT_NE(ReadWhole(first.log).find("error: ROOT_IN_USE"), std::string::npos);
  seconds[1]->Release();
  for (auto& agent : seconds) EXPECT_TRUE(agent->WaitOutcome(5).ok());
  for (auto& agent : firsts) EXPECT_FALSE(agent->WaitOutcome(5, absl::ZeroDuration()).ok());
  ExpectWhole(5, 1);
}

TEST_F(StorageFaultTest, Commit_KilledBetweenNameAndFsync_IsMadeDurableBeforeItIsTold) {
  Service coordinator = StartCoordinator({"FAULT_KILL_AFTER_LINK=.verdict"});
  Agents agents = StartAgents(coordinator);
  for (auto& agent : agents) agent->Save(5);
  ASSERT_EQ(coordinator.process.Wait(absl::Seconds(60)), 128 + SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(root_ + "/" + OutcomePath("demo", 5, 1)));
  coordinator = StartCoordinator({"FAULT_TRACE=" + trace_}, coordinator.address);
  for (auto& agent : agents) EXPECT_TRUE(agent->WaitOutcome(5).ok());
  EXPECT_TRUE(Settled(TraceOf(StepDirectory("demo", 5)), 0)) << ReadWhole(trace_);
}

TEST_F(StorageFaultTest, Commit_OutcomeIsUnreadableOnceAfterARestart_IsToldAsItStands) {
  Service coordinator = StartCoordinator({"FAULT_KILL_AFTER_LINK=.verdict"});
  Agents agents = StartAgents(coordinator);
  for (auto& agent : agents) agent->Save(5);
  ASSERT_EQ(coordinator.process.Wait(absl::Seconds(60)), 128 + SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(root_ + "/" + OutcomePath("demo", 5, 1)));
  coordinator = StartCoordinator({"FAULT_OPEN_ONCE=.verdict"}, coordinator.address);
  for (auto& agent : agents) {
    const auto told = agent->WaitOutcome(5);
    EXPECT_TRUE(told.ok()) << told;
  }
  ExpectWhole(5, 1);
}

TEST_F(StorageFaultTest, Commit_StepIsRemovedMeanwhile_IsRefused) {
  const Service coordinator = StartCoordinator({"FAULT_REMOVE_BEFORE_LINK=.verdict"});
  Agents agents = StartAgents(coordinator);
  for (auto& agent : agents) agent->Save(5);
  for (auto& agent : agents) {
    const auto told = agent->WaitOutcome(5);
    EXPECT_TRUE(HasReason(told, Reason::kFileMissing)) << told;
  }
}

TEST_F(StorageFaultTest, Commit_StepIsRemovedRightAfter_EndsByNameAndHoldsUpNoOther) {
  const Service coordinator = StartCoordinator({"FAULT_REMOVE_AFTER_LINK=.verdict"});
  Agents agents = StartAgents(coordinator);
  for (auto& agent : agents) agent->Save(5);
  for (auto& agent : agents) {
    const auto told = agent->WaitOutcome(5);
    EXPECT_TRUE(HasReason(told, Reason::kRootMismatch)) << told;
  }
  for (auto& agent : agents) agent->Save(6);
  for (auto& agent : agents) EXPECT_TRUE(agent->WaitOutcome(6).ok());
  ExpectWhole(6, 1);
}

TEST_F(StorageFaultTest, Commit_FsyncOfTheOutcomeFails_IsToldAfterAnotherOne) {
  Service coordinator = StartCoordinator({"FAULT_FSYNC_AFTER_LINK=.verdict", "FAULT_TRACE=" + trace_});
  Agents agents = StartAgents(coordinator);
  for (auto& agent : agents) agent->Save(5);
  for (auto& agent : agents) EXPECT_TRUE(agent->WaitOutcome(5).ok());
  const std::vector<std::string> events = TraceOf(StepDirectory("demo", 5));
  const auto failed = std::find(events.begin(), events.end(), "failed");
  ASSERT_NE(failed, events.end()) << ReadWhole(trace_);
  // The kernel reports an error once, so an fsync of a directory that nobody has changed since proves nothing.
  EXPECT_TRUE(Settled(events, static_cast<size_t>(failed - events.begin()))) << ReadWhole(trace_);
  ExpectWhole(5, 1);
}

TEST_F(StorageFaultTest, Start_DiskIsFull_GivesUpTheRoomOfAbortRecords) {
  const std::string room = root_ + "/.cairn/tombstone-room";
  std::filesystem::create_directory(root_ + "/.cairn");
  std::ofstream(room) << std::string(64 << 10, '\0');
  const Service coordinator = StartCoordinator({"FAULT_FULL=" + room});
  EXPECT_FALSE(std::filesystem::exists(room));
  StartAgents(coordinator);
}

TEST_F(StorageFaultTest, Save_DirectWritesAreRefusedLate_Commits) {
  const Service coordinator = StartCoordinator({});
  const Service agent = Start("agent/cairn-agent", AgentFlags(coordinator, 0, 1, root_), {"FAULT_DIRECT_WRITES=1"});
  FakeTrainer trainer(agent.address);
  ASSERT_TRUE(trainer.Attach().ok());
  const RankLayoutPtr layout = MakeLayout({Whole("w", DType::kFloat32, {5 << 20})}, {});  // takes several writes
  const std::vector<std::string> contents = {Pattern("w", layout->items[0].bytes())};
  for (int64_t step = 1; step <= 8; ++step) {
    const auto begun = trainer.BeginSave(*layout, step);
    ASSERT_TRUE(begun.ok()) << begun.status();
    ASSERT_TRUE(trainer.Fill(*begun, contents).ok());
    ASSERT_TRUE(trainer.Commit(*begun, {}).ok());
    const auto checkpoint = trainer.WaitSave(step, begun->save());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->state(), v1::Phase::COMMITTED) << checkpoint->ShortDebugString();
  }
  ExpectWhole(8, 1);
}

TEST_F(StorageFaultTest, Save_CallsAreInterrupted_Commits) {
  // As on a network file system, when a signal comes.
  const Service coordinator = StartCoordinator({"FAULT_INTERRUPTED=1"});
  const Service agent = Start("agent/cairn-agent", AgentFlags(coordinator, 0, 1, root_), {"FAULT_INTERRUPTED=1"});
  FakeTrainer trainer(agent.address);
  ASSERT_TRUE(trainer.Attach().ok());
  const RankLayoutPtr layout = MakeLayout({Whole("w", DType::kFloat32, {1000})}, {});
  for (int64_t step = 1; step <= 4; ++step) {
    const auto begun = trainer.BeginSave(*layout, step);
    ASSERT_TRUE(begun.ok()) << begun.status();
    ASSERT_TRUE(trainer.Fill(*begun, {Pattern("w", layout->items[0].bytes())}).ok());
    ASSERT_TRUE(trainer.Commit(*begun, {}).ok());
    const auto checkpoint = trainer.WaitSave(step, begun->save());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->state(), v1::Phase::COMMITTED) << checkpoint->ShortDebugString();
    EXPECT_EQ(checkpoint->attempt(), 1u);
  }
  ExpectWhole(4, 1);
}

TEST_F(StorageFaultTest, SaveAndLoad_SystemRefusesThreads_FailByNameAndLaterOnesWork) {
  const std::string none = Path("no-threads");
  const Service coordinator = StartCoordinator({absl::StrCat("FAULT_THREADS=", none)});
  const Service agent =
      Start("agent/cairn-agent", AgentFlags(coordinator, 0, 1, root_), {absl::StrCat("FAULT_THREADS=", none)});
  FakeTrainer trainer(agent.address);
  ASSERT_TRUE(trainer.Attach().ok());
  const RankLayoutPtr layout = MakeLayout({Whole("w", DType::kFloat32, {10 << 20})}, {});  // several threads' pages
  const std::vector<std::string> contents = {Pattern("w", layout->items[0].bytes())};
  const auto save = [&](int64_t step) -> absl::Status {
    const auto begun = trainer.BeginSave(*layout, step);
    if (!begun.ok()) return begun.status();
    EXPECT_TRUE(trainer.Fill(*begun, contents).ok());
    if (absl::Status staged = trainer.Commit(*begun, {}); !staged.ok()) return staged;  // it is written meanwhile
    const auto checkpoint = trainer.WaitSave(step, begun->save());
    if (!checkpoint.ok()) return checkpoint.status();
    EXPECT_EQ(checkpoint->state(), checkpoint->has_error() ? v1::Phase::ABORTED : v1::Phase::COMMITTED);
    return StatusFromProto(checkpoint->error());
  };
  const auto load = [&](uint64_t number) -> absl::Status {
    const absl::Status begun = trainer.BeginLoad(*layout, number).status();
    std::vector<std::string> targets = {std::string(contents[0].size(), ' ')};
    const absl::Status received = begun.ok() ? trainer.Receive(number, targets) : begun;
    trainer.EndLoad(number).IgnoreError();
    EXPECT_TRUE(!received.ok() || targets[0] == contents[0]);
    return received;
  };
  ASSERT_EQ(save(1), absl::OkStatus());
  std::ofstream(none).flush();
  const absl::Status refused = save(2);
  EXPECT_TRUE(HasReason(refused, Reason::kMemoryLimit)) << refused;
  EXPECT_NE(refused.message().find("to write step 2"), std::string::npos) << refused;
  EXPECT_EQ(MetadataOf(refused)["rank"], "0") << refused;
  const absl::Status unread = load(1);
  EXPECT_TRUE(HasReason(unread, Reason::kMemoryLimit)) << unread;
  std::filesystem::remove(none);
  EXPECT_EQ(save(3), absl::OkStatus());
  EXPECT_EQ(load(2), absl::OkStatus());
  ExpectWhole(3, 1);
}

TEST_F(StorageFaultTest, Start_SystemRefusesThreads_EndsWithAnError) {
  const std::string none = Path("no-threads");
  const Service coordinator = StartCoordinator({});
  std::ofstream(none).flush();
  std::vector<std::string> agent = {"/usr/bin/env", "LD_PRELOAD=tests/fault/libstorage_faults.so",
                                    absl::StrCat("FAULT_THREADS=", none)};
  std::vector<std::string> other = agent;
  agent.push_back("agent/cairn-agent");
  for (const std::string& flag : AgentFlags(coordinator, 0, 1, root_)) agent.push_back(flag);
  for (const std::string& word : {std::string("coordinator/cairn-coordinator"), std::string("--root"), Path("other")}) {
    other.push_back(word);
  }
  for (const auto& command : {agent, other}) {
    const std::string log = Path("log-without-threads");
    std::filesystem::remove(log);
    Process process(command, log);
    EXPECT_EQ(process.Wait(absl::Seconds(60)), 1) << ReadWhole(log);
    EXPECT_NE(ReadWhole(log).find("error: MEMORY_LIMIT"), std::string::npos) << ReadWhole(log);
  }
}

TEST_F(StorageFaultTest, RegisterAgent_AgentHasAnotherRoot_IsRefusedByName) {
  const Service coordinator = StartCoordinator({});
  const std::string other = Path("other");
  std::filesystem::create_directory(other);  // as if a file system were not mounted
  const Service good = Start("agent/cairn-agent", AgentFlags(coordinator, 0, 2, root_), {});
  Service bad = Start("agent/cairn-agent", AgentFlags(coordinator, 1, 2, other), {});
  EXPECT_EQ(bad.process.Wait(absl::Seconds(60)), 1);
  const std::string log = ReadWhole(bad.log);
  EXPECT_NE(log.find("error: ROOT_MISMATCH"), std::string::npos) << log;
  for (const std::string& part : {std::string("rank 1 on node-1"), root_, other}) {
    EXPECT_NE(log.find(part), std::string::npos) << part << "\n" << log;
  }
  EXPECT_NE(ReadWhole(good.log).find("registered"), std::string::npos) << ReadWhole(good.log);
  // The storage of another coordinator has a proof too.
  std::filesystem::create_directory(other + "/.cairn");
  std::ofstream(other + "/.cairn/root-proof") << "0123456789abcdef0123456789abcdef";
  Service again = Start("agent/cairn-agent", AgentFlags(coordinator, 1, 2, other), {});
  EXPECT_EQ(again.process.Wait(absl::Seconds(60)), 1);
  EXPECT_NE(ReadWhole(again.log).find("error: ROOT_MISMATCH"), std::string::npos) << ReadWhole(again.log);
}

}  // namespace
}  // namespace cairn::testing
