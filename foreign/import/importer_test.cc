#include "foreign/import/importer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/fake_clock.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/read/checkpoint_store.h"
#include "store/read/verify.h"
#include "store/storage/root_lock.h"

namespace cairn {
namespace {

constexpr int64_t kStep = 12;

class ImporterTest : public testing::Test {
 protected:
  ImporterTest() {
    top_ = testing::TempDir() + "/importer-XXXXXX";
    EXPECT_NE(mkdtemp(top_.data()), nullptr);
    std::filesystem::create_directory(source());
    Write("a");
    storage_ = *PosixStorage::Open(top_ + "/root", true);
  }
  ~ImporterTest() override { std::filesystem::remove_all(top_); }

  std::string source() const { return top_ + "/source"; }

  // Writes a file with one tensor of 3 bytes and one of 70,000 floats.
  void Write(const std::string& name) const {
    std::string header = R"({"bytes":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                         R"("floats":{"dtype":"F32","shape":[700,100],"data_offsets":[3,280003]}})";
    std::string file = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
    file += header;
    for (int i = 0; i < 280003; ++i) file += static_cast<char>(i * 7 % 251);
    std::ofstream(source() + "/" + name + ".safetensors", std::ios::binary) << file;
  }

  absl::StatusOr<ImportReport> Import(const ImportOptions& options = {}) {
    return ImportCheckpoint(*storage_, source(), "demo", kStep, clock_, options);
  }
  StepRecord Record() { return CheckpointStore(*storage_).ReadStep("demo", kStep); }

  std::string top_;
  std::unique_ptr<PosixStorage> storage_;
  FakeClock clock_;
};

TEST_F(ImporterTest, ImportCheckpoint_SafetensorsFile_CommitsWhatVerifies) {
  const auto report = Import();
  ASSERT_TRUE(report.ok()) << report.status();
  const auto manifest = CheckpointStore(*storage_).ReadManifest("demo", kStep);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(*manifest, report->manifest);
  ASSERT_EQ(manifest->tensors.size(), 2u);
  EXPECT_EQ(manifest->tensors[1].global_shape, (Shape{700, 100}));
  VerifyOptions options;
  options.fingerprints = true;
  const VerifyReport verified = VerifyCheckpoint(*storage_, *manifest, options);
  EXPECT_TRUE(verified.faults.empty());
  EXPECT_GT(verified.bytes, 280003u);
  ASSERT_EQ(verified.fingerprints.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(manifest->fingerprint_of(i), verified.fingerprints[i]);
  EXPECT_EQ(manifest->summaries[1].statistics.non_finite, 0);
}

TEST_F(ImporterTest, ImportCheckpoint_SourceIsWrittenMeanwhile_CommitsNothing) {
  ImportOptions options;
  options.progress = [&](uint64_t, uint64_t) {
    std::filesystem::remove(source() + "/a.safetensors");
    Write("b");
  };
  const auto report = Import(options);
  EXPECT_TRUE(HasReason(report.status(), Reason::kBadForeignFile)) << report.status();
  EXPECT_EQ(Record().state(), StepRecord::State::kNothing);
  ASSERT_EQ(Record().attempts.size(), 1u);
  EXPECT_TRUE(Record().attempts[0].aborted());
  EXPECT_FALSE(Record().attempts[0].directory);
}

TEST_F(ImporterTest, ImportCheckpoint_StepIsCommitted_KeepsTheFirst) {
  ASSERT_TRUE(Import().ok());
  EXPECT_TRUE(HasReason(Import().status(), Reason::kStepCommitted));
  EXPECT_EQ(Record().attempts.size(), 1u);
}

TEST_F(ImporterTest, ImportCheckpoint_RootIsServed_RefusesAtOnce) {
  const auto lock = storage_->TakeRoot();
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(HasReason(Import().status(), Reason::kRootInUse));
  EXPECT_TRUE(Record().attempts.empty());
}

}  // namespace
}  // namespace cairn
