// Loads: see the diagram in session.h.
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/session/session.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

constexpr size_t kKeptLoads = 16;

}  // namespace

Session::Load* Session::FindLoad(uint64_t number) {
  const auto load = loads_.find(number);
  return load == loads_.end() ? nullptr : &load->second;
}

absl::Status Session::BadLoad(uint64_t number, std::string_view what) const {
  return MakeError(Reason::kBadRequest,
                   absl::StrCat(options_.job, ": rank ", options_.rank, ": load ", number, " ",
                                absl::string_view(what.data(), what.size())),
                   {{"job", options_.job}, {"rank", absl::StrCat(options_.rank)}});
}

absl::StatusOr<v1::BeginLoadResponse> Session::BeginLoad(const v1::BeginLoadRequest& request) {
  CAIRN_RETURN_IF_ERROR(CheckAttached(request.trainer_incarnation()));
  v1::BeginLoadResponse response;
  const auto layout = layouts_.find(request.layout().digest());
  if (layout == layouts_.end()) {
    response.set_need_layout(true);
    return response;
  }
  RankLayoutPtr source;
  if (request.has_source()) {
    const auto known = layouts_.find(request.source().digest());
    if (known == layouts_.end()) {
      response.set_need_source(true);
      return response;
    }
    source = known->second;
  }
  if (request.number() == 0) return BadLoad(0, "is none: loads are counted from 1");
  Load* load = FindLoad(request.number());
  if (load != nullptr && load->trainer != request.trainer_incarnation()) {
    // One of a trainer that has ended; what it holds must be given back before the number can be used again.
    StopReading(*load);
    if (load->reading) {
      SetPending(response);
      return response;
    }
    loads_.erase(request.number());
    load = nullptr;
  }
  if (load == nullptr) {
    // A trainer has one load at a time. This call of it was overtaken, or the last one was given up without a word.
    for (auto& [number, other] : loads_) {
      if (other.trainer != request.trainer_incarnation()) continue;
      if (number > request.number()) return BadLoad(request.number(), absl::StrCat("was followed by load ", number));
      if (!other.ended) {
        Fail(other, MakeError(Reason::kInterrupted,
                              absl::StrCat("rank ", options_.rank, ": the trainer gave the load up and began another"),
                              {{"job", options_.job}, {"rank", absl::StrCat(options_.rank)}}));
      }
    }
    ForgetEndedLoads();
    load = &loads_[request.number()];
    load->number = request.number();
    load->trainer = request.trainer_incarnation();
    if (request.has_step()) load->wanted_step = request.step();
    load->layout = layout->second;
    load->source_layout = std::move(source);
    load->strict = request.strict();
    load->fallback = request.fallback();
    Changed();
  }
  if (!load->error.ok()) return load->error;
  if (load->ended) {
    return BadLoad(request.number(), "has ended");
  }
  if (load->plan == nullptr || (load->source_layout != nullptr && !load->source_memory)) {
    SetPending(response);
    return response;
  }
  if (load->source_memory) {
    response.mutable_source_memory()->set_descriptor_id(load->source_memory->descriptor_id);
    response.mutable_source_memory()->set_bytes(load->source_memory->bytes);
    const SaveImage& image = *load->source_image;
    for (uint32_t item = 0; item < image.slab_offset.size(); ++item) {
      if (image.slab_offset[item] == SaveImage::kNotStaged) continue;
      v1::Placement* placement = response.add_source_placements();
      placement->set_item(item);
      placement->set_slab_offset(image.slab_offset[item]);
      placement->set_bytes(image.layout->items[item].bytes());
    }
  }
  response.set_step(load->order.step());
  *response.mutable_objects() = load->plan->objects();
  *response.mutable_missing_names() = load->order.missing_names();
  *response.mutable_unexpected_names() = load->order.unexpected_names();
  *response.mutable_passed_over_steps() = load->order.passed_over_steps();
  response.set_world_size(load->order.world_size());
  response.set_mapping_report(load->plan->mapping_report());
  return response;
}

absl::Status Session::CommitSource(const v1::CommitSourceRequest& request) {
  CAIRN_RETURN_IF_ERROR(CheckLoad(request.trainer_incarnation(), request.number()));
  Load& load = *FindLoad(request.number());
  if (!load.source_memory) {
    return BadLoad(request.number(), "has no memory for a source");
  }
  if (std::exchange(load.source_staged, true)) return absl::OkStatus();
  Do(action::LendSource{load.number});
  Changed();
  return absl::OkStatus();
}

absl::Status Session::CheckLoad(uint64_t trainer, uint64_t number) const {
  CAIRN_RETURN_IF_ERROR(CheckAttached(trainer));
  const auto load = loads_.find(number);
  if (load == loads_.end() || load->second.trainer != trainer) {
    return BadLoad(number, "was not begun");
  }
  return load->second.error;
}

