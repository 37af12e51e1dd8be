// Loads over NCCL on random plans: rounds of several sources, each with two buffers, ranks that share memory with some
// of their sources and not with others, slow storage and slow trainers. Schedule, ledger of the buffers and gate are
// the real ones. Every load ends; and nobody waits in NCCL for a rank that waits for storage, so that a step which does
// not end within seconds is a fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/reader/round_ledger.h"
#include "agent/transport/nccl/round_gate.h"
#include "gpu/nccl/exchange_schedule.h"

namespace cairn {
namespace {

// Names what a test breaks.
enum class Fault { kNone, kReleasesAtTheEnd, kGoesByWindow, kNoGate, kWaitsForTheGateFirst };

// Returns whether all rounds have been read, and released by all that take them.
bool AllReleased(const RoundLedger& ledger) {
  for (uint32_t round = 0; round < ledger.rounds(); ++round) {
    if (ledger.StandingOf(round) != RoundLedger::Standing::kGone) return false;
  }
  return true;
}

class LoadInWindows {
 public:
  LoadInWindows(uint64_t seed, Fault fault) : random_(seed), fault_(fault), ranks_(2 + Below(5)) {
    const auto count = static_cast<uint32_t>(ranks_.size());
    for (Rank& rank : ranks_) rank.machine = Below(3);
    for (uint32_t source = 0; source < count; ++source) PlanSource(source);
    std::vector<uint32_t> all;
    for (uint32_t rank = 0; rank < count; ++rank) {
      all.push_back(rank);
      Rank& each = ranks_[rank];
      each.ledger = std::make_unique<RoundLedger>(each.plan);
      each.course = MakeCourse(each.transfers);
      if (fault == Fault::kGoesByWindow && rank == 0) GoByWindow(each);
    }
    gate_ = std::make_unique<RoundGate>(all);
  }

  // Lets everybody go on in a random order until all is done. Returns "", or what is wrong.
  std::string Run() {
    std::vector<std::pair<uint32_t, int>> turns;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (int part = 0; part < kParts; ++part) turns.emplace_back(rank, part);
    }
    while (!Done()) {
      std::shuffle(turns.begin(), turns.end(), random_);
      // Some are slow in this pass; if nobody else can go on, it is their turn.
      const size_t quick = 1 + Below(static_cast<uint32_t>(turns.size()));
      bool moved = false;
      for (size_t turn = 0; turn < turns.size() && (turn < quick || !moved); ++turn) {
        if (turns[turn].second == 0 && moved && Below(8) != 0) continue;  // storage is slower than all else
        moved = Turn(turns[turn].first, turns[turn].second) || moved;
        if (const std::string wrong = WaitsForStorage(); !wrong.empty()) return wrong;
      }
      if (!moved) return "it does not end";
    }
    return "";
  }

 private:
  using Transfer = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // from, to, round, window
  static constexpr int kParts = 4;
  enum class At { kBegin, kOwnRound, kGate, kSlot, kStep, kEnd };
  struct Rank {
    uint32_t machine = 0;
    v1::ReadPlan plan;
    std::vector<ExchangeTransfer> transfers;
    std::vector<ExchangeRound> course;
    std::unique_ptr<RoundLedger> ledger;
    std::set<uint32_t> consumers;  // over NCCL
    At at = At::kBegin;
    size_t round = 0, step = 0, steps = 0;
    bool open = false;                   // the gate, for the round
    std::array<int, 2> unreleased = {};  // windows in each slot that the trainer has not copied
    // The rounds that its trainer takes from sources whose buffers it maps, by source: the next one.
    std::map<uint32_t, std::vector<uint32_t>> mapped;
  };

  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  void PlanSource(uint32_t source) {
    const uint32_t rounds = Below(7);
    const bool alone = std::count_if(ranks_.begin(), ranks_.end(),
                                     [&](const Rank& rank) { return rank.machine == ranks_[source].machine; }) == 1;
    for (uint32_t round = 0; round < rounds; ++round) {
      v1::ReadRound& planned = *ranks_[source].plan.add_rounds();
      if (alone && Below(2) == 0) {
        PlanBroadcasts(source, round, planned);
        continue;
      }
      for (uint32_t consumer = 0; consumer < ranks_.size(); ++consumer) {
        if (Below(2) == 0) continue;
        planned.add_consumers(consumer);
        if (ranks_[consumer].machine == ranks_[source].machine) {
          ranks_[consumer].mapped[source].push_back(round);
          continue;
        }
        ranks_[source].consumers.insert(consumer);
        const uint32_t windows = 1 + Below(3);
        for (uint32_t window = 0; window < windows; ++window) {
          const uint64_t bytes = Below(8);
          ranks_[source].transfers.push_back({consumer, true, round, window, bytes, 0});
          ranks_[consumer].transfers.push_back({source, false, round, window, bytes, 0});
        }
      }
    }
  }

