#include "coordinator/timeline/operation_timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/time_proto.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

// As many ranks are named as awaited, if many never came.
constexpr size_t kAwaitedNamed = 8;

// Puts spans one after the other, without gaps.
class SpanWriter {
 public:
  explicit SpanWriter(google::protobuf::RepeatedPtrField<v1::TimelineSpan>& spans) : spans_(spans) {}

  void Until(int64_t time, v1::TimelineSpan::Phase phase, const std::vector<int>& awaited = {}) {
    if (time <= at_) return;
    v1::TimelineSpan& span = *spans_.Add();
    span.set_phase(phase);
    SetDuration(absl::Microseconds(at_), *span.mutable_begin());
    SetDuration(absl::Microseconds(time), *span.mutable_end());
    for (int rank : awaited) span.add_awaited_ranks(static_cast<uint32_t>(rank));
    at_ = time;
  }

 private:
  google::protobuf::RepeatedPtrField<v1::TimelineSpan>& spans_;
  int64_t at_ = 0;
};

}  // namespace

int64_t OperationTimeline::Offset(absl::Time now) const {
  return std::max<int64_t>(0, absl::ToInt64Microseconds(now - begin_));
}

void OperationTimeline::Mark(int rank, RankMark mark, absl::Time now) {
  if (ended() || rank < 0) return;
  int64_t& at = ranks_.At(static_cast<size_t>(rank)).marks[static_cast<size_t>(mark)];
  if (at == kNever) at = Offset(now);
}

void OperationTimeline::Mark(OperationMark mark, absl::Time now) {
  int64_t& at = marks_[static_cast<size_t>(mark)];
  if (!ended() && at == kNever) at = Offset(now);
}

void OperationTimeline::Await(int rank, int awaited, absl::Time now) {
  if (ended() || rank < 0) return;
  Rank& known = ranks_.At(static_cast<size_t>(rank));
  if (awaited >= 0) {
    known.awaited = awaited;
  } else if (known.awaited >= 0 && known.awaited_until == kNever) {
    known.awaited_until = Offset(now);
  }
}

void OperationTimeline::Forget(int rank) {
  if (ended() || rank < 0) return;
  ranks_.At(static_cast<size_t>(rank)) = Rank{};
}

OperationTimeline::Last OperationTimeline::LastOf(RankMark mark) const {
  std::vector<int64_t> times;
  Last last, lacking;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const int64_t at = ranks_[rank].at(mark);
    if (at == kNever) {
      if (lacking.ranks.size() < kAwaitedNamed) lacking.ranks.push_back(static_cast<int>(rank));
      continue;
    }
    times.push_back(at);
    if (at > last.at) last = {{static_cast<int>(rank)}, at, kNever};
  }
  if (times.size() < ranks_.size() || times.empty()) return lacking;
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  last.middle = *middle;
  return last;
}

void OperationTimeline::Finish(End end, absl::Time now) {
  if (ended()) return;
  end_ = std::move(end);
  if (end_.kind != v1::Timeline::KIND_UNSPECIFIED) kind_ = end_.kind;
  // If no rank has begun, then it was not for ranks that it waited: its error says for what.
  if (!ranks_.empty() && ranks_.size() < end_.world_size) ranks_.resize(end_.world_size);
  duration_ = Offset(now);
  called_ = LastOf(RankMark::kCalled);
  staged_ = LastOf(RankMark::kStaged);
  done_ = LastOf(RankMark::kDone);
  MakeStretches();
  Thin();
}

void OperationTimeline::MakeStretches() {
  const int64_t aborting = marks_[static_cast<size_t>(OperationMark::kAborting)];
  const int64_t forward = aborting == kNever ? duration_ : aborting;
  int64_t at = 0;
  // A part whose end never came lasts until the operation was given up.
  const auto until = [&](int64_t end, v1::TimelineSpan::Phase phase, const Last& last) {
    const int64_t time = end == kNever ? forward : std::min(end, forward);
    if (time <= at) return;
    Stretch stretch{phase, absl::Microseconds(at), absl::Microseconds(time), last.ranks};
    if (last.at != kNever) stretch.behind = absl::Microseconds(last.at - last.middle);
    stretches_.push_back(std::move(stretch));
    at = time;
  };
  until(called_.at, v1::TimelineSpan::CALL, called_);
  until(marks_[static_cast<size_t>(OperationMark::kPlanned)], v1::TimelineSpan::PLAN, {});
  if (kind_ != v1::Timeline::LOAD) until(staged_.at, v1::TimelineSpan::STAGE, staged_);
  until(done_.at, kind_ == v1::Timeline::SAVE ? v1::TimelineSpan::WRITE : v1::TimelineSpan::READ, done_);
  until(forward, v1::TimelineSpan::COMMIT, {});
  if (duration_ > at) {
    stretches_.push_back({v1::TimelineSpan::ABORT, absl::Microseconds(at), absl::Microseconds(duration_), {}, {}});
  }
}

