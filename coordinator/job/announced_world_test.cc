// Tests what one agent can make the coordinator hold by saying how large its job is.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <new>

#include "coordinator/job/job.h"
#include "coordinator/testing/job_fixture.h"

namespace {

size_t g_live_bytes = 0;

void* Allocate(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  g_live_bytes += malloc_usable_size(memory);
  return memory;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  g_live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }

namespace cairn {
namespace {

constexpr int kLargestWorld = 1 << 17;
// As many as may be under way in a job.
constexpr uint32_t kSaves = 32;
constexpr size_t kMiB = size_t{1} << 20;

class AnnouncedWorldTest : public JobFixture {
 protected:
  AnnouncedWorldTest() {
    StartJob(Options(), 1);
    ranks_ = kLargestWorld;
  }

  // The bytes that the job has come to hold since the fixture was made.
  size_t Held() const { return g_live_bytes < at_first_ ? 0 : g_live_bytes - at_first_; }

  const size_t at_first_ = g_live_bytes;
};

TEST_F(AnnouncedWorldTest, OneAgentOfTheLargestWorld_OpensEverything_HoldsLittle) {
  const int rank = kLargestWorld - 1;
  Register(rank);
  Report(rank, Trainer(rank));
  Recover();
  EXPECT_LT(Held(), kMiB) << "registered";
  v1::AgentState state = StateWith(Trainer(rank));
  state.mutable_trainer()->set_layout_digest(Layout(0));
  for (int64_t step = 1; step <= int64_t{kSaves}; ++step) {
    v1::SaveState& save = *state.add_saves() = Begun(0, step);
    save.set_trainer_incarnation(Trainer(rank));
  }
  v1::LoadState& load = *state.add_loads();
  load.set_number(1);
  load.set_phase(v1::Phase::PLANNING);
  load.set_trainer_incarnation(Trainer(rank));
  Synchronize(rank, state);
  core_->Tick({now_, now_});
  job().OrdersFor(rank, At());
  ASSERT_EQ(job().Summary(At()).saves_running(), kSaves);
  EXPECT_LT(Held(), 4 * kMiB) << "a page of ranks and the list of pages for each save";
  now_ += absl::Seconds(25);
  core_->Tick({now_, now_});
  core_->Tick({now_, now_});
  ASSERT_EQ(job().Summary(At()).saves_running(), 0u) << "the others never came";
  core_->TakeLog();
  core_->TakeTimelines();
  EXPECT_LT(Held(), 4 * kMiB) << "who is owed their outcomes";
}

}  // namespace
}  // namespace cairn
