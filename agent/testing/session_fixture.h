// Sessions that have registered, as tests of a session and of its parts begin with them.
#ifndef CAIRN_AGENT_TESTING_SESSION_FIXTURE_H_
#define CAIRN_AGENT_TESTING_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "agent/session/session.h"
#include "agent/testing/layouts.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace testing {

// Returns what a coordinator of epoch 5 says of these ranks. The agent of rank r has the incarnation 100 + r.
inline v1::GetTransferPeersResponse PeersOf(const std::vector<uint32_t>& ranks, uint64_t membership_epoch = 0) {
  v1::GetTransferPeersResponse response;
  response.set_coordinator_epoch(5);
  response.set_membership_epoch(membership_epoch);
  for (const uint32_t rank : ranks) {
    v1::TransferPeer& peer = *response.add_peers();
    peer.set_rank(rank);
    peer.set_incarnation(100 + rank);
  }
  return response;
}

}  // namespace testing

// A session of rank 3 of 8 of the job "demo", under the coordinator epoch 5. It knows `layout`.
class SessionFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kTrainer = 77;

  explicit SessionFixture(RankLayoutPtr layout)
      : layout_(std::move(layout)), session_({.job = "demo", .rank = 3, .world_size = 8, .incarnation = 9}) {
    v1::RegisterAgentResponse registered;
    registered.set_coordinator_epoch(5);
    EXPECT_TRUE(session_.OnRegistered(registered).ok());
    session_.Attach(kTrainer);
    session_.AddLayout(layout_);
  }

  // Returns what the session would tell the coordinator now.
  v1::AgentState State() { return session_.BuildRequest(std::nullopt).state(); }

  // `timeout` is in seconds.
  absl::StatusOr<v1::BeginSaveResponse> BeginSave(uint64_t trainer, int64_t step, int timeout) {
    v1::BeginSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.mutable_layout()->set_digest(layout_->digest);
    request.mutable_timeout()->set_seconds(timeout);
    return session_.Ask(request, now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  RankLayoutPtr layout_;
  Session session_;
};

// A session that has just begun, and a trainer that has been there for longer.
class SucceedingSession : public SessionFixture {
 protected:
  SucceedingSession() : SessionFixture(testing::MakeLayout({testing::Whole("a", DType::kFloat32, {100})}, {})) {}

  std::vector<v1::SaveState> Saves() {
    const v1::AgentState state = State();
    return {state.saves().begin(), state.saves().end()};
  }
  // Asks for the outcome of a save that the agent before this one knew.
  absl::StatusOr<v1::WaitSaveResponse> Wait(int64_t step, uint32_t attempt, uint64_t trainer = kTrainer,
                                            uint64_t save = 12345) {
    v1::WaitSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.set_save(save);
    request.set_attempt(attempt);
    return session_.Ask(request, now_);
  }
  absl::StatusOr<v1::BeginSaveResponse> Begin(int64_t step, int timeout = 60) {
    return BeginSave(kTrainer, step, timeout);
  }
  // Gives orders that answer the session's state as it is now.
  void Order(const std::vector<v1::SaveOrder>& orders = {}) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    response.set_revision(++revision_);
    for (const v1::SaveOrder& order : orders) *response.add_saves() = order;
    ASSERT_TRUE(session_.OnOrders(response).ok());
  }
  // The order that answers this state of a save.
  static v1::SaveOrder Answer(const v1::SaveState& asked, v1::Phase::Value action) {
    v1::SaveOrder order;
    order.set_step(asked.step());
    order.set_attempt(asked.attempt());
    order.set_call(asked.call());
    order.set_phase(action);
    return order;
  }

  uint64_t revision_ = 0;
};

// A session and what a shell would hold for it.
class ServedSession : public SessionFixture {
 protected:
  ServedSession()
      : SessionFixture(testing::MakeLayout(
            {testing::Whole("a", DType::kFloat32, {100}), testing::Whole("b", DType::kFloat32, {200}),
             testing::Whole("c", DType::kFloat32, {300})},
            {testing::Object("o", 4096)})) {}

  v1::SaveState Only() {
    const v1::AgentState state = State();
    EXPECT_EQ(state.saves_size(), 1);
    return state.saves_size() == 1 ? state.saves(0) : v1::SaveState();
  }

