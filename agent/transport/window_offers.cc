#include "agent/transport/window_offers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// More than any plan has of one pair of ranks; it bounds what a consumer can make a source hold.
constexpr uint64_t kMostCopies = uint64_t{1} << 22;

absl::Status Bad(const std::string& what) { return MakeError(Reason::kBadRequest, what); }

}  // namespace

WindowOffers::WindowOffers(const v1::ReadPlan& plan) {
  for (const v1::ReadRound& round : plan.rounds()) {
    rounds_.push_back({round.buffer_bytes(), std::set<uint32_t>(round.consumers().begin(), round.consumers().end())});
  }
}

absl::Status WindowOffers::Take(const v1::OfferWindowsRequest& request) {
  MutexLock lock(mutex_);
  const uint32_t consumer = request.transfer().consumer_rank();
  Offer& kept = offers_[consumer];
  if (kept.complete || request.part() != kept.parts) {
    // The answer to an earlier call may have been lost.
    if (request.part() + 1 == kept.parts) return absl::OkStatus();
    return Bad(absl::StrCat("part ", request.part(), " of a list of windows, of which ", kept.parts, " have come"));
  }
  Offer taken = std::move(kept);
  absl::Status added;
  for (int i = 0; i < request.windows_size() && added.ok(); ++i) {
    added = Add(request.windows(i), consumer, i == 0, taken);
  }
  if (added.ok()) {
    ++taken.parts;
    taken.complete = request.last();
  }
  kept = std::move(taken);
  changed_.NotifyAll();
  return added;
}

absl::Status WindowOffers::Add(const v1::OfferedWindow& offered, uint32_t consumer, bool may_continue,
                               Offer& offer) const {
  if (offered.round() >= rounds_.size()) {
    return Bad(absl::StrCat("a window of round ", offered.round(), " of ", rounds_.size()));
  }
  const Round& round = rounds_[offered.round()];
  if (round.consumers.has_value() && !round.consumers->contains(consumer)) {
    return Bad(absl::StrCat("rank ", consumer, " takes nothing from round ", offered.round()));
  }
  // Windows are counted by their copies, so nobody may offer any number of empty ones.
  if (offered.copies().empty()) return Bad("a window without copies");
  const auto place = std::tuple(offered.round(), offered.window());
  const bool has_last = !offer.windows.empty();
  const auto last = has_last ? std::tuple(offer.windows.back().round, offer.windows.back().window) : place;
  const bool continues = has_last && may_continue && last == place;
  if (has_last && !continues && place <= last) return Bad("windows that do not ascend");
  offer.copies += static_cast<uint64_t>(offered.copies_size());
  if (offer.copies > kMostCopies) return Bad("too many copies in one exchange");
  if (!continues) offer.windows.push_back({offered.round(), offered.window(), {}});
  CopyWindow& window = offer.windows.back().copies;
  for (const v1::Copy& copy : offered.copies()) {
    CAIRN_RETURN_IF_ERROR(CheckSource(copy, round.bytes));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, CopyBytes(copy));
    // Consumers may take the same bytes often, but not so often that the sum cannot be counted.
    if (bytes > round.bytes || window.bytes > round.bytes) return Bad("a window that is larger than its source");
    window.bytes += bytes;
    window.copies.push_back(copy);
  }
  return absl::OkStatus();
}

absl::StatusOr<WindowOffers::ByConsumer> WindowOffers::Await(const std::vector<uint32_t>& consumers,
                                                             absl::Duration timeout) {
  const absl::Time until = Clock::Real().SteadyNow() + timeout;
  MutexLock lock(mutex_);
  while (true) {
    std::string missing;
    size_t count = 0;
    for (const uint32_t consumer : consumers) {
      const auto offer = offers_.find(consumer);
      if (offer == offers_.end() || !offer->second.complete) {
        absl::StrAppend(&missing, count++ == 0 ? "" : ", ", consumer);
      }
    }
    if (stopped_) return MakeError(Reason::kInterrupted, "the exchange has ended");
    if (missing.empty()) break;
    const absl::Duration left = until - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return MakeError(Reason::kTimedOut,
                       absl::StrCat(count == 1 ? "rank " : "ranks ", missing, count == 1 ? " has" : " have",
                                    " not said within ", absl::FormatDuration(timeout), " which windows to send"),
                       {{"ranks", missing}});
    }
    changed_.WaitFor(mutex_, left);
  }
  ByConsumer all;
  for (const uint32_t consumer : consumers) all[consumer] = std::move(offers_[consumer].windows);
  return all;
}

void WindowOffers::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace cairn
