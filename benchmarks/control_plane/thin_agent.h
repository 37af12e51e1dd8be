// An agent without trainer and without bytes: it speaks the whole protocol of agent/runtime/coordinator_link and
// agent/session, with the same pauses, repetitions and epochs, and puts sparse files where a real agent writes bins.
// Thousands of them share a thread and a few connections.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_THIN_AGENT_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_THIN_AGENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "benchmarks/control_plane/event_loop.h"
#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "cairn/v1/plan.pb.h"
#include "common/rpc/peer_channel.h"
#include "common/rpc/short_report.h"
#include "store/storage/storage.h"

namespace cairn {

// An agent reaches these one after the other; the benchmarks measure when.
enum class Milestone {
  kRegistered,
  kUploaded,    // its layout
  kPart,        // it has its part of the newest save plan
  kBegun,       // the trainer calls save
  kStaged,      // and the coordinator is being told so
  kWriteOrder,  // the first order to write of a save
  kWritten,
  kCommitted,
  kAborted,
  kReadOrder,
  kReadPart,  // it has its part of the load plan
  kLoaded,
  kLoadFailed,
  kRefused,  // the agent would end: another process has its rank
};

// Counts messages of one kind. Bytes are those of the messages with gRPC's five before each, without the headers of
// HTTP/2.
struct Traffic {
  uint64_t calls = 0;
  uint64_t up_bytes = 0;
  uint64_t down_bytes = 0;
};

struct AgentCounters {
  Traffic registrations;
  Traffic synchronizations;
  Traffic uploads;
  Traffic parts;
  // Heartbeats that a change of the agent's own state cut short.
  uint64_t interrupted = 0;
  uint64_t second_registrations = 0;
  uint64_t layouts_uploaded = 0;
  // Counts how often each reason of an error came.
  std::map<std::string, uint64_t> errors;
  // The longest time without an answer of the coordinator, from one answer to the next.
  absl::Duration longest_silence;
};

// Holds what all agents of a process share. It must outlive them.
struct AgentSurroundings {
  // These do what those of the loop do, for the owner of these agents.
  void Post(std::function<void()> task) { loop.Post(this, std::move(task)); }
  void After(absl::Duration delay, std::function<void()> task) { loop.After(this, delay, std::move(task)); }

  EventLoop& loop;
  std::string address;
  // Null for a server without storage: then no file is looked at or made.
  Storage* storage = nullptr;
  AgentCounters counters;
  std::function<void(Milestone, int rank)> reached;
  // Calls under way.
  int calls = 0;
};

struct ThinAgentOptions {
  std::string job;
  int rank = 0;
  int world_size = 0;
  std::string layout;
  // The trainer copies for so long, and writing and reading take so long.
  absl::Duration stage_time;
  absl::Duration write_time;
  absl::Duration read_time;
  // Goes silent for ever when it is told to write.
  bool dies_before_writing = false;
  // Asks for orders again and again instead of waiting for them: for measuring how long an answer takes. Each time is
  // handed to `answered`, from any thread.
  absl::Duration ask_every;
  std::function<void(absl::Duration)> answered;
};

// A save of an agent: what it tells of it, and what it was last told.
struct SaveInWork {
  v1::SaveState state;
  v1::SaveOrder order;
  uint32_t write_attempt = 0;
  uint64_t write_nonce = 0;
  bool ordered_to_write = false;
};
struct LoadInWork {
  v1::LoadState state;
  v1::LoadOrder order;
};

// It is used in the thread of the loop only. It may be destroyed when Stop was called and no call is under way.
class ThinAgent {
 public:
  ThinAgent(AgentSurroundings& surroundings, std::shared_ptr<PeerChannel> channel, ThinAgentOptions options);

  void Start();
  // Ends without a word, as a killed process does.
  void Stop();
  // Gives the rank back, and ends.
  void Leave();

  // The trainer calls save, or load, with the layout of the options. One save and one load at a time.
  void Save(int64_t step);
  void Load(uint64_t number, std::optional<int64_t> step);

