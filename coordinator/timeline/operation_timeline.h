// Records what one save, load or reshard did with its time: when each rank came how far, so also who waited for whom.
//
//   call          from the first rank's call until this rank's own
//   wait          until the last rank has called, or until the last rank is done; it names that rank
//   plan          the coordinator plans
//   prepare       the agent takes its part of the plan, and makes room in memory
//   stage         the trainer copies into the slab; of a reshard, to where others read
//   order         all is staged, and the agent has no number of the attempt yet
//   write, read   the agent moves bytes; if other ranks' shards are missing it names such a rank
//   commit        all ranks are done, and the outcome is not there yet
//   abort         from the decision to give up until the end
//
// The times are those at which agents' reports arrive. Agents report each change of phase at once.
#ifndef CAIRN_COORDINATOR_TIMELINE_OPERATION_TIMELINE_H_
#define CAIRN_COORDINATOR_TIMELINE_OPERATION_TIMELINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/timeline.pb.h"
#include "common/base/rank_table.h"

namespace cairn {

// Says how far a rank has come. Each mark is set once, by the first report that says so.
enum class RankMark { kCalled, kStaging, kStaged, kMoving, kDone };
// Says how far the operation has come as a whole.
enum class OperationMark { kPlanned, kNumbered, kAborting };

// A function of what it is told. Not thread-safe while it records.
class OperationTimeline {
 public:
  // The ranks that an ended operation remembers one by one. So the memory of one has a bound, however large the world
  // is.
  static constexpr size_t kRanksKept = 256;

  // `wall` is shown to people.
  OperationTimeline(v1::Timeline::Kind kind, absl::Time now, absl::Time wall)
      : kind_(kind), begin_(now), begin_wall_(wall) {}

  void Mark(int rank, RankMark mark, absl::Time now);
  void Mark(OperationMark mark, absl::Time now);
  // The rank lacks shards of `awaited`, -1: of none any more.
  void Await(int rank, int awaited, absl::Time now);
  // The rank's call is in this operation no more: what was recorded of it is forgotten.
  void Forget(int rank);
  // The operation has ended. Keeps the ranks that tell most: those that were last and first in some phase, and then
  // others in equal distances.
  struct End {
    std::string job;
    // These became known while it went on; a load may prove to be a reshard.
    v1::Timeline::Kind kind = v1::Timeline::KIND_UNSPECIFIED;
    std::optional<int64_t> step;
    uint32_t attempt = 0;
    uint64_t bytes = 0;
    size_t world_size = 0;
    absl::Status error;               // also if it ended before a rank had called: then nothing is told of ranks
    std::vector<std::string> alarms;  // kinds, of a save that was committed
  };
  void Finish(End end, absl::Time now);

  absl::Time begin() const { return begin_; }
  bool ended() const { return duration_ >= 0; }
  v1::Timeline::Kind kind() const { return kind_; }
  const End& end() const { return end_; }
  absl::Duration duration() const { return absl::Microseconds(duration_); }
  absl::Time end_wall() const { return begin_wall_ + duration(); }

  // Says how long one part of the operation took, in which some rank was the last one.
  struct Stretch {
    v1::TimelineSpan::Phase phase = v1::TimelineSpan::PHASE_UNSPECIFIED;
    absl::Duration begin, end;
    // This rank ended it. If the operation was given up in it, these are the first ranks for which it waited. It is
    // empty if it waited for no rank.
    std::vector<int> last_ranks;
    // That rank was so much later than the one in the middle; not set for one that never came.
    absl::Duration behind;
  };
  // The parts of an ended operation in their order. They follow on each other and fill it.
  const std::vector<Stretch>& stretches() const { return stretches_; }

  // The ended operation as people get it.
  v1::Timeline View() const;

 private:
  static constexpr int64_t kNever = -1;
  struct Rank {
    int rank = 0;                                                             // once it has ended
    std::array<int64_t, 5> marks = {kNever, kNever, kNever, kNever, kNever};  // microseconds after begin_
    int awaited = -1;
    int64_t awaited_until = kNever;

    int64_t at(RankMark mark) const { return marks[static_cast<size_t>(mark)]; }
  };
  // Says who reached a mark last. If some never did, `at` is kNever, and `ranks` are the first of these.
  struct Last {
    std::vector<int> ranks;
    int64_t at = kNever;
    int64_t middle = kNever;
  };

  int64_t Offset(absl::Time now) const;
  Last LastOf(RankMark mark) const;
  void MakeStretches();
  void Thin();
  void AddSpans(const Rank& rank, v1::RankTimeline& view) const;

  v1::Timeline::Kind kind_;
  const absl::Time begin_;
  const absl::Time begin_wall_;
  RankTable<Rank> ranks_;      // until it has ended
  std::vector<Rank> thinned_;  // those that are kept of them
  std::array<int64_t, 3> marks_ = {kNever, kNever, kNever};
  int64_t duration_ = kNever;
  Last called_, staged_, done_;
  std::vector<Stretch> stretches_;
  End end_;
};

// "call", "wait", "plan" ...: as in the list above.
std::string SpanPhaseName(v1::TimelineSpan::Phase phase);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_TIMELINE_OPERATION_TIMELINE_H_