void OperationTimeline::Thin() {
  if (ranks_.empty()) return;
  std::vector<bool> kept(ranks_.size(), false);
  size_t count = 0;
  const auto keep = [&](int rank) {
    if (rank < 0 || kept[static_cast<size_t>(rank)] || count >= kRanksKept) return;
    kept[static_cast<size_t>(rank)] = true;
    ++count;
  };
  std::vector<int> order;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) order.push_back(static_cast<int>(rank));
  const size_t each = std::min<size_t>(16, order.size());
  for (size_t mark = 0; mark < ranks_.front().marks.size(); ++mark) {
    // A mark that never came is the latest of all.
    const auto time = [&](int rank) { return static_cast<uint64_t>(ranks_[static_cast<size_t>(rank)].marks[mark]); };
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(each), order.end(),
                      [&](int a, int b) { return std::pair(time(b), a) < std::pair(time(a), b); });
    for (size_t i = 0; i < each; ++i) keep(order[i]);
    keep(*std::min_element(order.begin(), order.end(),
                           [&](int a, int b) { return std::pair(time(a), a) < std::pair(time(b), b); }));
  }
  for (size_t i = 0; i < kRanksKept; ++i) keep(static_cast<int>(i * ranks_.size() / kRanksKept));
  thinned_.reserve(count);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!kept[rank]) continue;
    thinned_.push_back(ranks_[rank]);
    thinned_.back().rank = static_cast<int>(rank);
  }
  ranks_.clear();
}

void OperationTimeline::AddSpans(const Rank& rank, v1::RankTimeline& view) const {
  using Span = v1::TimelineSpan;
  const int64_t aborting = marks_[static_cast<size_t>(OperationMark::kAborting)];
  const int64_t forward = aborting == kNever ? duration_ : aborting;
  const bool save = kind_ == v1::Timeline::SAVE;
  SpanWriter spans(*view.mutable_spans());
  // A time that never came is that of the end, because the rank was still in the phase before it.
  const auto until = [&](int64_t time, Span::Phase phase, const std::vector<int>& awaited = {}) {
    spans.Until(time == kNever ? forward : std::min(time, forward), phase, awaited);
  };
  until(rank.at(RankMark::kCalled), Span::CALL);
  until(called_.at, Span::WAIT, called_.ranks);
  until(marks_[static_cast<size_t>(OperationMark::kPlanned)], Span::PLAN);
  const int64_t staged = rank.at(RankMark::kStaged);
  const int64_t moving = rank.at(RankMark::kMoving);
  const int64_t done = rank.at(RankMark::kDone);
  if (kind_ == v1::Timeline::LOAD) {
    until(moving == kNever ? done : moving, Span::PREPARE);
  } else {
    const int64_t staging = rank.at(RankMark::kStaging);
    until(staging == kNever ? staged : staging, Span::PREPARE);
    until(staged, Span::STAGE);
  }
  if (save) {
    // Reports may have told the writing and its end at once.
    const int64_t numbered = marks_[static_cast<size_t>(OperationMark::kNumbered)];
    until(moving == kNever && done != kNever ? std::max(staged, numbered) : moving, Span::ORDER);
  }
  const Span::Phase move = save ? Span::WRITE : Span::READ;
  if (rank.awaited >= 0) until(rank.awaited_until, move, {rank.awaited});
  until(done, move);
  until(done_.at, Span::WAIT, done_.ranks);
  until(forward, Span::COMMIT);
  spans.Until(duration_, Span::ABORT);
}

v1::Timeline OperationTimeline::View() const {
  v1::Timeline view;
  view.set_job(end_.job);
  view.set_kind(kind_);
  if (end_.step.has_value()) view.set_step(*end_.step);
  view.set_attempt(end_.attempt);
  SetTimestamp(begin_wall_, *view.mutable_begin_time());
  SetDuration(duration(), *view.mutable_duration());
  if (!end_.error.ok()) *view.mutable_error() = StatusToProto(end_.error);
  view.set_bytes(end_.bytes);
  for (const std::string& alarm : end_.alarms) view.add_alarms(alarm);
  view.set_world_size(static_cast<uint32_t>(end_.world_size));
  for (const Stretch& stretch : stretches_) {
    v1::TimelineSpan& span = *view.add_spans();
    span.set_phase(stretch.phase);
    SetDuration(stretch.begin, *span.mutable_begin());
    SetDuration(stretch.end, *span.mutable_end());
    for (int rank : stretch.last_ranks) span.add_awaited_ranks(static_cast<uint32_t>(rank));
  }
  for (const Rank& rank : thinned_) {
    v1::RankTimeline& entry = *view.add_ranks();
    entry.set_rank(static_cast<uint32_t>(rank.rank));
    AddSpans(rank, entry);
  }
  if (end_.world_size > thinned_.size()) {
    view.set_ranks_left_out(static_cast<uint32_t>(end_.world_size - thinned_.size()));
  }
  return view;
}

std::string SpanPhaseName(v1::TimelineSpan::Phase phase) {
  return absl::AsciiStrToLower(v1::TimelineSpan::Phase_Name(phase));
}

}  // namespace cairn