  // All others take the round alike.
  void PlanBroadcasts(uint32_t source, uint32_t round, v1::ReadRound& planned) {
    const uint32_t windows = 1 + Below(3);
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (rank != source) planned.add_consumers(rank);
      if (rank != source) ranks_[source].consumers.insert(rank);
      for (uint32_t window = 0; window < windows; ++window) {
        ranks_[rank].transfers.push_back({source, rank == source, round, window, 1 + window, 0, true});
      }
    }
  }

  static void GoByWindow(Rank& rank) {
    std::vector<ExchangeTransfer> turned = rank.transfers;
    std::map<uint32_t, ExchangeRound> by_window;
    for (const ExchangeStep& step : MakeSchedule(turned)) {
      by_window[step.window].round = step.round;
      by_window[step.window].lends = true;
      by_window[step.window].steps.push_back(step);
    }
    rank.course.clear();
    for (auto& [window, round] : by_window) rank.course.push_back(std::move(round));
  }

  // Lets one part of a rank do one thing; false if it has nothing to do now.
  bool Turn(uint32_t rank, int part) {
    switch (part) {
      case 0:
        return Read(ranks_[rank]);
      case 1:
        return CopyMapped(rank);
      case 2:
        return CopyReceived(ranks_[rank]);
      default:
        return Exchange(rank);
    }
  }

  static bool Read(Rank& rank) {
    const auto next = rank.ledger->NextToRead();
    if (next.has_value()) rank.ledger->MarkReady(*next);
    return next.has_value();
  }

  bool CopyMapped(uint32_t rank) {
    for (auto& [source, rounds] : ranks_[rank].mapped) {
      if (rounds.empty()) continue;
      RoundLedger& ledger = *ranks_[source].ledger;
      if (ledger.StandingOf(rounds.front()) != RoundLedger::Standing::kReady) continue;
      ledger.Release(rank, rounds.front() + 1);
      rounds.erase(rounds.begin());
      return true;
    }
    return false;
  }

  bool CopyReceived(Rank& rank) {
    for (int& unreleased : rank.unreleased) {
      if (unreleased == 0) continue;
      --unreleased;
      return true;
    }
    return false;
  }

  // The same order of things as GroupExchange has.
  bool Exchange(uint32_t number) {
    Rank& rank = ranks_[number];
    if (rank.at == At::kEnd) return false;
    if (rank.round == rank.course.size()) {
      gate_->Release(number, UINT32_MAX);
      if (fault_ == Fault::kReleasesAtTheEnd) ReleaseBelow(number, UINT32_MAX);
      rank.at = At::kEnd;
      return true;
    }
    const ExchangeRound& round = rank.course[rank.round];
    switch (rank.at) {
      case At::kBegin:
        if (round.lends) gate_->Release(number, round.round);
        rank.at = fault_ == Fault::kWaitsForTheGateFirst ? At::kGate : At::kOwnRound;
        if (rank.at == At::kGate) AskGate(number, round.round);
        return true;
      case At::kOwnRound:
        if (round.lends && rank.ledger->StandingOf(round.round) != RoundLedger::Standing::kReady) return false;
        if (fault_ == Fault::kNoGate || fault_ == Fault::kWaitsForTheGateFirst || round.steps.empty()) {
          rank.at = At::kSlot;
          return true;
        }
        rank.at = At::kGate;
        AskGate(number, round.round);
        return true;
      case At::kGate:
        if (!rank.open) return false;
        rank.at = fault_ == Fault::kWaitsForTheGateFirst ? At::kOwnRound : At::kSlot;
        return true;
      case At::kSlot:
        if (rank.step == round.steps.size()) {
          if (fault_ != Fault::kReleasesAtTheEnd) ReleaseBelow(number, round.round + 1);
          ++rank.round;
          rank.step = 0;
          rank.at = At::kBegin;
          return true;
        }
        if (rank.unreleased[rank.steps % 2] > 0) return false;
        for (const ExchangeTransfer& transfer : round.steps[rank.step].transfers) ++open_[KeyOf(number, transfer)];
        rank.at = At::kStep;
        return true;
      case At::kStep:
        return EndStep(number, round.steps[rank.step]);
      case At::kEnd:
        break;
    }
    return false;
  }

