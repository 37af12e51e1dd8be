#include "coordinator/server/agent_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/time_proto.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/peer_limits.h"
#include "common/rpc/plan_part.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "coordinator/decision/transfer_peers.h"

namespace cairn {
namespace {

std::string NameOf(const v1::AgentIdentity& agent) { return absl::StrCat(agent.job(), ":", agent.rank()); }

absl::Status NotRegistered(const v1::AgentIdentity& agent) {
  return MakeError(Reason::kNotRegistered, absl::StrCat(agent.job(), ": rank ", agent.rank(), " is not registered"),
                   {{"job", agent.job()}, {"rank", absl::StrCat(agent.rank())}});
}

// Others are told in one message what thousands of agents say of themselves.
absl::Status CheckAddresses(const v1::RegisterAgentRequest& request) {
  if (request.transfer_address().size() <= kMaxTransferAddressBytes &&
      request.descriptor_socket().size() <= kMaxDescriptorSocketBytes && request.boot_id().size() <= kMaxBootIdBytes &&
      request.node().size() <= kMaxNodeBytes) {
    return absl::OkStatus();
  }
  const v1::AgentIdentity& agent = request.agent();
  return MakeError(
      Reason::kBadRequest,
      absl::StrCat(NameOf(agent), ": its names are too long: ", request.transfer_address().size(), " bytes of ",
                   kMaxTransferAddressBytes, " for its transfer address, ", request.descriptor_socket().size(), " of ",
                   kMaxDescriptorSocketBytes, " for its socket, ", request.boot_id().size(), " of ", kMaxBootIdBytes,
                   " for its boot id, ", request.node().size(), " of ", kMaxNodeBytes, " for its node"),
      {{"job", agent.job()}, {"rank", absl::StrCat(agent.rank())}});
}

}  // namespace

absl::Status AgentService::CheckEpoch(const v1::AgentIdentity& agent) const {
  if (agent.coordinator_epoch() == options_.coordinator_epoch) return absl::OkStatus();
  return MakeError(Reason::kStaleEpoch,
                   absl::StrCat(agent.job(), ": rank ", agent.rank(), " speaks to coordinator epoch ",
                                agent.coordinator_epoch(), ", this is ", options_.coordinator_epoch),
                   {{"job", agent.job()}, {"rank", absl::StrCat(agent.rank())}});
}

absl::Status AgentService::CheckMember(const v1::AgentIdentity& agent, bool uploaded) {
  CAIRN_RETURN_IF_ERROR(CheckEpoch(agent));
  return dispatcher_.Event(agent.job(),
                           [&](Job& job, const Moment& moment) { return job.Touch(agent, uploaded, moment); });
}

grpc::ServerUnaryReactor* AgentService::RegisterAgent(grpc::CallbackServerContext* context,
                                                      const v1::RegisterAgentRequest* request,
                                                      v1::RegisterAgentResponse* response) {
  const v1::AgentIdentity& agent = request->agent();
  if (agent.coordinator_epoch() > options_.coordinator_epoch) {
    return FinishNow(context, MakeError(Reason::kStaleEpoch,
                                        absl::StrCat("the agent has seen coordinator epoch ", agent.coordinator_epoch(),
                                                     ", this is ", options_.coordinator_epoch),
                                        {{"job", agent.job()}, {"rank", absl::StrCat(agent.rank())}}));
  }
  if (request->protocol() > kProtocolVersion) {
    return FinishNow(context,
                     MakeError(Reason::kUnsupported, absl::StrCat("the agent speaks protocol ", request->protocol(),
                                                                  ", this coordinator ", kProtocolVersion)));
  }
  if (absl::Status status = CheckAddresses(*request); !status.ok()) return FinishNow(context, status);
  const auto registered =
      dispatcher_.Event(agent.job(), [&](Job& job, const Moment& moment) { return job.Register(*request, moment); });
  if (!registered.ok()) return FinishNow(context, registered.status());
  *response = *registered;
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AgentService::SynchronizeAgent(grpc::CallbackServerContext* context,
                                                         const v1::SynchronizeAgentRequest* request,
                                                         v1::SynchronizeAgentResponse* response) {
  absl::Status status = CheckEpoch(request->agent());
  if (!status.ok()) return FinishNow(context, status);
  const v1::AgentIdentity agent = request->agent();
  const int rank = static_cast<int>(agent.rank());
  status =
      dispatcher_.Event(agent.job(), [&](Job& job, const Moment& moment) { return job.Synchronize(*request, moment); });
  if (!status.ok()) return FinishNow(context, status);
  const absl::Duration max_wait = std::min(DurationOf(request->max_wait()), options_.lease_ttl / 3);
  const absl::Duration next_delay =
      max_wait > absl::ZeroDuration() ? absl::ZeroDuration() : std::min(absl::Seconds(1), options_.lease_ttl / 3);
  const uint64_t known = request->known_revision();
  const auto poll = [agent, rank, known, next_delay](
                        Job& job, const Moment& moment,
                        bool last) -> std::optional<absl::StatusOr<v1::SynchronizeAgentResponse>> {
    const Member* member = job.members().Find(rank);
    if (member == nullptr || member->incarnation != agent.incarnation()) return NotRegistered(agent);
    // The orders are only put together anew when something that they depend on has changed.
    if (!last && known != 0 && job.KnowsOrders(rank, known)) return std::nullopt;
    v1::SynchronizeAgentResponse orders = job.OrdersFor(rank, moment, known);
    if (!last && known != 0 && orders.revision() <= known) return std::nullopt;
    SetDuration(next_delay, *orders.mutable_next_delay());
    return orders;
  };
  return dispatcher_.Hold(context, {agent.job(), rank}, max_wait, response, poll);
}

grpc::ServerUnaryReactor* AgentService::PutLayout(grpc::CallbackServerContext* context,
                                                  const v1::PutLayoutRequest* request,
                                                  v1::PutLayoutResponse* response) {
  if (absl::Status status = CheckMember(request->agent(), /*uploaded=*/true); !status.ok()) {
    return FinishNow(context, status);
  }
  auto place = dispatcher_.Admit(request->chunk().size());
  if (!place.ok()) return FinishNow(context, place.status());
  // The last chunk is hashed, which takes a while for a large layout.
  return dispatcher_.OnWorker(
      *this, *request, response,
      [](AgentService& self, const v1::PutLayoutRequest& asked) -> absl::StatusOr<v1::PutLayoutResponse> {
        const Computing computing;
        CAIRN_ASSIGN_OR_RETURN(const uint64_t next,
                               self.layouts_.PutChunk(NameOf(asked.agent()), asked.digest(), asked.total_bytes(),
                                                      asked.offset(), asked.chunk(), asked.agent().job()));
        if (next == asked.total_bytes()) self.dispatcher_.OnLayout(asked.digest());
        v1::PutLayoutResponse made;
        made.set_received_bytes(next);
        return made;
      },
      *std::move(place));
}

grpc::ServerUnaryReactor* AgentService::GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest* request,
                                                v1::GetPlanResponse* response) {
  if (absl::Status status = CheckMember(request->agent(), /*uploaded=*/false); !status.ok()) {
    return FinishNow(context, status);
  }
  // A call that waits holds no bytes: the part is made on the worker.
  auto place = dispatcher_.Admit(0);
  if (!place.ok()) return FinishNow(context, place.status());
  return dispatcher_.OnWorker(
      *this, *request, response,
      [](AgentService& self, const v1::GetPlanRequest& asked) -> absl::StatusOr<v1::GetPlanResponse> {
        CAIRN_ASSIGN_OR_RETURN(const auto part,
                               self.plans_.PartFor(asked.plan_digest(), static_cast<int>(asked.agent().rank())));
        v1::GetPlanResponse made;
        if (asked.offset() == 0 && !asked.known_part_digest().empty() &&
            BodyDigestOf(*part) == asked.known_part_digest()) {
          made.set_same_part(true);
          return made;
        }
        if (asked.offset() > part->size()) {
          return MakeError(Reason::kBadRequest,
                           absl::StrCat("offset ", asked.offset(), " of a plan of ", part->size(), " bytes"));
        }
        made.set_total_bytes(part->size());
        made.set_chunk(part->substr(asked.offset(), kMaxChunkBytes));
        return made;
      },
      *std::move(place));
}

grpc::ServerUnaryReactor* AgentService::GetTransferPeers(grpc::CallbackServerContext* context,
                                                         const v1::GetTransferPeersRequest* request,
                                                         v1::GetTransferPeersResponse* response) {
  const v1::AgentIdentity& agent = request->agent();
  absl::Status status = CheckEpoch(agent);
  if (status.ok() && static_cast<size_t>(request->ranks_size()) > kMaxTransferPeers) {
    status =
        MakeError(Reason::kBadRequest, absl::StrCat(NameOf(agent), " asks where ", request->ranks_size(),
                                                    " ranks are, at most ", kMaxTransferPeers, " are told at once"));
  }
  if (!status.ok()) return FinishNow(context, status);
  auto told = dispatcher_.Event(request->agent().job(),
                                [&](Job& job, const Moment& moment) -> absl::StatusOr<v1::GetTransferPeersResponse> {
                                  CAIRN_RETURN_IF_ERROR(job.Touch(agent, /*uploaded=*/false, moment));
                                  return TransferPeersFor(*request, job.members());
                                });
  if (!told.ok()) return FinishNow(context, told.status());
  told->set_coordinator_epoch(options_.coordinator_epoch);
  *response = *std::move(told);
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AgentService::UnregisterAgent(grpc::CallbackServerContext* context,
                                                        const v1::UnregisterAgentRequest* request,
                                                        v1::UnregisterAgentResponse*) {
  absl::Status status = CheckEpoch(request->agent());
  if (!status.ok()) return FinishNow(context, status);
  layouts_.Forget(NameOf(request->agent()));
  return FinishNow(context, dispatcher_.Event(request->agent().job(), [&](Job& job, const Moment& moment) {
    return job.Unregister(request->agent(), moment);
  }));
}

}  // namespace cairn