  absl::StatusOr<v1::BeginSaveResponse> Begin(int64_t step, int timeout = 60) {
    return BeginSave(trainer_, step, timeout);
  }
  absl::Status Commit(uint64_t save, const std::vector<uint64_t>& objects = {10}) {
    v1::CommitStagingRequest request;
    request.set_trainer_incarnation(trainer_);
    request.set_save(save);
    for (uint64_t bytes : objects) {
      request.add_object_sizes(bytes);
      request.add_check_checksums(5);
    }
    return session_.Ask(request, now_);
  }
  absl::StatusOr<v1::WaitSaveResponse> Wait(int64_t step, uint64_t save = 0) {
    v1::WaitSaveRequest request;
    request.set_trainer_incarnation(trainer_);
    request.set_step(step);
    request.set_save(save);
    return session_.Ask(request, now_);
  }

  // An answer to the session's state as it is now.
  absl::Status Order(int64_t step, v1::Phase::Value action, const std::string& plan = "p1", uint32_t attempt = 1,
                     const absl::Status& error = absl::OkStatus(), uint64_t epoch = 5) {
    State();
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(epoch);
    response.set_revision(++revision_);
    auto* order = response.add_saves();
    order->set_step(step);
    order->set_phase(action);
    order->set_plan_digest(plan);
    order->set_attempt(attempt);
    order->set_directory("demo/dir");
    if (action == v1::Phase::WRITING) order->set_attempt_nonce(nonce_);
    if (!error.ok()) *order->mutable_error() = StatusToProto(error);
    return session_.OnOrders(response);
  }

  // Carries out what a shell would do at once; what remains is returned.
  std::vector<Action> Serve() {
    std::vector<Action> rest;
    while (true) {
      std::vector<Action> actions = session_.TakeActions();
      if (actions.empty()) return rest;
      for (Action& action : actions) {
        if (const auto* get = std::get_if<action::GetPlan>(&action); get != nullptr && plans_.contains(get->digest)) {
          session_.OnPlan(get->digest, plans_.at(get->digest));
        } else if (const auto* peers = std::get_if<action::GetPeers>(&action); peers != nullptr) {
          session_.OnPeers(peers->ranks, testing::PeersOf(peers->ranks));
        } else if (const auto* slab = std::get_if<action::MakeSlab>(&action); slab != nullptr && slab_error_.ok()) {
          ++slabs_;
          session_.OnSlab(SlabDescription{100 + slabs_, slab->bytes});
        } else if (slab != nullptr) {
          session_.OnSlab(slab_error_);
        } else {
          rest.push_back(std::move(action));
        }
      }
    }
  }

  // Brings a save to WRITING.
  uint64_t StartWriting(int64_t step) {
    EXPECT_TRUE(Begin(step).ok());
    EXPECT_TRUE(Order(step, v1::Phase::STAGING).ok());
    Serve();
    const auto begun = Begin(step);
    EXPECT_TRUE(begun.ok()) << begun.status();
    EXPECT_TRUE(Commit(begun->save()).ok());
    EXPECT_TRUE(Order(step, v1::Phase::WRITING).ok());
    const auto actions = Serve();
    EXPECT_EQ(actions.size(), 1u);
    EXPECT_TRUE(!actions.empty() && std::holds_alternative<action::StartWrite>(actions[0]));
    EXPECT_EQ(Only().phase(), v1::Phase::WRITING);
    return begun->save();
  }
  v1::WriteResult Result() {
    v1::WriteResult result;
    result.add_files()->set_file_bytes(1);
    return result;
  }

  std::map<std::string, std::string> plans_ = {
      {"p1", testing::MakeWritePlan(*layout_, 3, {{0, 1}, {3}}, "p1").SerializeAsString()},
      {"p2", testing::MakeWritePlan(*layout_, 3, {{3, 1}}, "p2").SerializeAsString()},
      {"p3", testing::MakeWritePlan(*layout_, 3, {{0, 1, 2, 3}}, "p3").SerializeAsString()}};
  uint64_t trainer_ = kTrainer;
  uint64_t nonce_ = 11;  // of the attempt, in orders to write
  uint64_t revision_ = 0;
  uint64_t slabs_ = 0;
  absl::Status slab_error_;
};