bool Session::LoadHasEnded(uint64_t number) const {
  const auto load = loads_.find(number);
  return load != loads_.end() && load->second.ended;
}

absl::StatusOr<v1::EndLoadResponse> Session::EndLoad(const v1::EndLoadRequest& request) {
  CAIRN_RETURN_IF_ERROR(CheckAttached(request.trainer_incarnation()));
  v1::EndLoadResponse response;
  Load* load = FindLoad(request.number());
  if (load == nullptr || load->trainer != request.trainer_incarnation()) {
    return BadLoad(request.number(), "was not begun");
  }
  if (request.has_error() && request.error().code() != 0 && !load->ended && load->error.ok()) {
    absl::Status error = StatusFromProto(request.error());
    if (!ReasonOf(error)) {
      error = MakeError(Reason::kInterrupted,
                        absl::StrCat("rank ", options_.rank, ": the trainer gave the load up: ", error.message()),
                        {{"job", options_.job}, {"rank", absl::StrCat(options_.rank)}});
    }
    Fail(*load, error);
    Advance();
  }
  if (!load->error.ok()) {
    // What all ranks are told names more than what this one knew when it gave up: whom it waited for, what to do next.
    if (!load->ended && request.has_error()) {
      response.set_pending(true);
      return response;
    }
    return load->error;
  }
  if (load->plan == nullptr && !load->ended) return BadLoad(request.number(), "has no plan yet");
  if (!std::exchange(load->consumed, true)) {
    Changed();
    Advance();
  }
  if (!load->ended) {
    response.set_pending(true);
    return response;
  }
  // What a reshard takes from memory is not read from storage.
  response.set_bytes_read(load->read_bytes);
  response.set_total_bytes_read(load->order.total_bytes_read());
  response.set_unique_bytes(load->order.unique_bytes());
  response.set_storage_bytes(load->order.storage_bytes());
  const v1::IoPath io_path = load->order.io_path();
  response.set_io_path(io_path == v1::IO_PATH_UNSPECIFIED ? load->io_path : io_path);
  return response;
}

void Session::Fail(Load& load, absl::Status error) {
  if (load.error.ok()) load.error = std::move(error);
  if (load.phase != v1::LoadState::STOPPED) load.phase = v1::LoadState::FAILED;
  Changed();
}

void Session::End(Load& load) {
  load.ended = true;
  load.layout.reset();
  load.source_layout.reset();
  load.source_image.reset();
  load.plan.reset();
  load.fetched.reset();
  Changed();
}

void Session::ForgetEndedLoads() {
  // One that failed while the coordinator was away, and holds nothing, need not be told to it.
  for (auto load = loads_.begin(); load != loads_.end() && loads_.size() >= kKeptLoads;) {
    const bool over = (load->second.ended || !load->second.error.ok()) && !load->second.reading;
    load = over ? loads_.erase(load) : std::next(load);
  }
}

void Session::StopReading(Load& load) {
  if (!load.reading || std::exchange(load.stopping, true)) return;
  Do(action::StopRead{load.number});
}

void Session::ApplyLoad(const v1::LoadOrder& order) {
  Load* load = FindLoad(order.number());
  const auto told = told_loads_.find(order.number());
  if (load == nullptr || load->ended || told == told_loads_.end() || told->second != load->trainer) return;
  if (order.trainer_incarnation() != 0 && order.trainer_incarnation() != load->trainer) return;
  switch (order.action()) {
    case v1::LoadOrder::READ:
      if (load->phase == v1::LoadState::BEGUN) load->order = order;
      return;  // Advance follows
    case v1::LoadOrder::DONE:
      load->order = order;
      StopReading(*load);
      End(*load);
      return;
    case v1::LoadOrder::ABORT:
    case v1::LoadOrder::FAILED:
      // What the coordinator says is told to all ranks, and holds what this rank had said.
      if (load->error.ok() || order.action() == v1::LoadOrder::FAILED) {
        absl::Status verdict = StatusFromProto(order.error());
        if (!verdict.ok()) load->error = std::move(verdict);
      }
      if (load->error.ok()) {
        load->error = MakeError(Reason::kInterrupted, absl::StrCat("rank ", options_.rank, ": the load was aborted"),
                                {{"job", options_.job}, {"rank", absl::StrCat(options_.rank)}});
      }
      StopReading(*load);
      if (!load->reading && load->phase != v1::LoadState::STOPPED) {
        load->phase = v1::LoadState::STOPPED;
        Changed();
      }
      if (order.action() == v1::LoadOrder::FAILED) End(*load);
      return;
    default:
      return;
  }
}