  bool EndStep(uint32_t number, const ExchangeStep& step) {
    Rank& rank = ranks_[number];
    for (const ExchangeTransfer& transfer : step.transfers) {
      const int ends = transfer.broadcast ? static_cast<int>(ranks_.size()) : 2;
      if (open_[KeyOf(number, transfer)] != ends) return false;
    }
    for (const ExchangeTransfer& transfer : step.transfers) rank.unreleased[rank.steps % 2] += transfer.send ? 0 : 1;
    ++rank.steps;
    ++rank.step;
    rank.at = At::kSlot;
    return true;
  }

  void AskGate(uint32_t number, uint32_t round) {
    Rank& rank = ranks_[number];
    rank.open = false;
    gate_->Await(number, round, round, [&rank](const auto& opened) { rank.open = opened.ok(); });
  }
  void ReleaseBelow(uint32_t number, uint32_t below) {
    for (const uint32_t consumer : ranks_[number].consumers) ranks_[number].ledger->Release(consumer, below);
  }
  static Transfer KeyOf(uint32_t rank, const ExchangeTransfer& transfer) {
    if (transfer.broadcast) return Transfer(transfer.peer, transfer.peer, transfer.round, transfer.window);
    return transfer.send ? Transfer(rank, transfer.peer, transfer.round, transfer.window)
                         : Transfer(transfer.peer, rank, transfer.round, transfer.window);
  }

  // Returns whether some rank is in a step while one that is not past this round waits for its storage.
  std::string WaitsForStorage() const {
    for (const Rank& rank : ranks_) {
      if (rank.at != At::kStep) continue;
      const uint32_t round = rank.course[rank.round].round;
      for (uint32_t other = 0; other < ranks_.size(); ++other) {
        const Rank& late = ranks_[other];
        if (late.at != At::kOwnRound) continue;
        const ExchangeRound& own = late.course[late.round];
        if (own.lends && own.round <= round && late.ledger->StandingOf(own.round) == RoundLedger::Standing::kNotYet) {
          return absl::StrCat("a step of round ", round, " waits for the storage of rank ", other);
        }
      }
    }
    return "";
  }
  bool Done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.at == At::kEnd && AllReleased(*rank.ledger) &&
             std::all_of(rank.mapped.begin(), rank.mapped.end(), [](const auto& left) { return left.second.empty(); });
    });
  }

  std::mt19937_64 random_;
  const Fault fault_;
  std::vector<Rank> ranks_;
  std::unique_ptr<RoundGate> gate_;
  std::map<Transfer, int> open_;
};

size_t Wrong(Fault fault, uint64_t seeds, const std::string& how) {
  size_t wrong = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    wrong += LoadInWindows(seed, fault).Run().find(how) != std::string::npos ? 1 : 0;
  }
  return wrong;
}

TEST(ExchangeSimulationTest, Run_RandomPlans_AllEndAndNobodyWaitsForStorageInAStep) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    ASSERT_EQ(LoadInWindows(seed, Fault::kNone).Run(), "") << "seed " << seed;
  }
}

// The simulation sees what is wrong where something is.
TEST(ExchangeSimulationTest, Run_RoundsAreReleasedAtTheEnd_DoesNotEnd) {
  EXPECT_GT(Wrong(Fault::kReleasesAtTheEnd, 20, "does not end"), 10u);
}

TEST(ExchangeSimulationTest, Run_OneRankGoesByWindow_DoesNotEnd) {
  EXPECT_GT(Wrong(Fault::kGoesByWindow, 100, "does not end"), 50u);
}

TEST(ExchangeSimulationTest, Run_NoGate_AStepWaitsForStorage) {
  EXPECT_GT(Wrong(Fault::kNoGate, 200, "waits for the storage"), 50u);
}

TEST(ExchangeSimulationTest, Run_TheGateBeforeTheOwnRound_AStepWaitsForStorage) {
  EXPECT_GT(Wrong(Fault::kWaitsForTheGateFirst, 1000, "waits for the storage"), 50u);
}

}  // namespace
}  // namespace cairn
