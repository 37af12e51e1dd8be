#include "agent/transport/testing/scripted_source.h"

#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/grpc_status.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::testing {
namespace {

constexpr char kHang[] = "this call hangs";

absl::Status NoScript() { return MakeError(Reason::kInternal, "the test has no script for this call"); }

}  // namespace

ScriptedSource::ScriptedSource() : server_(*this) {}

ScriptedSource::~ScriptedSource() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  server_.End();
}

v1::TransferPeer ScriptedSource::peer() const {
  v1::TransferPeer peer;
  peer.set_rank(7);
  peer.set_incarnation(11);
  peer.set_transfer_address(server_.address());
  return peer;
}

std::vector<v1::AwaitRoundRequest> ScriptedSource::awaited() {
  MutexLock lock(mutex_);
  return awaited_;
}

std::vector<v1::FetchCopiesRequest> ScriptedSource::fetched() {
  MutexLock lock(mutex_);
  return fetched_;
}

std::vector<v1::OfferWindowsRequest> ScriptedSource::offered() {
  MutexLock lock(mutex_);
  return offered_;
}

absl::Status ScriptedSource::Hang() { return absl::UnknownError(kHang); }

grpc::Status ScriptedSource::Answer(const absl::Status& said) {
  if (said.message() == kHang) {
    MutexLock lock(mutex_);
    while (!ending_) changed_.Wait(mutex_);
  }
  return ToGrpcStatus(said);
}

grpc::Status ScriptedSource::AwaitRound(grpc::ServerContext*, const v1::AwaitRoundRequest* request,
                                        v1::AwaitRoundResponse* response) {
  absl::Status said = NoScript();
  {
    MutexLock lock(mutex_);
    awaited_.push_back(*request);
    if (await) said = await(*request, *response);
  }
  return Answer(said);
}

grpc::Status ScriptedSource::FetchCopies(grpc::ServerContext*, const v1::FetchCopiesRequest* request,
                                         grpc::ServerWriter<v1::FetchCopiesResponse>* writer) {
  absl::Status said = NoScript();
  Bytes messages;
  {
    MutexLock lock(mutex_);
    fetched_.push_back(*request);
    if (fetch) said = fetch(*request, messages);
  }
  for (const std::string& message : messages) {
    v1::FetchCopiesResponse response;
    response.set_data(message);
    writer->Write(response);
  }
  return Answer(said);
}

grpc::Status ScriptedSource::OfferWindows(grpc::ServerContext*, const v1::OfferWindowsRequest* request,
                                          v1::OfferWindowsResponse* response) {
  absl::Status said = NoScript();
  {
    MutexLock lock(mutex_);
    offered_.push_back(*request);
    if (offer) said = offer(*request);
  }
  if (!said.ok() || !request->last()) return Answer(said);
  response->set_decided(true);
  if (answer_offer != nullptr) {
    MutexLock lock(mutex_);
    answer_offer(*response);
  }
  if (broadcast == nullptr) return Answer(said);
  const auto decided = std::make_shared<std::promise<absl::StatusOr<std::vector<uint32_t>>>>();
  broadcast(*request,
            [decided](absl::StatusOr<std::vector<uint32_t>> windows) { decided->set_value(std::move(windows)); });
  const auto windows = decided->get_future().get();
  if (windows.ok()) response->mutable_broadcast_windows()->Assign(windows->begin(), windows->end());
  return Answer(windows.status());
}

}  // namespace cairn::testing
