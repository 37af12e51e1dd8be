#include "agent/transport/window_offers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/duration_text.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// More than any plan has of one pair of ranks; it bounds what a consumer can make a source hold.
constexpr uint64_t kMostCopies = uint64_t{1} << 22;

absl::Status Bad(const std::string& what) { return MakeError(Reason::kBadRequest, what); }

bool Alike(const v1::Copy& a, const v1::Copy& b) {
  const auto equal = [](const auto& one, const auto& other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end());
  };
  return a.source_offset() == b.source_offset() && a.element_bytes() == b.element_bytes() &&
         equal(a.extents(), b.extents()) && equal(a.source_strides(), b.source_strides());
}

bool Alike(const OfferedCopies& a, const OfferedCopies& b) {
  return a.round == b.round && a.window == b.window && a.copies.copies.size() == b.copies.copies.size() &&
         std::equal(a.copies.copies.begin(), a.copies.copies.end(), b.copies.copies.begin(),
                    [](const v1::Copy& one, const v1::Copy& other) { return Alike(one, other); });
}

}  // namespace

WindowOffers::WindowOffers(const v1::ReadPlan& plan) {
  for (const v1::ReadRound& round : plan.rounds()) {
    rounds_.push_back({round.buffer_bytes(), std::set<uint32_t>(round.consumers().begin(), round.consumers().end())});
  }
}

absl::Status WindowOffers::Take(const v1::OfferWindowsRequest& request) {
  absl::Status taken;
  {
    MutexLock lock(mutex_);
    taken = TakeLocked(request);
    Compare();
  }
  AnswerWaiting();
  return taken;
}

void WindowOffers::Expect(const std::vector<uint32_t>& consumers) {
  {
    MutexLock lock(mutex_);
    expected_ = consumers;
    Compare();
  }
  AnswerWaiting();
}

std::vector<uint32_t> WindowOffers::Missing() const {
  std::vector<uint32_t> missing;
  for (const uint32_t consumer : expected_.value_or(std::vector<uint32_t>())) {
    const auto offer = offers_.find(consumer);
    if (offer == offers_.end() || !offer->second.complete) missing.push_back(consumer);
  }
  return missing;
}

std::vector<uint32_t> WindowOffers::missing() {
  MutexLock lock(mutex_);
  return Missing();
}

void WindowOffers::Compare() {
  if (compared_ || !expected_.has_value() || !Missing().empty()) return;
  compared_ = true;
  if (expected_->size() < 2) return;  // one consumer is sent to
  // Where each one's next window stands: windows ascend.
  std::map<uint32_t, size_t> at;
  for (OfferedCopies& first : offers_[expected_->front()].windows) {
    const bool all =
        first.copies.bytes > 0 && std::all_of(expected_->begin(), expected_->end(), [&](uint32_t consumer) {
          const std::vector<OfferedCopies>& windows = offers_[consumer].windows;
          size_t& next = at[consumer];
          while (next < windows.size() &&
                 std::tie(windows[next].round, windows[next].window) < std::tie(first.round, first.window)) {
            ++next;
          }
          return next < windows.size() && Alike(windows[next], first);
        });
    if (!all) continue;
    for (const uint32_t consumer : *expected_) {
      offers_[consumer].windows[at[consumer]].broadcast = true;
      broadcast_[consumer].push_back(static_cast<uint32_t>(at[consumer]));
    }
  }
}

uint64_t WindowOffers::AwaitBroadcast(uint32_t consumer, Done done) {
  uint64_t call = 0;
  {
    MutexLock lock(mutex_);
    call = next_call_++;
    waiting_.emplace(call, Waiting{consumer, std::move(done)});
    if (!compared_ && !stopped_) return call;
  }
  AnswerWaiting();
  return 0;
}

void WindowOffers::Forget(uint64_t call) {
  MutexLock lock(mutex_);
  waiting_.erase(call);
}

void WindowOffers::AnswerWaiting() {
  std::vector<std::pair<Done, absl::StatusOr<std::vector<uint32_t>>>> answers;
  {
    MutexLock lock(mutex_);
    if (!compared_ && !stopped_) return;
    for (auto& [call, waiting] : waiting_) {
      absl::StatusOr<std::vector<uint32_t>> answer = broadcast_[waiting.consumer];
      if (!compared_) answer = MakeError(Reason::kPlanUnknown, "the exchange has ended");
      answers.emplace_back(std::move(waiting.done), std::move(answer));
    }
    waiting_.clear();
  }
  for (auto& [done, answer] : answers) done(std::move(answer));
}

absl::Status WindowOffers::TakeLocked(const v1::OfferWindowsRequest& request) {
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
                                    " not said within ", DurationText(timeout), " which windows to send"),
                       {{"ranks", missing}});
    }
    changed_.WaitFor(mutex_, left);
  }
  ByConsumer all;
  for (const uint32_t consumer : consumers) all[consumer] = std::move(offers_[consumer].windows);
  return all;
}

void WindowOffers::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  AnswerWaiting();
}

}  // namespace cairn