// Rank 0 of 2 with several trainers, one after the other, and a shell that does at once what it is asked for.
class TrainersOfARank : public ::testing::Test {
 protected:
  static constexpr uint64_t kFirst = 71;
  static constexpr uint64_t kSecond = 72;
  static constexpr uint64_t kThird = 73;

  TrainersOfARank() : session_({.job = "demo", .rank = 0, .world_size = 2, .incarnation = 9}) {
    v1::RegisterAgentResponse registered;
    registered.set_coordinator_epoch(5);
    EXPECT_TRUE(session_.OnRegistered(registered).ok());
    session_.AddLayout(layout_);
  }

  absl::StatusOr<v1::BeginSaveResponse> Begin(uint64_t trainer, int64_t step, int timeout = 60) {
    v1::BeginSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.mutable_layout()->set_digest(layout_->digest);
    request.mutable_timeout()->set_seconds(timeout);
    return session_.Ask(request, now_);
  }
  absl::Status Commit(uint64_t trainer, uint64_t save) {
    v1::CommitStagingRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_save(save);
    return session_.Ask(request, now_);
  }
  absl::Status Cancel(uint64_t trainer, uint64_t save) {
    v1::CancelSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_save(save);
    return session_.Ask(request, now_);
  }
  absl::StatusOr<v1::WaitSaveResponse> Wait(uint64_t trainer, int64_t step, uint64_t save = 0) {
    v1::WaitSaveRequest request;
    request.set_trainer_incarnation(trainer);
    request.set_step(step);
    request.set_save(save);
    return session_.Ask(request, now_);
  }
  // An answer to the session's state as it is now.
  void Order(int64_t step, v1::Phase::Value action, const absl::Status& error = absl::OkStatus()) {
    session_.BuildRequest(std::nullopt);
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    v1::SaveOrder& order = *response.add_saves();
    order.set_step(step);
    order.set_phase(action);
    order.set_plan_digest(plan_);
    order.set_attempt(1);
    order.set_directory("demo/dir");
    if (!error.ok()) *order.mutable_error() = StatusToProto(error);
    EXPECT_TRUE(session_.OnOrders(response).ok());
    Serve();
  }
  void Serve() {
    for (std::vector<Action> actions = session_.TakeActions(); !actions.empty(); actions = session_.TakeActions()) {
      for (const Action& action : actions) {
        if (const auto* get = std::get_if<action::GetPlan>(&action); get != nullptr && plans_.contains(get->digest)) {
          session_.OnPlan(get->digest, plans_.at(get->digest));
        } else if (const auto* slab = std::get_if<action::MakeSlab>(&action); slab != nullptr && serve_slabs_) {
          session_.OnSlab(SlabDescription{++slabs_, slab->bytes});
        } else if (const auto* write = std::get_if<action::StartWrite>(&action); write != nullptr) {
          v1::WriteResult result;
          for (const ImageFile& file : write->target->file) {
            result.add_files()->set_file_bytes(file.bytes());
            result.mutable_files()->rbegin()->set_header_crc32c(static_cast<uint32_t>(1000 + write->step));
          }
          session_.saves().OnWriteEnded(write->save, result);
        } else if (const auto* stop = std::get_if<action::StopRead>(&action); stop != nullptr) {
          session_.loads().OnStopped(stop->number);
        } else if (const auto* read = std::get_if<action::StartRead>(&action); read != nullptr) {
          read_ = *read;
        } else if (std::holds_alternative<action::GiveUpSlab>(action)) {
          ++given_up_;
          if (serve_give_up_) session_.OnSlabGivenUp();
        }
      }
    }
  }

