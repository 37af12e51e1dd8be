// A root with checkpoints of one job, for tests of the DeletionStore.
#ifndef CAIRN_STORE_WRITE_TESTING_DELETION_FIXTURE_H_
#define CAIRN_STORE_WRITE_TESTING_DELETION_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/fake_clock.h"
#include "common/format/checkpoint_path.h"
#include "common/format/outcome.h"
#include "store/posix/posix_storage.h"
#include "store/storage/testing/fake_root_lock.h"
#include "store/write/deletion_store.h"

namespace cairn {

class DeletionFixture : public testing::Test {
 protected:
  static constexpr char kJob[] = "demo";

  DeletionFixture() {
    std::string pattern = testing::TempDir() + "/deletions_XXXXXX";
    root_ = mkdtemp(pattern.data());
    storage_ = *PosixStorage::Open(root_, false);
    Open();
  }
  ~DeletionFixture() override { std::filesystem::remove_all(root_); }

  // A coordinator that has just started.
  void Open() {
    checkpoints_ = std::make_unique<CheckpointStore>(*storage_);
    lock_.before_check = [this] { clock_.Advance(storage_time_); };
    store_ = std::make_unique<DeletionStore>(*storage_, *checkpoints_, clock_, lock_);
  }
  // Commits a checkpoint with one file.
  void Commit(int64_t step, uint32_t attempt = 1, std::vector<Metric> metrics = {}) {
    Manifest manifest;
    manifest.job = kJob;
    manifest.step = step;
    manifest.attempt = attempt;
    manifest.request_id = "request";
    manifest.metrics = std::move(metrics);
    manifest.world_size = 1;
    manifest.layout_digests = {std::string(32, 'd')};
    manifest.rank_layout = {0};
    manifest.nodes = {"n"};
    manifest.rank_node = {0};
    manifest.files = {{"rank00000-bin00", 0, 4096, 0, 0}};
    ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory(kJob, step, attempt)).ok());
    std::ofstream(Bin(step, attempt)) << std::string(4096, 'h');
    ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath(kJob, step, attempt), EncodeOutcome(manifest)).ok());
  }
  std::string Bin(int64_t step, uint32_t attempt = 1) const {
    return root_ + "/" + AttemptDirectory(kJob, step, attempt) + "/rank00000-bin00.safetensors";
  }
  std::string Outcome(int64_t step, uint32_t attempt = 1) const {
    return root_ + "/" + OutcomePath(kJob, step, attempt);
  }
  std::string Deletion(int64_t step, uint32_t attempt = 1) const {
    return root_ + "/" + DeletionPath(kJob, step, attempt);
  }
  static void Damage(const std::string& path) { std::filesystem::resize_file(path, 10); }
  absl::StatusOr<ChangedSteps> Delete(int64_t step) { return store_->Delete(kJob, {step, "a test"}, latest_); }
  std::vector<int64_t> Listed() {
    std::vector<int64_t> steps;
    const auto listed = checkpoints_->ReadCheckpoints(kJob);
    for (const StepRecord& step : *listed) {
      if (step.state() == StepRecord::State::kCommitted) steps.push_back(step.step);
    }
    return steps;
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  FakeClock clock_;
  absl::Duration storage_time_;    // what a look at the root takes
  std::optional<int64_t> latest_;  // what the job takes for the latest
  FakeRootLock lock_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<DeletionStore> store_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_TESTING_DELETION_FIXTURE_H_
