#include "agent/session/kept_save.h"

#include <gtest/gtest.h>

#include <functional>

#include "agent/testing/layouts.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeWritePlan;
using testing::Whole;

// Step 4, attempt 2 of rank 3: two files, the second of which begins at a page of the slab.
class KeptSaveTest : public ::testing::Test {
 protected:
  KeptSaveTest() {
    const RankLayoutPtr layout =
        MakeLayout({Whole("a", DType::kFloat32, {100}), Whole("b", DType::kFloat32, {200})}, {});
    kept_.step = 4;
    kept_.attempt = 2;
    kept_.image = *MakeSaveImage(layout, MakeWritePlan(*layout, 3, {{0}, {1}}, "p"));
    for (size_t i = 0; i < 2; ++i) {
      v1::FileResult& written = *kept_.result.add_files();
      written.set_file_bytes(kept_.image->file[i].bytes());
      written.set_header_crc32c(static_cast<uint32_t>(70 + i));
    }
  }

  // Returns what a load's plan says of file `i` if it is that of this save.
  v1::ReadFile FileOf(size_t i) {
    v1::ReadFile file;
    file.set_path("000000000004/0002/" + kept_.image->file[i].name + ".safetensors");
    file.set_header_bytes(kept_.image->file[i].header_bytes);
    file.set_file_bytes(kept_.image->file[i].bytes());
    file.set_header_crc32c(static_cast<uint32_t>(70 + i));
    return file;
  }

  KeptSave kept_;
};

TEST_F(KeptSaveTest, OffsetOf_FileOfTheSave_IsWhereItsHeaderStands) {
  EXPECT_EQ(kept_.OffsetOf(FileOf(0)), 0u);
  EXPECT_EQ(kept_.OffsetOf(FileOf(1)), kept_.image->file[1].slab_offset);
  EXPECT_EQ(kept_.image->file[1].slab_offset % 4096, 0u);
}

TEST_F(KeptSaveTest, OffsetOf_FileThatDiffersInAnything_IsNotThere) {
  const std::vector<std::pair<const char*, std::function<void(v1::ReadFile&)>>> changes = {
      {"step", [](v1::ReadFile& file) { file.set_path("000000000005/0002/rank00003-bin01.safetensors"); }},
      {"attempt", [](v1::ReadFile& file) { file.set_path("000000000004/0003/rank00003-bin01.safetensors"); }},
      {"rank", [](v1::ReadFile& file) { file.set_path("000000000004/0002/rank00002-bin01.safetensors"); }},
      {"bin", [](v1::ReadFile& file) { file.set_path("000000000004/0002/rank00003-bin07.safetensors"); }},
      {"import", [](v1::ReadFile& file) { file.set_path("/" + file.path()); }},
      {"header's length", [](v1::ReadFile& file) { file.set_header_bytes(file.header_bytes() + 4096); }},
      {"length", [](v1::ReadFile& file) { file.set_file_bytes(file.file_bytes() + 1); }},
      {"header's checksum", [](v1::ReadFile& file) { file.set_header_crc32c(file.header_crc32c() + 1); }},
  };
  for (const auto& [what, change] : changes) {
    v1::ReadFile file = FileOf(1);
    change(file);
    EXPECT_EQ(kept_.OffsetOf(file), std::nullopt) << "another " << what;
  }
  kept_.result.mutable_files()->RemoveLast();
  EXPECT_EQ(kept_.OffsetOf(FileOf(1)), std::nullopt) << "nobody knows how it was written";
}

TEST_F(KeptSaveTest, IsReadBy_OneOfManyFiles_IsEnough) {
  v1::ReadPlan plan;
  EXPECT_FALSE(kept_.IsReadBy(plan));
  plan.add_files()->set_path("000000000004/0002/rank00000-bin00.safetensors");
  EXPECT_FALSE(kept_.IsReadBy(plan));
  *plan.add_files() = FileOf(0);
  EXPECT_TRUE(kept_.IsReadBy(plan));
}

}  // namespace
}  // namespace cairn