  bool stopped() const { return stopped_; }
  bool registered() const { return registered_; }
  // Forgets how long it has not been heard, for a new measurement.
  void StartSilence() { heard_ = SteadyNow(); }
  // The error of the last save or load that failed.
  const absl::Status& error() const { return error_; }

 private:
  template <typename Request, typename Response>
  struct Call;

  template <typename Method, typename CallType>
  void Launch(Method method, const std::shared_ptr<CallType>& call, absl::Duration timeout, Traffic& traffic,
              void (ThinAgent::*done)(CallType&, const absl::Status&));
  v1::AgentIdentity Identity() const;
  bool active() const { return save_.has_value() || load_.has_value(); }

  // The long-poll loop of CoordinatorLink: exactly one of a call, a pause or nothing (stopped) is under way.
  void Next();
  void Register();
  void OnRegister(Call<v1::RegisterAgentRequest, v1::RegisterAgentResponse>& call, const absl::Status& status);
  void Synchronize();
  void OnSynchronize(Call<v1::SynchronizeAgentRequest, v1::SynchronizeAgentResponse>& call, const absl::Status& status);
  void OnFailed(const absl::Status& status);
  void Pause(absl::Duration delay);
  // The state has changed: it is sent at once.
  void Changed();

  // Makes the call again after the delay with which an overloaded coordinator has refused it. False: it has not.
  bool ComeAgain(const absl::Status& status, void (ThinAgent::*call)());
  void PutLayout();
  void OnPutLayout(Call<v1::PutLayoutRequest, v1::PutLayoutResponse>& call, const absl::Status& status);
  void WantPart(const std::string& plan_digest);
  void GetPlan();
  void OnGetPlan(Call<v1::GetPlanRequest, v1::GetPlanResponse>& call, const absl::Status& status);
  void OnPart(const std::string& bytes);

  void Obey(const v1::SynchronizeAgentResponse& response);
  void ApplyArm(const v1::ArmOrder& order);
  void ApplySave(const v1::SaveOrder& order);
  void AdvanceSave();
  void OnStaged(uint64_t call);
  void OnWriteEnded(uint64_t call, uint32_t attempt, uint64_t nonce);
  absl::StatusOr<v1::WriteResult> WriteFiles(const v1::SaveOrder& order);
  void FailSave(const absl::Status& error);
  void ApplyLoad(const v1::LoadOrder& order);
  void AdvanceLoad();
  void OnReadPart(const std::string& digest, const std::string& bytes);

  AgentSurroundings& around_;
  const ThinAgentOptions options_;
  const std::string layout_digest_;
  const uint64_t incarnation_;
  const uint64_t trainer_;
  const std::shared_ptr<PeerChannel> channel_;
  std::minstd_rand random_;
  uint32_t shards_ = 0;  // of the layout: items of a plan before the objects

  bool stopped_ = false;
  bool registered_ = false;
  bool was_registered_ = false;
  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
  uint64_t sequence_ = 0;
  ReportShortener reports_;
  std::string last_plan_;  // the current plan of the last orders
  absl::Duration lease_ = absl::Seconds(10);
  absl::Duration pause_;
  uint64_t pauses_ = 0;  // counts them, so that a timer knows whether its own is still under way
  bool pausing_ = false;
  uint64_t version_ = 0;
  uint64_t sent_version_ = 0;
  grpc::ClientContext* waiting_ = nullptr;
  absl::Time heard_ = absl::InfinitePast();

  bool uploading_ = false;
  bool upload_ended_ = false;  // since the last request was sent
  uint64_t uploaded_bytes_ = 0;
  std::string wanted_plan_;  // being fetched; empty if none
  std::string incoming_;     // its bytes so far
  std::string plan_digest_;  // of the part that is here
  std::string part_bytes_;
  v1::WritePlan part_;
  std::string current_plan_;
  bool current_plan_checks_ = false;

  v1::ArmState arm_;
  std::optional<int64_t> current_step_;
  uint64_t calls_ = 0;
  uint64_t told_call_ = 0;  // of the save that the last request carried
  uint64_t told_load_ = 0;
  std::optional<SaveInWork> save_;
  std::optional<LoadInWork> load_;
  absl::Status error_;
};

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_THIN_AGENT_H_