  // Begins a save and waits for its slab, as a trainer that has just attached or goes on.
  v1::BeginSaveResponse Stage(uint64_t trainer, int64_t step) {
    session_.Attach(trainer);
    EXPECT_TRUE(Begin(trainer, step).ok());
    Order(step, v1::Phase::STAGING);
    const auto begun = Begin(trainer, step);
    EXPECT_TRUE(begun.ok() && !begun->pending()) << begun.status();
    return begun.ok() ? *begun : v1::BeginSaveResponse();
  }
  uint64_t SlabOf(uint64_t trainer, int64_t step) { return Stage(trainer, step).slab().descriptor_id(); }
  // A save from its beginning to its outcome; the number of its slab.
  uint64_t Save(uint64_t trainer, int64_t step) {
    const auto begun = Stage(trainer, step);
    EXPECT_TRUE(Commit(trainer, begun.save()).ok());
    Order(step, v1::Phase::WRITING);
    Order(step, v1::Phase::COMMITTED);
    return begun.slab().descriptor_id();
  }
  // Begins a load of this trainer, which has attached or does. Returns what the coordinator is told of it.
  v1::LoadState BeginLoad(uint64_t trainer) {
    session_.Attach(trainer);
    v1::BeginLoadRequest begin;
    begin.set_trainer_incarnation(trainer);
    begin.set_number(++loads_);
    begin.mutable_layout()->set_digest(layout_->digest);
    EXPECT_TRUE(session_.Ask(begin, now_).ok());
    const v1::AgentState state = session_.BuildRequest(std::nullopt).state();
    return state.loads(state.loads_size() - 1);
  }
  // Orders it to read this file. Returns what the shell is told.
  action::StartRead Read(const v1::ReadFile& file) {
    const std::string digest = absl::StrCat("r", loads_);
    v1::ReadPlan plan;
    plan.set_plan_digest(digest);
    plan.set_layout_digest(layout_->digest);
    *plan.add_files() = file;
    plans_[digest] = plan.SerializeAsString();
    session_.BuildRequest(std::nullopt);
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(5);
    v1::LoadOrder& order = *response.add_loads();
    order.set_number(loads_);
    order.set_phase(v1::Phase::READING);
    order.set_plan_digest(digest);
    EXPECT_TRUE(session_.OnOrders(response).ok());
    Serve();
    EXPECT_EQ(read_.number, loads_);
    return read_;
  }
  action::StartRead Load(uint64_t trainer, const v1::ReadFile& file) {
    BeginLoad(trainer);
    return Read(file);
  }
  // Returns what a load's plan says of the file that Save has written.
  v1::ReadFile FileOf(int64_t step, uint32_t attempt = 1) {
    v1::WritePlan plan;
    EXPECT_TRUE(plan.ParseFromString(plans_.at("p")));
    v1::ReadFile file;
    file.set_path(absl::StrFormat("%012d/%04d/%s.safetensors", step, attempt, plan.files(0).name()));
    file.set_header_bytes(plan.files(0).header_bytes());
    file.set_file_bytes(plan.files(0).header_bytes() + plan.files(0).data_bytes());
    file.set_header_crc32c(static_cast<uint32_t>(1000 + step));
    return file;
  }
  // The rest of the job decides so about a save that this rank's trainer has left.
  void Abort(int64_t step) { Order(step, v1::Phase::ABORTED, MakeError(Reason::kTrainerLost, "lost")); }

  const RankLayoutPtr layout_ = testing::MakeLayout(
      {testing::Whole("a", DType::kFloat32, {100}), testing::Whole("b", DType::kFloat32, {200})}, {});
  std::map<std::string, std::string> plans_ = {
      {"p", testing::MakeWritePlan(*layout_, 0, {{0, 1}}, "p").SerializeAsString()},
      {"other", testing::MakeWritePlan(*layout_, 0, {{1, 0}}, "other").SerializeAsString()},
      {"lending", testing::MakeMovingPlan(*layout_, 0, {{0}}, "lending", {}, {{1, 1}}).SerializeAsString()},
      {"nothing", testing::MakeWritePlan(*layout_, 0, {}, "nothing").SerializeAsString()}};
  std::string plan_ = "p";
  absl::Time now_ = absl::UnixEpoch();
  uint64_t slabs_ = 0;
  bool serve_slabs_ = true;
  bool serve_give_up_ = true;
  int given_up_ = 0;        // how often loads were made to leave the slab
  action::StartRead read_;  // the last one
  uint64_t loads_ = 0;
  Session session_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TESTING_SESSION_FIXTURE_H_
