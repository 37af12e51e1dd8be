#include "coordinator/server/server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics_server.h"
#include "common/rpc/address.h"
#include "common/rpc/connection_listener.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/listening_sockets.h"
#include "common/rpc/peer_channel.h"
#include "common/rpc/peer_keys.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "coordinator/server/agent_service.h"
#include "coordinator/server/checkpoint_service.h"
#include "coordinator/server/coordinator_metrics.h"
#include "coordinator/server/monitoring_service.h"
#include "coordinator/server/operation_log.h"

namespace cairn {
namespace {

constexpr int kWorkers = 4;
// The layouts of all jobs, and those of one job, take at most so many bytes.
constexpr uint64_t kLayoutCapacity = uint64_t{2} << 30;
constexpr uint64_t kJobLayoutCapacity = uint64_t{1} << 30;
// The longest time in one piece in which the coordinator may say of itself that it could not listen.
constexpr int kMaxDeafLeases = 6;
// A copy to the mirror gives up between two parts of a file; a system call of a file system may last.
constexpr absl::Duration kMirrorEnds = absl::Seconds(5);
// Streams that ask for nothing new end within this once the server stops.
constexpr absl::Duration kShutdown = absl::Seconds(2);

// Returns where a process finds itself that listens on `address`: all interfaces means loopback as well.
std::string LoopbackAddress(const std::string& address) {
  const auto [host, port] = HostAndPort(address);
  if (host == "0.0.0.0") return absl::StrCat("127.0.0.1:", port);
  if (host == "::") return absl::StrCat("[::1]:", port);
  return address;
}

}  // namespace

class CoordinatorServer::Impl {
 public:
  Impl(ServerOptions options, TransferSecret secret, Storage& storage, const RootLock& root, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        layouts_(kLayoutCapacity, kJobLayoutCapacity),
        plans_(storage, layouts_, options_.save),
        checkpoints_(storage, root.began()),
        attempts_(storage, checkpoints_, clock, root),
        deletions_(storage, checkpoints_, clock, root),
        mirror_(MakeMirror()),
        executor_(checkpoints_, attempts_, deletions_, plans_, std::move(secret), clock, mirror_.get()),
        dispatcher_(options_.decisions, executor_, layouts_, clock, kWorkers),
        agents_(options_.decisions, dispatcher_, layouts_, plans_),
        people_(options_.decisions, storage.root(), dispatcher_, checkpoints_, mirror_.get()),
        monitoring_(dispatcher_, operations_, storage, checkpoints_) {
    dispatcher_.Observe(
        [this](const std::shared_ptr<const OperationTimeline>& timeline) {
          metrics_->Observe(*timeline);
          operations_.Add(timeline);
        },
        [this](const std::string& job, uint64_t leases) { metrics_->LeasesEnded(job, leases); });
  }

  absl::Status Start() {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> layouts, plans_.Recover());
    dispatcher_.KeepForAWhile(layouts);
    layouts_.OnFull([this](const std::string& job, bool all_jobs) { return dispatcher_.MakeRoom(job, all_jobs); });
    dispatcher_.InBackground([this] { plans_.Warm(stop_warming_); });
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    ConnectionListener::KeysNow keys;
    if (options_.tokens != nullptr && !options_.tokens->insecure()) {
      keys = [tokens = options_.tokens] { return tokens->Keys(ServerRole::kCoordinator); };
    }
    // A port that is taken is told before agents are served.
    ListeningSockets metrics;
    if (!options_.metrics_listen.empty()) {
      CAIRN_ASSIGN_OR_RETURN(metrics, ListenAt("--metrics-listen", options_.metrics_listen));
    }
    metrics_address_ = metrics.address;
    CAIRN_ASSIGN_OR_RETURN(listener_, ConnectionListener::Listen(options_.listen, std::move(keys)));
    listener_->AddTo(builder);
    builder.RegisterService(&agents_);
    builder.RegisterService(&people_);
    builder.RegisterService(&monitoring_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return MakeError(Reason::kInternal, "the coordinator's gRPC server does not start");
    CAIRN_RETURN_IF_ERROR(listener_->Serve(*server_));
    address_ = listener_->address();
    if (!options_.metrics_listen.empty()) {
      CAIRN_ASSIGN_OR_RETURN(metrics_server_, MetricsServer::Start(std::move(metrics.sockets), {metrics_}));
    }
    // The port is where agents' calls come in, whatever address they take to it.
    loopback_ = std::make_shared<PeerChannel>(
        PeerOptions{.address = LoopbackAddress(address_), .role = ServerRole::kCoordinator, .tokens = options_.tokens});
    loopback_->GetIfReady();
    in_process_ = server_->InProcessChannel(grpc::ChannelArguments());
    dispatcher_.Probe([this](std::function<void()> ended) { CallSelf(std::move(ended)); });
    return mirror_ == nullptr ? absl::OkStatus() : mirror_->Start();
  }

  const std::string& address() const { return address_; }
  bool only_mirror_stalls() const { return only_mirror_stalls_; }
  const std::string& metrics_address() const { return metrics_address_; }

  // False if a thread that storage holds may still use any part of this.
  bool Drain(absl::Duration timeout) {
    if (std::exchange(drained_, true)) return ended_;
    if (server_ != nullptr) {
      if (listener_ != nullptr) listener_->SetAllServing(false);
      people_.Drain();
      const absl::Time deadline = clock_.SteadyNow() + timeout;
      while (dispatcher_.busy() && clock_.SteadyNow() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    stop_warming_ = true;
    metrics_server_ = nullptr;
    ended_ = dispatcher_.Stop();
    const bool mirror_ended = mirror_ == nullptr || mirror_->Stop(kMirrorEnds);
    only_mirror_stalls_ = ended_ && !mirror_ended;
    ended_ = ended_ && mirror_ended;
    if (listener_ != nullptr) listener_->Stop();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kShutdown));
      server_->Wait();
      AwaitSelfCall();
      server_ = nullptr;
    }
    return ended_;
  }

