// Keeps, for a source in an exchange over NCCL, which windows of its rounds each consumer has said that it takes.
#ifndef CAIRN_AGENT_TRANSPORT_WINDOW_OFFERS_H_
#define CAIRN_AGENT_TRANSPORT_WINDOW_OFFERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/transport/copy_packer.h"
#include "cairn/v1/plan.pb.h"
#include "cairn/v1/transfer_service.pb.h"
#include "common/base/mutex.h"

namespace cairn {

// A window of a round, which goes in one transfer.
struct OfferedCopies {
  uint32_t round = 0;
  uint32_t window = 0;
  CopyWindow copies;
  // All consumers take it alike: it goes to all of them at once.
  bool broadcast = false;
};

// Keeps the offers that came to this rank, for one exchange. Thread-safe.
class WindowOffers {
 public:
  // All may take of memory that has one round of `bytes`.
  explicit WindowOffers(uint64_t bytes) : rounds_{{bytes, std::nullopt}} {}
  // Only the consumers that the plan gives a round may take of it.
  explicit WindowOffers(const v1::ReadPlan& plan);

  // INVALID_ARGUMENT (BAD_REQUEST): the parts do not follow one another, windows do not ascend, copies lie outside of
  // the source, the consumer has no part in a round, or there are too many. Earlier parts of the consumer are kept
  // then.
  absl::Status Take(const v1::OfferWindowsRequest& request);

  // Says who the consumers of the exchange are; none is added later. When all of them have told everything, it is known
  // which windows they take alike.
  void Expect(const std::vector<uint32_t>& consumers);

  // Takes the numbers, in the list of one consumer, of the windows that all take alike.
  using Done = std::function<void(absl::StatusOr<std::vector<uint32_t>>)>;
  // Calls `done` once, when all have told; after Stop with NOT_FOUND (PLAN_UNKNOWN), as if the load were not known
  // here. Returns a number to forget the call by; 0 if `done` was called already.
  uint64_t AwaitBroadcast(uint32_t consumer, Done done);
  // Lets `done` be called no more, unless it is being called now.
  void Forget(uint64_t call);
  // Returns the expected consumers that have not told everything.
  std::vector<uint32_t> missing();

  using ByConsumer = std::map<uint32_t, std::vector<OfferedCopies>>;
  // Waits until all `consumers` have told everything, and gives it away.
  // DEADLINE_EXCEEDED (TIMED_OUT) names those that have not; CANCELLED (INTERRUPTED) after Stop.
  absl::StatusOr<ByConsumer> Await(const std::vector<uint32_t>& consumers, absl::Duration timeout);
  void Stop();

 private:
  struct Offer {
    uint32_t parts = 0;
    bool complete = false;
    uint64_t copies = 0;
    std::vector<OfferedCopies> windows;
  };
  struct Round {
    uint64_t bytes = 0;
    std::optional<std::set<uint32_t>> consumers;  // none: all ranks
  };
  struct Waiting {
    uint32_t consumer = 0;
    Done done;
  };
  absl::Status Add(const v1::OfferedWindow& offered, uint32_t consumer, bool may_continue, Offer& offer) const;
  absl::Status TakeLocked(const v1::OfferWindowsRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint32_t> Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Finds what all take alike, once all have told.
  void Compare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerWaiting();

  std::vector<Round> rounds_;  // do not change
  Mutex mutex_;
  CondVar changed_;
  std::map<uint32_t, Offer> offers_ ABSL_GUARDED_BY(mutex_);  // by consumer
  std::optional<std::vector<uint32_t>> expected_ ABSL_GUARDED_BY(mutex_);
  bool compared_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint32_t, std::vector<uint32_t>> broadcast_ ABSL_GUARDED_BY(mutex_);  // numbers, by consumer
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_WINDOW_OFFERS_H_
