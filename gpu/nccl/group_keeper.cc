#include "gpu/nccl/group_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/process/log.h"
#include "common/status/named_ranks.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Less than the time that the coordinator waits for a group.
constexpr absl::Duration kJoinTimeout = absl::Seconds(25);
constexpr absl::Duration kIdTimeout = absl::Seconds(10);
constexpr size_t kMostRanks = 4096;

}  // namespace

void GroupKeeper::Follow(const std::vector<v1::GroupOrder>& orders) {
  std::optional<v1::GroupOrder> order;
  if (!orders.empty()) order = orders.front();  // there is at most one
  {
    MutexLock lock(mutex_);
    // The queue's thread may wait in a call of the old group's worker, which this cancels.
    const bool over = current_ != nullptr && (!order.has_value() || order->number() != current_->number);
    if (over && current_->worker != nullptr) current_->worker->Cancel();
  }
  queue_.Post([this, order = std::move(order)] { FollowNow(order); });
}

void GroupKeeper::FollowNow(const std::optional<v1::GroupOrder>& order) {
  v1::GroupState state;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    state = state_;
  }
  if (!order.has_value() || state.number() != order->number()) {
    if (state.number() != 0) EndNow();
    if (!order.has_value()) return;
    if (const absl::Status begun = Begin(*order); !begun.ok()) {
      return ReportBroken(begun);
    }
    return FollowNow(order);
  }
  if (state.phase() != v1::GroupState::BUILDING || order->unique_id().empty()) return;
  if (const absl::Status joined = Join(*order); joined.ok()) {
    Report(v1::GroupState::READY);
  } else {
    ReportBroken(joined);
  }
}

absl::Status GroupKeeper::Begin(const v1::GroupOrder& order) {
  auto group = std::make_shared<GroupWorker>();
  group->number = order.number();
  group->ranks.assign(order.ranks().begin(), order.ranks().end());
  {
    MutexLock lock(mutex_);
    state_.Clear();
    state_.set_number(order.number());
    state_.set_phase(v1::GroupState::BUILDING);
  }
  const auto own = std::find(group->ranks.begin(), group->ranks.end(), options_.rank);
  if (own == group->ranks.end() || group->ranks.size() > kMostRanks) {
    return MakeError(Reason::kInternal, "this rank is not a member of the group");
  }
  CAIRN_ASSIGN_OR_RETURN(group->worker, WorkerProcess::Start(options_.worker));
  Log(LogLevel::kInfo, "gpu_worker_started",
      {{"group", group->number}, {"pid", group->worker->pid()}, {"ranks", group->ranks.size()}});
  WorkerProcess& worker = *group->worker;
  {
    MutexLock lock(mutex_);
    current_ = group;
  }
  if (own != group->ranks.begin()) {
    Report(v1::GroupState::BUILDING);
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(std::string id, worker.MakeUniqueId(kIdTimeout));
  {
    MutexLock lock(mutex_);
    state_.set_unique_id(std::move(id));
  }
  Report(v1::GroupState::BUILDING);
  return absl::OkStatus();
}

absl::Status GroupKeeper::Join(const v1::GroupOrder& order) {
  std::shared_ptr<GroupWorker> group;
  std::string own_id;
  {
    MutexLock lock(mutex_);
    group = current_;
    own_id = state_.unique_id();
  }
  if (!own_id.empty() && own_id != order.unique_id()) {
    return MakeError(Reason::kInternal, "the group's id is not the one that this rank has made");
  }
  worker::Join join;
  join.set_device(options_.device);
  join.set_rank(
      static_cast<uint32_t>(std::find(group->ranks.begin(), group->ranks.end(), options_.rank) - group->ranks.begin()));
  join.set_ranks(static_cast<uint32_t>(group->ranks.size()));
  join.set_unique_id(order.unique_id());
  CAIRN_ASSIGN_OR_RETURN(const uint64_t device_bytes, group->worker->Join(join, kJoinTimeout));
  MutexLock lock(mutex_);
  state_.clear_unique_id();  // not needed any more
  state_.set_device_bytes(device_bytes);
  return absl::OkStatus();
}

void GroupKeeper::Report(v1::GroupState::Phase phase) {
  v1::GroupState state;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    state_.set_phase(phase);
    state = state_;
  }
  if (phase == v1::GroupState::READY) {
    Log(LogLevel::kInfo, "group_ready", {{"group", state.number()}, {"device_bytes", state.device_bytes()}});
  }
  options_.on_change({std::move(state)});
}

void GroupKeeper::ReportBroken(const absl::Status& why) {
  v1::GroupState state;
  std::shared_ptr<GroupWorker> ended;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    state_.set_phase(v1::GroupState::BROKEN);
    state_.set_error(std::string(why.message()));
    if (MetadataOf(why).contains(std::string(kWorkerAtFault))) {
      state_.add_faulty_ranks(options_.rank);
    } else {
      for (const int rank : RanksNamedIn(why)) state_.add_faulty_ranks(static_cast<uint32_t>(rank));
    }
    state_.clear_unique_id();
    ended = std::move(current_);
    state = broken_ = state_;
  }
  Log(LogLevel::kWarn, "group_broken", {{"group", state.number()}, {"error", why}});
  options_.on_change({std::move(state)});
  if (ended != nullptr) ended->worker->End();  // on this thread, so that no user of the group waits for it
}

void GroupKeeper::EndNow() {
  std::shared_ptr<GroupWorker> ended;
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    ended = std::move(current_);
    number = state_.number();
    state_.Clear();
  }
  if (ended != nullptr) ended->worker->End();
  Log(LogLevel::kInfo, "group_ended", {{"group", number}});
  options_.on_change({});
}

std::shared_ptr<GroupWorker> GroupKeeper::Find(uint64_t number) {
  std::shared_ptr<GroupWorker> found = FindAny();
  return found != nullptr && found->number == number ? found : nullptr;
}

std::shared_ptr<GroupWorker> GroupKeeper::FindAny() {
  MutexLock lock(mutex_);
  return state_.phase() == v1::GroupState::READY ? current_ : nullptr;
}

absl::Status GroupKeeper::WhyNot(uint64_t number) {
  MutexLock lock(mutex_);
  const std::string broken = "the group of the exchange over NCCL has broken";
  if (broken_.number() != number) return MakeError(Reason::kTransportFailed, broken);
  ErrorMetadata metadata;
  if (broken_.faulty_ranks_size() > 0) metadata.emplace_back("ranks", absl::StrJoin(broken_.faulty_ranks(), ", "));
  return MakeError(Reason::kTransportFailed, absl::StrCat(broken, ": ", broken_.error()), metadata);
}

void GroupKeeper::Break(uint64_t number, const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (state_.number() != number || current_ == nullptr) return;
    current_->worker->Cancel();
  }
  queue_.Post([this, number, why] {
    {
      MutexLock lock(mutex_);
      if (state_.number() != number || state_.phase() == v1::GroupState::BROKEN) return;
    }
    ReportBroken(why);
  });
}

void GroupKeeper::Stop() {
  std::shared_ptr<GroupWorker> ended;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    if (current_ != nullptr && current_->worker != nullptr) current_->worker->Cancel();
  }
  queue_.Stop();
  {
    MutexLock lock(mutex_);
    ended = std::move(current_);
  }
  if (ended != nullptr) ended->worker->End();
}

}  // namespace cairn