 private:
  std::unique_ptr<Mirror> MakeMirror() {
    if (!options_.mirror.has_value()) return nullptr;
    MirrorOptions mirror = *options_.mirror;
    mirror.mark_root = [this](const std::string& job, const ChangeSteps& mark) {
      const auto* pin = std::get_if<PinStep>(&mark.change);
      return pin != nullptr ? deletions_.Pin(job, *pin).status()
                            : deletions_.Tag(job, std::get<TagStep>(mark.change)).status();
    };
    return std::make_unique<Mirror>(std::move(mirror), checkpoints_, clock_);
  }

  // A call to this coordinator itself. It belongs to the server: if gRPC's own thread let go of the last thing that
  // holds the channel, it would destroy the queue that it runs in.
  struct SelfCall {
    std::unique_ptr<v1::CheckpointService::Stub> stub;
    grpc::ClientContext context;
    v1::GetCapabilitiesRequest request;
    v1::Capabilities response;
  };
  struct SelfCallState {
    Mutex mutex;
    CondVar ended;
    bool under_way ABSL_GUARDED_BY(mutex) = false;
  };

  // Makes one call on the way that agents' calls take: through a connection, its reading, and the queues behind it.
  // Where no connection to the own port comes about, it takes the queues alone. A connection that is lost says nothing
  // of agents' ones, so its call ends with an error at once. The last call must have ended.
  void CallSelf(std::function<void()> ended) {
    {
      MutexLock lock(self_call_state_->mutex);
      self_call_state_->under_way = true;
    }
    self_call_ = std::make_unique<SelfCall>();
    SelfCall& call = *self_call_;
    // An answer that never comes must not keep leases for ever.
    call.context.set_deadline(std::chrono::system_clock::now() +
                              absl::ToChronoMilliseconds(kMaxDeafLeases * options_.decisions.lease_ttl));
    const PeerChannel::Channel connected = loopback_->GetIfReady();
    call.stub = v1::CheckpointService::NewStub(connected != nullptr ? connected : in_process_);
    call.stub->async()->GetCapabilities(&call.context, &call.request, &call.response,
                                        [state = self_call_state_, ended = std::move(ended)](const grpc::Status&) {
                                          {
                                            MutexLock lock(state->mutex);
                                            state->under_way = false;
                                            state->ended.NotifyAll();
                                          }
                                          ended();  // the next call may begin
                                        });
  }

  // The server has shut down, so the last call to itself ends at once.
  void AwaitSelfCall() {
    if (self_call_ != nullptr) self_call_->context.TryCancel();
    {
      MutexLock lock(self_call_state_->mutex);
      while (self_call_state_->under_way) self_call_state_->ended.Wait(self_call_state_->mutex);
    }
    self_call_ = nullptr;
    loopback_ = nullptr;
    in_process_ = nullptr;
  }

  const ServerOptions options_;
  const Clock& clock_;
  LayoutStore layouts_;
  PlanStore plans_;
  CheckpointStore checkpoints_;
  AttemptStore attempts_;
  DeletionStore deletions_;
  const std::unique_ptr<Mirror> mirror_;
  Executor executor_;
  OperationLog operations_;
  const std::shared_ptr<CoordinatorMetrics> metrics_ = std::make_shared<CoordinatorMetrics>([this] {
    const Dispatcher::Strain strain = dispatcher_.strain();
    std::optional<MirrorCounts> mirror;
    if (mirror_ != nullptr) mirror = mirror_->view().counts();
    return CoordinatorMetrics::Now{
        dispatcher_.Jobs(),
        dispatcher_.stalled_calls(),
        options_.decisions.coordinator_epoch,
        strain.stopped,
        strain.deaf,
        {{"transfer", strain.transfers_refused}, {"wait", strain.waits_refused}, {"layout", strain.layouts_refused}},
        mirror};
  });
  Dispatcher dispatcher_;
  AgentService agents_;
  CheckpointService people_;
  MonitoringService monitoring_;
  std::atomic<bool> stop_warming_ = false;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionListener> listener_;  // ends before the server that it serves
  std::shared_ptr<PeerChannel> loopback_;         // to the own port
  std::shared_ptr<grpc::Channel> in_process_;
  std::unique_ptr<SelfCall> self_call_;
  const std::shared_ptr<SelfCallState> self_call_state_ = std::make_shared<SelfCallState>();
  bool drained_ = false;
  bool ended_ = true;
  bool only_mirror_stalls_ = false;
  std::string address_;
  std::string metrics_address_;
};

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() {
  if (!impl_->Drain(absl::ZeroDuration())) (void)impl_.release();
}

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(ServerOptions options, Storage& storage,
                                                                            const RootLock& root, const Clock& clock) {
  CAIRN_ASSIGN_OR_RETURN(TransferSecret secret, TransferSecret::Load(storage));
  std::unique_ptr<CoordinatorServer> server(
      new CoordinatorServer(std::make_unique<Impl>(std::move(options), std::move(secret), storage, root, clock)));
  CAIRN_RETURN_IF_ERROR(server->impl_->Start());
  return server;
}

const std::string& CoordinatorServer::address() const { return impl_->address(); }
std::string CoordinatorServer::metrics_address() const { return impl_->metrics_address(); }
bool CoordinatorServer::Drain(absl::Duration timeout) { return impl_->Drain(timeout); }
bool CoordinatorServer::only_mirror_stalls() const { return impl_->only_mirror_stalls(); }

}  // namespace cairn
