#include "common/rpc/call_timer.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace cairn {
namespace {

// Notes when each of the waiting objects was told.
struct Told {
  struct Note {
    int number;
    absl::Time time;
  };
  Mutex mutex;
  CondVar changed;
  std::vector<Note> notes ABSL_GUARDED_BY(mutex);

  std::vector<Note> Await(size_t count) {
    MutexLock lock(mutex);
    while (notes.size() < count) changed.Wait(mutex);
    return notes;
  }
};

class Waiting final : public Timed {
 public:
  Waiting(Told& told, int number) : told_(told), number_(number) {}
  void OnTimeOver() override {
    MutexLock lock(told_.mutex);
    told_.notes.push_back({number_, Clock::Real().SteadyNow()});
    told_.changed.NotifyAll();
  }

 private:
  Told& told_;
  const int number_;
};

TEST(CallTimerTest, Set_ManyTimes_EachIsToldOnceInOrderAndNotEarly) {
  constexpr int kCount = 200;
  Told told;
  std::mt19937 random(7);
  const absl::Time begin = Clock::Real().SteadyNow();
  std::vector<std::shared_ptr<Waiting>> waiting;
  std::vector<CallTimer::Entry> entries(kCount);
  for (int i = 0; i < kCount; ++i) {
    waiting.push_back(std::make_shared<Waiting>(told, i));
    CallTimer::OfProcess().Set(absl::Milliseconds(50 + static_cast<int>(random() % 50)), waiting[i], entries[i]);
  }
  const std::vector<Told::Note> notes = told.Await(kCount);
  std::vector<bool> seen(kCount);
  for (size_t i = 0; i < notes.size(); ++i) {
    EXPECT_FALSE(seen[notes[i].number]) << notes[i].number << " was told twice";
    seen[notes[i].number] = true;
    EXPECT_GE(notes[i].time, entries[notes[i].number].time);
    EXPECT_GE(notes[i].time, begin + absl::Milliseconds(50));
    if (i > 0) {
      EXPECT_LT(entries[notes[i - 1].number], entries[notes[i].number]);
    }
  }
}

TEST(CallTimerTest, Cancel_BeforeItsTime_IsNotTold) {
  Told told;
  const auto cancelled = std::make_shared<Waiting>(told, 0);
  const auto later = std::make_shared<Waiting>(told, 1);
  CallTimer::Entry first, second;
  CallTimer::OfProcess().Set(absl::Seconds(3600), cancelled, first);
  CallTimer::OfProcess().Cancel(first);
  CallTimer::OfProcess().Set(absl::Milliseconds(20), cancelled, first);
  CallTimer::OfProcess().Set(absl::Milliseconds(25), later, second);
  CallTimer::OfProcess().Cancel(first);
  const std::vector<Told::Note> notes = told.Await(1);
  EXPECT_EQ(notes[0].number, 1);
  CallTimer::OfProcess().Cancel(second);  // which was told
}

TEST(CallTimerTest, Set_ObjectIsGone_OthersAreTold) {
  Told told;
  CallTimer::Entry first, second;
  CallTimer::OfProcess().Set(absl::Milliseconds(5), std::make_shared<Waiting>(told, 0), first);
  const auto kept = std::make_shared<Waiting>(told, 1);
  CallTimer::OfProcess().Set(absl::Milliseconds(10), kept, second);
  EXPECT_EQ(told.Await(1)[0].number, 1);
}

TEST(CallTimerTest, Set_EarlierThanAllOthers_IsToldFirst) {
  Told told;
  const auto late = std::make_shared<Waiting>(told, 0);
  const auto early = std::make_shared<Waiting>(told, 1);
  CallTimer::Entry first, second;
  CallTimer::OfProcess().Set(absl::Seconds(3600), late, first);
  CallTimer::OfProcess().Set(absl::Milliseconds(1), early, second);
  EXPECT_EQ(told.Await(1)[0].number, 1);
  CallTimer::OfProcess().Cancel(first);
}

// A call may be answered within its own time's end, and hold the next one.
TEST(CallTimerTest, OnTimeOver_SetsAndCancels_DoesNotWaitForItself) {
  struct Again final : Timed, std::enable_shared_from_this<Again> {
    void OnTimeOver() override {
      CallTimer::OfProcess().Cancel(entry);
      if (++times < 3) {
        CallTimer::OfProcess().Set(absl::Milliseconds(1), weak_from_this(), entry);
        return;
      }
      MutexLock lock(mutex);
      over = true;
      changed.NotifyAll();
    }
    CallTimer::Entry entry;
    int times = 0;
    Mutex mutex;
    CondVar changed;
    bool over ABSL_GUARDED_BY(mutex) = false;
  };
  const auto again = std::make_shared<Again>();
  CallTimer::OfProcess().Set(absl::Milliseconds(1), again, again->entry);
  MutexLock lock(again->mutex);
  while (!again->over) again->changed.Wait(again->mutex);
  EXPECT_EQ(again->times, 3);
}

}  // namespace
}  // namespace cairn
