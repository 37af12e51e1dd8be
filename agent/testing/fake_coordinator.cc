#include "agent/testing/fake_coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/time_proto.h"
#include "common/rpc/grpc_status.h"
#include "common/status/reason.h"

namespace cairn::testing {
namespace {

constexpr size_t kChunk = 1 << 16;  // small, so that tests have several

grpc::Status Refusal(Reason reason) { return ToGrpcStatus(MakeError(reason, "refused by the fake")); }

}  // namespace

FakeCoordinator::FakeCoordinator() : server_(*this) {}

FakeCoordinator::~FakeCoordinator() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  server_.End();
}

void FakeCoordinator::Order(uint32_t rank, v1::SynchronizeAgentResponse orders) {
  MutexLock lock(mutex_);
  ranks_[rank].orders = std::move(orders);
  ++ranks_[rank].revision;
  changed_.NotifyAll();
}

void FakeCoordinator::AddPlan(uint32_t rank, const std::string& digest, std::string bytes) {
  MutexLock lock(mutex_);
  ranks_[rank].plans[digest] = std::move(bytes);
}

v1::AgentState FakeCoordinator::Await(uint32_t rank, const std::function<bool(const v1::AgentState&)>& wanted) {
  MutexLock lock(mutex_);
  const absl::Time deadline = Clock::Real().SteadyNow() + absl::Seconds(10);
  while (!ranks_[rank].heard || !wanted(ranks_[rank].state)) {
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) {
      ADD_FAILURE() << "rank " << rank << " is still at " << ranks_[rank].state.DebugString();
      break;
    }
    changed_.WaitFor(mutex_, left);
  }
  return ranks_[rank].state;
}

void FakeCoordinator::Restart(uint64_t epoch) {
  MutexLock lock(mutex_);
  epoch_ = epoch;
  for (auto& [number, rank] : ranks_) {
    rank.registered = false;
    rank.heard = false;
    rank.sequence = 0;
  }
  changed_.NotifyAll();
}

void FakeCoordinator::ChangeMembership() {
  MutexLock lock(mutex_);
  ++membership_epoch_;
  for (auto& [number, rank] : ranks_) ++rank.revision;
  changed_.NotifyAll();
}

void FakeCoordinator::Hide(uint32_t rank) {
  MutexLock lock(mutex_);
  ranks_[rank].hidden = true;
}

void FakeCoordinator::Refuse(absl::Status error) {
  MutexLock lock(mutex_);
  refusal_ = std::move(error);
}

void FakeCoordinator::RefuseTransfers(int count, absl::Status error) {
  MutexLock lock(mutex_);
  transfers_to_refuse_ = count;
  transfer_refusal_ = std::move(error);
}

void FakeCoordinator::AwaitCount(const int& counted, int count) {
  const absl::Time deadline = Clock::Real().SteadyNow() + absl::Seconds(10);
  while (counted < count) {
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) {
      ADD_FAILURE() << counted << " calls were refused, not " << count;
      return;
    }
    changed_.WaitFor(mutex_, left);
  }
}

void FakeCoordinator::AwaitRefusals(int count) {
  MutexLock lock(mutex_);
  AwaitCount(refused_transfers_, count);
}

void FakeCoordinator::AwaitRegistrationRefusals(int count) {
  MutexLock lock(mutex_);
  AwaitCount(refused_registrations_, count);
}

absl::Status FakeCoordinator::RefuseTransfer() {
  if (transfers_to_refuse_ == 0) return absl::OkStatus();
  --transfers_to_refuse_;
  ++refused_transfers_;
  changed_.NotifyAll();
  return transfer_refusal_;
}

v1::RegisterAgentRequest FakeCoordinator::registration(uint32_t rank) {
  MutexLock lock(mutex_);
  return ranks_[rank].registration;
}

std::vector<std::vector<uint32_t>> FakeCoordinator::peer_requests(uint32_t rank) {
  MutexLock lock(mutex_);
  return ranks_[rank].peer_requests;
}

std::string FakeCoordinator::layout(const std::string& digest) {
  MutexLock lock(mutex_);
  return layouts_[digest];
}

int FakeCoordinator::registrations() {
  MutexLock lock(mutex_);
  return registrations_;
}

bool FakeCoordinator::unregistered(uint32_t rank) {
  MutexLock lock(mutex_);
  return ranks_[rank].unregistered;
}

