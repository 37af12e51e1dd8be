// Loads of a thin agent, as agent/session/rank_loads.cc makes them.
#include "benchmarks/control_plane/thin_agent.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {

void ThinAgent::Load(uint64_t number, std::optional<int64_t> step) {
  if (stopped_) return;
  LoadInWork& load = load_.emplace();
  load.state.set_number(number);
  load.state.set_phase(v1::Phase::PLANNING);
  if (step) load.state.set_step(*step);
  load.state.set_layout_digest(layout_digest_);
  load.state.set_strict(true);
  load.state.set_trainer_incarnation(trainer_);
  Changed();
}

void ThinAgent::ApplyLoad(const v1::LoadOrder& order) {
  if (!load_ || order.number() != load_->state.number() || told_load_ != order.number()) return;
  if (order.trainer_incarnation() != 0 && order.trainer_incarnation() != trainer_) return;
  switch (order.phase()) {
    case v1::Phase::READING:
      if (load_->state.phase() != v1::Phase::PLANNING) return;
      if (load_->order.phase() != v1::Phase::READING) around_.reached(Milestone::kReadOrder, options_.rank);
      load_->order = order;
      return;  // AdvanceLoad follows
    case v1::Phase::ABORTING:
      if (load_->state.phase() == v1::Phase::STOPPED) return;
      error_ = StatusFromProto(order.error());
      load_->state.set_phase(v1::Phase::STOPPED);
      return Changed();
    case v1::Phase::DONE:
    case v1::Phase::FAILED: {
      const bool done = order.phase() == v1::Phase::DONE;
      if (!done) error_ = StatusFromProto(order.error());
      load_.reset();
      around_.reached(done ? Milestone::kLoaded : Milestone::kLoadFailed, options_.rank);
      return Changed();
    }
    default:
      return;
  }
}

void ThinAgent::AdvanceLoad() {
  if (!load_ || load_->state.phase() != v1::Phase::PLANNING) return;
  if (load_->order.phase() == v1::Phase::READING) WantPart(load_->order.plan_digest());
}

void ThinAgent::OnReadPart(const std::string& digest, const std::string& bytes) {
  if (!load_) return;
  // It leaves the shared objects packed: all agents share a thread here, and each has a machine in life.
  v1::ReadPlan plan;
  if (!plan.ParseFromString(bytes) || plan.plan_digest() != digest) {
    load_->state.set_phase(v1::Phase::FAILED);
    *load_->state.mutable_error() = StatusToProto(MakeError(Reason::kInternal, "the read plan is another one"));
    return Changed();
  }
  around_.reached(Milestone::kReadPart, options_.rank);
  load_->state.set_plan_digest(digest);
  load_->state.set_bytes_total(plan.read_bytes());
  load_->state.set_phase(v1::Phase::READING);
  around_.After(options_.read_time, [this, number = load_->state.number(), read = plan.read_bytes()] {
    if (stopped_ || !load_ || load_->state.number() != number || load_->state.phase() != v1::Phase::READING) {
      return;
    }
    load_->state.set_phase(v1::Phase::DONE);
    load_->state.set_bytes_done(read);
    load_->state.set_storage_bytes(read);
    load_->state.set_io_path(v1::IO_PATH_DIRECT);
    Changed();
  });
  return Changed();
}

}  // namespace cairn
