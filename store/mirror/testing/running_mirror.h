// A mirror of one directory in another one, whose threads run, for tests.
#ifndef CAIRN_STORE_MIRROR_TESTING_RUNNING_MIRROR_H_
#define CAIRN_STORE_MIRROR_TESTING_RUNNING_MIRROR_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/mirror.h"
#include "store/mirror/testing/stored_step.h"
#include "store/storage/testing/fake_root_lock.h"
#include "store/write/deletion_store.h"

namespace cairn {

class RunningMirror : public TwoRoots {
 protected:
  RunningMirror() : checkpoints_(*root_) {
    options_.address = directory_ + "/mirror";
    options_.root = directory_ + "/root";
    options_.open = [this](bool create) -> absl::StatusOr<std::unique_ptr<Storage>> {
      Await(hang_);
      if (down_) return MakeError(Reason::kStorageError, "the mirror is down");
      PosixCalls calls;
      calls.direct = false;
      calls.pwrite = [this](int file, const void* bytes, size_t size, off_t offset) {
        Await(hold_writes_);
        return pwrite(file, bytes, size, offset);
      };
      CAIRN_ASSIGN_OR_RETURN(auto storage, PosixStorage::Open(options_.address, create, std::move(calls)));
      return storage;
    };
    options_.settle = absl::ZeroDuration();
    options_.first_retry = absl::Milliseconds(5);
    options_.longest_retry = absl::Milliseconds(20);
  }
  ~RunningMirror() override {
    hang_ = hold_writes_ = false;
    End();
  }

  static void Await(const std::atomic<bool>& held) {
    while (held) absl::SleepFor(absl::Milliseconds(1));
  }

  void Begin(std::string_view steps = "all", int64_t keep_last = 0) {
    End();
    options_.rule = *ParseMirrorRule(steps, keep_last);
    one_ = std::make_unique<Mirror>(options_, checkpoints_, Clock::Real());
    ASSERT_TRUE(one_->Start().ok());
  }
  void End() {
    if (one_ != nullptr) {
      EXPECT_TRUE(one_->Stop(absl::Seconds(20)));
    }
    one_ = nullptr;
  }
  bool Becomes(const std::function<bool()>& true_now) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!true_now()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }
  v1::MirroredCheckpoint::State StateOf(int64_t step) { return one_->view().Describe(kJob, step).state(); }
  bool BecomesMirrored(int64_t step) {
    return Becomes([&] { return StateOf(step) == v1::MirroredCheckpoint::MIRRORED; });
  }
  absl::Status Delete(int64_t step, bool by_rules) {
    DeletionStore deletions(*root_, checkpoints_, Clock::Real(), lock_);
    const DeleteStep action = {step, "a test", by_rules};
    CAIRN_RETURN_IF_ERROR(deletions.Delete(kJob, action, std::nullopt).status());
    CAIRN_RETURN_IF_ERROR(deletions.Remove(kJob, step, 1, std::nullopt));
    one_->Look(kJob);
    return absl::OkStatus();
  }
  StepRecord AtMirrorNow(int64_t step) { return CheckpointStore(*mirror_).ReadStep(kJob, step); }

  std::atomic<bool> down_ = false;
  std::atomic<bool> hang_ = false;         // the mirror cannot be opened, nor does it fail
  std::atomic<bool> hold_writes_ = false;  // files of copies
  FakeRootLock lock_;
  CheckpointStore checkpoints_;
  MirrorOptions options_;
  std::unique_ptr<Mirror> one_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_TESTING_RUNNING_MIRROR_H_
