#include "coordinator/job/testing/protocol_invariants.h"

#include <gtest/gtest.h>

#include <memory>

namespace cairn {
namespace {

constexpr absl::Duration kLease = absl::Seconds(4);
const absl::Time kStart = absl::UnixEpoch();

v1::SynchronizeAgentRequest Report(uint64_t incarnation, uint64_t sequence, int64_t step) {
  v1::SynchronizeAgentRequest report;
  report.mutable_agent()->set_incarnation(incarnation);
  report.set_sequence(sequence);
  report.mutable_state()->add_saves()->set_step(step);
  return report;
}

v1::SynchronizeAgentResponse Orders(int64_t step) {
  v1::SynchronizeAgentResponse orders;
  orders.add_saves()->set_step(step);
  return orders;
}

LogEvent State(int64_t step, const std::string& state) {
  return {LogLevel::kInfo, "save_state", {{"step", step}, {"state", state}}};
}

std::vector<SimulatedAgent> Writer(int64_t step, uint32_t attempt) {
  std::vector<SimulatedAgent> agents(1);
  agents[0].incarnation = 7;
  agents[0].BeginSave(step, false, kStart);
  agents[0].calls[step].state.set_attempt(attempt);
  agents[0].calls[step].state.set_phase(v1::Phase::STAGED);
  return agents;
}

CoreAction Manifest(int64_t step) {
  PutOutcome put{step, 1};
  put.manifest = std::make_shared<std::string>("m");
  return put;
}

TEST(ProtocolInvariantsTest, AfterReport_OfAnotherProcess_IsViolated) {
  ProtocolInvariants invariants(kLease, kStart);
  invariants.Registered(0, 7);
  EXPECT_EQ(invariants.AfterReport(Report(7, 1, 5), Orders(5), kStart), "");
  EXPECT_NE(invariants.AfterReport(Report(8, 2, 5), Orders(5), kStart), "");
}

TEST(ProtocolInvariantsTest, AfterReport_OvertakenOneIsAnswered_IsViolated) {
  ProtocolInvariants invariants(kLease, kStart);
  invariants.Registered(0, 7);
  EXPECT_EQ(invariants.AfterReport(Report(7, 2, 6), Orders(6), kStart), "");
  EXPECT_EQ(invariants.AfterReport(Report(7, 1, 5), Orders(6), kStart), "");
  EXPECT_NE(invariants.AfterReport(Report(7, 1, 5), Orders(5), kStart), "");
}

TEST(ProtocolInvariantsTest, Before_FilesGoWhileARankWrites_IsViolated) {
  ProtocolInvariants invariants(kLease, kStart);
  invariants.Registered(0, 7);
  EXPECT_EQ(invariants.AfterReport(Report(7, 1, 5), Orders(5), kStart), "");
  invariants.Logged(State(5, "COLLECTING"), kStart);
  invariants.Logged(State(5, "ABORTING"), kStart);
  const CoreAction remove = RemoveFiles{5, 1};
  EXPECT_NE(invariants.Before(remove, Writer(5, 1), kStart + absl::Seconds(1)), "");
  EXPECT_EQ(invariants.Before(remove, Writer(5, 2), kStart + absl::Seconds(1)), "");
  EXPECT_EQ(invariants.Before(remove, Writer(5, 1), kStart + kLease), "");
}

TEST(ProtocolInvariantsTest, Before_LaterStepIsCommittedFirst_IsViolated) {
  ProtocolInvariants invariants(kLease, kStart);
  invariants.Logged(State(5, "COLLECTING"), kStart);
  invariants.Logged(State(6, "COLLECTING"), kStart);
  EXPECT_EQ(invariants.Before(Manifest(5), {}, kStart), "");
  EXPECT_NE(invariants.Before(Manifest(6), {}, kStart), "");
  invariants.Logged(State(5, "COMMITTED"), kStart);
  EXPECT_EQ(invariants.Before(Manifest(6), {}, kStart), "");
}

TEST(ProtocolInvariantsTest, Before_AttemptIsAbandonedTooEarly_IsViolated) {
  const ProtocolInvariants invariants(kLease, kStart);
  PutOutcome put{5, 1};
  put.error = absl::AbortedError("left unfinished, and no rank came back with it");
  const CoreAction action = put;
  EXPECT_NE(invariants.Before(action, Writer(5, 1), kStart + kLease), "");
  EXPECT_EQ(invariants.Before(action, Writer(5, 1), kStart + 2 * kLease), "");
  EXPECT_EQ(invariants.Before(action, Writer(6, 1), kStart), "");
}

TEST(ProtocolInvariantsTest, Before_ManifestHasAnotherRanksResult_IsViolated) {
  const ProtocolInvariants invariants(kLease, kStart);
  MakeManifest make{5, 1};
  make.result.resize(2);
  for (v1::WriteResult& result : make.result) result.add_files()->set_header_crc32c(1);
  EXPECT_NE(invariants.Before(make, {}, kStart), "");
  make.result[1].mutable_files(0)->set_header_crc32c(2);
  EXPECT_EQ(invariants.Before(make, {}, kStart), "");
}

}  // namespace
}  // namespace cairn