grpc::Status FakeCoordinator::RegisterAgent(grpc::ServerContext*, const v1::RegisterAgentRequest* request,
                                            v1::RegisterAgentResponse* response) {
  MutexLock lock(mutex_);
  if (!refusal_.ok()) {
    ++refused_registrations_;
    changed_.NotifyAll();
    return ToGrpcStatus(refusal_);
  }
  Rank& rank = ranks_[request->agent().rank()];
  rank.registration = *request;
  rank.registered = true;
  ++registrations_;
  response->set_coordinator_epoch(epoch_);
  response->set_membership_epoch(membership_epoch_);
  response->mutable_lease_ttl()->set_seconds(3);
  changed_.NotifyAll();
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::SynchronizeAgent(grpc::ServerContext* context, const v1::SynchronizeAgentRequest* request,
                                               v1::SynchronizeAgentResponse* response) {
  MutexLock lock(mutex_);
  Rank& rank = ranks_[request->agent().rank()];
  if (!rank.registered) return Refusal(Reason::kNotRegistered);
  if (request->agent().coordinator_epoch() != epoch_) return Refusal(Reason::kStaleEpoch);
  if (request->sequence() > rank.sequence) {
    rank.sequence = request->sequence();
    // A real one would have other orders for another state.
    if (rank.state.SerializeAsString() != request->state().SerializeAsString()) ++rank.revision;
    rank.state = request->state();
    rank.heard = true;
    changed_.NotifyAll();
  }
  const absl::Time deadline = Clock::Real().SteadyNow() + DurationOf(request->max_wait());
  while (rank.revision == request->known_revision() && rank.registered && !ending_ && !context->IsCancelled() &&
         rank.sequence == request->sequence()) {
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mutex_, std::min(left, absl::Milliseconds(20)));
  }
  if (!rank.registered) return Refusal(Reason::kNotRegistered);
  *response = rank.orders;
  response->set_coordinator_epoch(epoch_);
  response->set_membership_epoch(membership_epoch_);
  response->set_revision(rank.revision);
  response->mutable_lease_ttl()->set_seconds(3);
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::PutLayout(grpc::ServerContext*, const v1::PutLayoutRequest* request,
                                        v1::PutLayoutResponse* response) {
  MutexLock lock(mutex_);
  if (const absl::Status refused = RefuseTransfer(); !refused.ok()) return ToGrpcStatus(refused);
  std::string& layout = layouts_[request->digest()];
  if (request->offset() == 0) layout.clear();
  if (request->offset() != layout.size()) return Refusal(Reason::kBadRequest);
  layout += request->chunk();
  response->set_received_bytes(layout.size());
  changed_.NotifyAll();
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                                      v1::GetPlanResponse* response) {
  MutexLock lock(mutex_);
  if (const absl::Status refused = RefuseTransfer(); !refused.ok()) return ToGrpcStatus(refused);
  const auto& plans = ranks_[request->agent().rank()].plans;
  const auto plan = plans.find(request->plan_digest());
  if (plan == plans.end() || request->offset() > plan->second.size()) return Refusal(Reason::kPlanUnknown);
  response->set_chunk(plan->second.substr(request->offset(), kChunk));
  response->set_total_bytes(plan->second.size());
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::GetTransferPeers(grpc::ServerContext*, const v1::GetTransferPeersRequest* request,
                                               v1::GetTransferPeersResponse* response) {
  MutexLock lock(mutex_);
  if (const absl::Status refused = RefuseTransfer(); !refused.ok()) return ToGrpcStatus(refused);
  ranks_[request->agent().rank()].peer_requests.emplace_back(request->ranks().begin(), request->ranks().end());
  response->set_coordinator_epoch(epoch_);
  response->set_membership_epoch(membership_epoch_);
  for (const uint32_t number : request->ranks()) {
    const auto rank = ranks_.find(number);
    if (rank == ranks_.end() || !rank->second.registered || rank->second.hidden) continue;
    const v1::RegisterAgentRequest& registration = rank->second.registration;
    v1::TransferPeer& peer = *response->add_peers();
    peer.set_rank(number);
    peer.set_incarnation(registration.agent().incarnation());
    peer.set_transfer_address(registration.transfer_address());
    peer.set_descriptor_socket(registration.descriptor_socket());
    peer.set_boot_id(registration.boot_id());
  }
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::UnregisterAgent(grpc::ServerContext*, const v1::UnregisterAgentRequest* request,
                                              v1::UnregisterAgentResponse*) {
  MutexLock lock(mutex_);
  ranks_[request->agent().rank()].unregistered = true;
  return grpc::Status::OK;
}

}  // namespace cairn::testing
