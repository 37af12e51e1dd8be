// Holds what simulations of the coordinator's decisions share: a clock that jumps from event to event, chance that
// comes from one seed, and the first violation that was found.
#ifndef CAIRN_COORDINATOR_TESTING_SIMULATION_H_
#define CAIRN_COORDINATOR_TESTING_SIMULATION_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace cairn {

// A world derives from it. Equal seeds give equal runs, as long as the world takes its chances in the same order.
class Simulation {
 protected:
  explicit Simulation(uint64_t seed) : random_(seed) {}

  bool Chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  // Returns a number from 0 to n - 1.
  int Pick(int n) { return std::uniform_int_distribution<>(0, n - 1)(random_); }

  // Never, if `delay` is infinite. Events of one moment happen in the order in which they were asked for.
  void After(absl::Duration delay, std::function<void()> work) {
    if (delay == absl::InfiniteDuration()) return;
    queue_.push_back({now_ + delay, ++order_, std::move(work)});
    std::push_heap(queue_.begin(), queue_.end());
  }
  // Lets happen what happens up to `end`, or up to the first violation.
  void RunUntil(absl::Time end) {
    while (!queue_.empty() && queue_.front().at <= end && violation_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const Event event = std::move(queue_.back());
      queue_.pop_back();
      now_ = std::max(now_, event.at);
      event.work();
    }
  }

  void Violation(const std::string& what) {
    if (violation_.empty()) violation_ = absl::StrCat("at ", Clock(), ": ", what);
  }
  const std::string& violation() const { return violation_; }
  // Prints a line if CAIRN_SIMULATION_LOG is set.
  void Log(const std::string& line) const {
    if (std::getenv("CAIRN_SIMULATION_LOG") != nullptr) std::fprintf(stderr, "%s %s\n", Clock().c_str(), line.c_str());
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);

 private:
  struct Event {
    absl::Time at;
    uint64_t order;
    std::function<void()> work;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  std::string Clock() const { return absl::FormatDuration(now_ - absl::UnixEpoch()); }

  std::mt19937_64 random_;
  std::vector<Event> queue_;  // a heap: the first event is in front
  uint64_t order_ = 0;
  std::string violation_;
};

// The seeds of one test run: from 1 on `count` of them, or as many as CAIRN_SIMULATION_SEEDS says, or the one that
// CAIRN_SIMULATION_SEED names.
struct Seeds {
  uint64_t first = 1;
  uint64_t count = 0;
};
inline Seeds SeedsToRun(uint64_t count) {
  if (const char* one = std::getenv("CAIRN_SIMULATION_SEED"); one != nullptr) {
    return {std::strtoull(one, nullptr, 10), 1};
  }
  if (const char* many = std::getenv("CAIRN_SIMULATION_SEEDS"); many != nullptr) {
    return {1, std::strtoull(many, nullptr, 10)};
  }
  return {1, count};
}

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_TESTING_SIMULATION_H_
