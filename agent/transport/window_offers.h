// The consumers of an exchange over NCCL tell a source by these which windows of its rounds they take.
#ifndef CAIRN_AGENT_TRANSPORT_WINDOW_OFFERS_H_
#define CAIRN_AGENT_TRANSPORT_WINDOW_OFFERS_H_

#include <cstdint>
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
  absl::Status Add(const v1::OfferedWindow& offered, uint32_t consumer, bool may_continue, Offer& offer) const;

  std::vector<Round> rounds_;  // do not change
  Mutex mutex_;
  CondVar changed_;
  std::map<uint32_t, Offer> offers_ ABSL_GUARDED_BY(mutex_);  // by consumer
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_WINDOW_OFFERS_H_
