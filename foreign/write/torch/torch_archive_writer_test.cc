#include "foreign/write/torch/torch_archive_writer.h"

#include <gtest/gtest.h>

#include "foreign/read/torch/torch_file.h"

namespace cairn {
namespace {

absl::StatusOr<TorchFile> Open(const std::string& archive) {
  return TorchFile::Open(
      archive.size(), [&](uint64_t offset, uint64_t bytes) { return archive.substr(offset, bytes); }, "test");
}

TEST(TorchArchiveWriterTest, TorchTensorArchive_EveryDtype_IsReadAsThatTensor) {
  for (const DTypeInfo& info : DTypeTable()) {
    const Shape shape = {3, 0 + 2, 5};
    const TorchTensorArchive archive(info.dtype, shape);
    EXPECT_EQ(archive.head().size() % 64, 0u);
    const std::string data(archive.data_bytes(), 'x');
    const std::string all = archive.head() + data + archive.Tail(7);
    EXPECT_EQ(all.size(), archive.bytes());
    const auto file = Open(all);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto tensor = file->Tensor(file->document().root());
    ASSERT_TRUE(tensor.ok()) << info.name << tensor.status();
    ASSERT_TRUE(tensor->has_value()) << info.name;
    EXPECT_EQ((*tensor)->dtype, info.dtype);
    EXPECT_EQ((*tensor)->shape, shape);
    EXPECT_EQ((*tensor)->strides, (Shape{10, 5, 1}));
    EXPECT_EQ((*tensor)->offset, archive.head().size());
  }
}

TEST(TorchArchiveWriterTest, TorchTensorArchive_ScalarAndEmptyTensor_AreRead) {
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{3, 0}}) {
    const TorchTensorArchive archive(DType::kFloat32, shape);
    const std::string all = archive.head() + std::string(archive.data_bytes(), 'x') + archive.Tail(0);
    const auto file = Open(all);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto tensor = file->Tensor(file->document().root());
    ASSERT_TRUE(tensor.ok() && tensor->has_value()) << tensor.status();
    EXPECT_EQ((*tensor)->shape, shape);
  }
}

TEST(TorchArchiveWriterTest, TorchValueArchive_Pickle_IsItsValue) {
  const auto file = Open(TorchValueArchive("\x80\x02K\x07.", {}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->document().Int(file->document().root()), 7);
}

}  // namespace
}  // namespace cairn