absl::Status Session::TakeReadPlan(Load& load, const std::string& bytes) {
  auto plan = std::make_shared<v1::ReadPlan>();
  if (!plan->ParseFromString(bytes) || plan->plan_digest() != load.order.plan_digest() ||
      plan->rank() != options_.rank || plan->layout_digest() != load.layout->digest) {
    return MakeError(Reason::kInternal,
                     absl::StrCat("rank ", options_.rank, ": the coordinator sent something else for plan ",
                                  DigestHex(load.order.plan_digest()).substr(0, 12)));
  }
  std::set<uint32_t> sources;
  for (const v1::Copy& copy : plan->copies()) {
    if (copy.source_rank() != options_.rank) sources.insert(copy.source_rank());
  }
  load.sources.assign(sources.begin(), sources.end());
  load.fetched = std::move(plan);
  return absl::OkStatus();
}

void Session::AdvanceLoad(Load& load) {
  if (load.phase == v1::LoadState::BEGUN && load.order.action() == v1::LoadOrder::READ && load.plan == nullptr) {
    if (load.fetched == nullptr || load.fetched->plan_digest() != load.order.plan_digest()) {
      const std::string* bytes = WantPlan(load.order.plan_digest());
      if (bytes == nullptr) return;
      if (const absl::Status taken = TakeReadPlan(load, *bytes); !taken.ok()) return Fail(load, taken);
    }
    // The image and the peers are asked for side by side.
    std::optional<PeerMap> peers = WantPeers(load.sources);
    if (load.source_layout != nullptr) {
      auto image = WantImage(load.order.source_plan_digest(), load.source_layout);
      if (!image.ok()) return Fail(load, image.status());
      if (*image == nullptr) return;
      load.source_image = *std::move(image);
    }
    if (!peers.has_value()) return;
    load.plan = load.fetched;
    if (load.source_layout == nullptr) load.read_bytes = load.plan->read_bytes();
    load.reading = true;
    load.phase = v1::LoadState::READING;
    Do(action::StartRead{load.number, load.trainer, load.plan, load.order, *std::move(peers), load.source_image});
    Changed();
    return;
  }
  if (load.phase == v1::LoadState::READING && load.consumed && load.all_read) {
    load.phase = v1::LoadState::DONE;
    Changed();
  }
}

void Session::OnSource(uint64_t number, SlabDescription memory) {
  Load* load = FindLoad(number);
  if (load == nullptr || !load->reading) return;
  load->source_memory = memory;
  Changed();
}

void Session::OnReadProgress(uint64_t number, const ReadProgress& progress) {
  Load* load = FindLoad(number);
  if (load == nullptr || !load->reading) return;
  load->bytes_done = progress.bytes_done;
  load->storage_bytes = progress.storage_bytes;
  load->io_path = progress.io_path;
  if (progress.all_read && !load->all_read) {
    load->all_read = true;
    Changed();
    Advance();
  }
}

void Session::OnReadFailed(uint64_t number, const absl::Status& status) {
  Load* load = FindLoad(number);
  if (load == nullptr || !load->reading || load->ended) return;
  ErrorMetadata metadata = {{"job", options_.job}, {"rank", absl::StrCat(options_.rank)}};
  if (load->source_layout == nullptr) metadata.emplace_back("step", absl::StrCat(load->order.step()));
  Fail(*load, Annotate(status, absl::StrCat("rank ", options_.rank), metadata));
}

void Session::OnReadStopped(uint64_t number) {
  Load* load = FindLoad(number);
  if (load == nullptr) return;
  load->reading = false;
  load->stopping = false;
  if (!load->error.ok()) load->phase = v1::LoadState::STOPPED;
  Advance();
  Changed();
}

v1::LoadState Session::StateOf(const Load& load) const {
  v1::LoadState state;
  state.set_number(load.number);
  state.set_phase(load.phase);
  if (load.wanted_step) state.set_step(*load.wanted_step);
  state.set_layout_digest(load.layout->digest);
  state.set_strict(load.strict);
  state.set_fallback(load.fallback);
  if (load.plan) {
    state.set_plan_digest(load.plan->plan_digest());
    state.set_bytes_total(load.plan->read_bytes());
  }
  state.set_bytes_done(load.bytes_done);
  if (!load.error.ok()) *state.mutable_error() = StatusToProto(load.error);
  state.set_storage_bytes(load.storage_bytes);
  state.set_io_path(load.io_path);
  state.set_trainer_incarnation(load.trainer);
  if (load.source_layout != nullptr) {
    state.set_source_layout_digest(load.source_layout->digest);
    state.set_source_staged(load.source_staged);
  }
  return state;
}

}  // namespace cairn
