#include "foreign/read/huggingface/safetensors_directory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr char kIndex[] = "model.safetensors.index.json";

class SafetensorsDirectoryTest : public testing::Test {
 protected:
  SafetensorsDirectoryTest() : directory_(testing::TempDir() + "/safetensors-" + RandomToken(6)) {
    std::filesystem::create_directories(directory_);
    directory_ = std::filesystem::canonical(directory_);
  }
  ~SafetensorsDirectoryTest() override { std::filesystem::remove_all(directory_); }

  void Put(const std::string& name, const std::string& bytes) const { std::ofstream(directory_ + "/" + name) << bytes; }
  // Writes a file of the format: the header's length as 8 bytes, the header, the data.
  void PutTensors(const std::string& name, const std::string& header, size_t data_bytes) const {
    const uint64_t length = header.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    Put(name, absl::StrCat(file, header, std::string(data_bytes, 'x')));
  }
  // Writes a float32 tensor of `rows` x 2, alone in its file.
  void PutTensor(const std::string& file, const std::string& tensor, int rows) const {
    PutTensors(file,
               absl::StrCat(R"({")", tensor, R"(":{"dtype":"F32","shape":[)", rows, R"(,2],"data_offsets":[0,)",
                            8 * rows, "]}}"),
               8 * static_cast<size_t>(rows));
  }
  void ExpectError(Reason reason, const std::string& named) const {
    const auto manifest = ReadSafetensorsDirectory(directory_);
    EXPECT_EQ(ReasonOf(manifest.status()), reason) << manifest.status();
    EXPECT_NE(manifest.status().message().find(named), absl::string_view::npos) << manifest.status();
  }

  std::string directory_;
};

TEST_F(SafetensorsDirectoryTest, Files_WithoutIndex_AreAllReadByName) {
  PutTensors("b.safetensors",
             R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
             R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[6,14]}})",
             14);
  PutTensor("a.safetensors", "a", 5);
  Put(".hidden.safetensors", "no safetensors file");
  Put("notes.txt", "no safetensors file either");
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->files.size(), 2u);
  EXPECT_EQ(manifest->files[0].name, directory_ + "/a.safetensors");
  EXPECT_EQ(manifest->files[1].name, directory_ + "/b.safetensors");
  ASSERT_EQ(manifest->tensors.size(), 3u);
  EXPECT_EQ(manifest->tensors[0].name, "a");
  EXPECT_EQ(manifest->tensors[0].global_shape, (Shape{5, 2}));
  EXPECT_EQ(manifest->tensors[1].name, "b");
  EXPECT_EQ(manifest->tensors[1].dtype, DType::kBfloat16);
  EXPECT_EQ(manifest->tensors[2].name, "scalar");
  const ManifestShard& scalar = manifest->shards[manifest->tensors[2].first_shard];
  EXPECT_EQ(scalar.file, 1u);
  EXPECT_EQ(scalar.file_offset, std::filesystem::file_size(directory_ + "/b.safetensors") - 8);
  EXPECT_EQ(scalar.bytes, 8u);
}

TEST_F(SafetensorsDirectoryTest, Tensor_OfNoElements_HasNoShard) {
  PutTensor("a.safetensors", "empty", 0);
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->tensors[0].global_shape, (Shape{0, 2}));
  EXPECT_EQ(manifest->tensors[0].shard_count, 0u);
  EXPECT_TRUE(manifest->shards.empty());
}

TEST_F(SafetensorsDirectoryTest, Index_OfSomeFiles_LeavesTheOthersOut) {
  PutTensor("one.safetensors", "a", 1);
  PutTensor("other.safetensors", "stale", 1);
  Put(kIndex, R"({"metadata":{"total_size":8},"weight_map":{"a":"one.safetensors"}})");
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->tensors.size(), 1u);
  EXPECT_EQ(manifest->tensors[0].name, "a");
}

TEST_F(SafetensorsDirectoryTest, Index_DisagreesWithItsFiles_TensorAndFileAreNamed) {
  PutTensor("one.safetensors", "a", 1);
  Put(kIndex, R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  ExpectError(Reason::kBadSafetensors, "'b' is in one.safetensors, but it is not");
  Put(kIndex, R"({"weight_map":{"other":"one.safetensors"}})");
  ExpectError(Reason::kBadSafetensors, "'other'");
  Put(kIndex, R"({"weight_map":{"a":"two.safetensors"}})");
  ExpectError(Reason::kFileMissing, "two.safetensors");
}

TEST_F(SafetensorsDirectoryTest, Index_HasATensorLess_ItIsNamed) {
  PutTensors("one.safetensors",
             R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],)"
             R"("data_offsets":[1,2]}})",
             2);
  Put(kIndex, R"({"weight_map":{"a":"one.safetensors"}})");
  ExpectError(Reason::kBadSafetensors, "'b' of one.safetensors is not in the index");
}

TEST_F(SafetensorsDirectoryTest, Tensor_InTwoFiles_BothAreNamed) {
  PutTensor("one.safetensors", "a", 1);
  PutTensor("two.safetensors", "a", 1);
  ExpectError(Reason::kBadSafetensors,
              absl::StrCat("'a' stands in both ", directory_, "/one.safetensors and ", directory_, "/two.safetensors"));
}

TEST_F(SafetensorsDirectoryTest, File_CutShort_IsNamed) {
  PutTensor("one.safetensors", "a", 4);
  std::filesystem::resize_file(directory_ + "/one.safetensors",
                               std::filesystem::file_size(directory_ + "/one.safetensors") - 1);
  ExpectError(Reason::kFileTruncated, "one.safetensors");
  Put("one.safetensors", "1234");
  ExpectError(Reason::kBadSafetensors, "one.safetensors");
}

TEST_F(SafetensorsDirectoryTest, Directory_WithoutFiles_SaysWhatCanBeRead) {
  const auto manifest = ReadSafetensorsDirectory(directory_);
  EXPECT_EQ(ReasonOf(manifest.status()), Reason::kFileMissing);
  EXPECT_NE(NextActionOf(manifest.status()).find("DeepSpeed or safetensors"), std::string::npos);
}

TEST_F(SafetensorsDirectoryTest, Files_NumberedAndNotAllThere_AreRefusedWithoutAnIndex) {
  PutTensor("model-00001-of-00003.safetensors", "a", 5);
  PutTensor("model-00003-of-00003.safetensors", "c", 5);
  PutTensor("other-00001-of-00001.safetensors", "other", 5);
  ExpectError(Reason::kFileMissing, "lacks 1 of the files model-*-of-00003.safetensors");
  PutTensor("model-00002-of-00003.safetensors", "b", 5);
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->tensors.size(), 4u);
}

TEST_F(SafetensorsDirectoryTest, Index_ListsAPartOfANumberedSet_OthersAreNamedWithTheirTensors) {
  PutTensor("model-00001-of-00003.safetensors", "a", 5);
  PutTensor("model-00002-of-00003.safetensors", "b", 5);
  PutTensor("model-00003-of-00003.safetensors", "c", 5);
  Put(kIndex, R"({"weight_map":{"a":"model-00001-of-00003.safetensors"}})");
  ExpectError(
      Reason::kBadSafetensors,
      "lists 1 of the 3 files model-*-of-00003.safetensors; it leaves out model-00002-of-00003.safetensors with "
      "'b', model-00003-of-00003.safetensors with 'c'");
  std::filesystem::remove(directory_ + "/model-00003-of-00003.safetensors");
  ExpectError(Reason::kFileMissing, "it leaves out model-00002-of-00003.safetensors with 'b'; 1 is not there");
}

TEST_F(SafetensorsDirectoryTest, Index_ListsAPartOfANumberedSet_ItsAdviceHelps) {
  PutTensor("model-00001-of-00002.safetensors", "a", 5);
  PutTensor("model-00002-of-00002.safetensors", "b", 5);
  Put(kIndex, R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  const std::string next = NextActionOf(ReadSafetensorsDirectory(directory_).status());
  EXPECT_NE(next.find("remove the index"), std::string::npos) << next;
  EXPECT_NE(next.find("without \"-of-\""), std::string::npos) << next;
  std::filesystem::rename(directory_ + "/model-00001-of-00002.safetensors", directory_ + "/half.safetensors");
  Put(kIndex, R"({"weight_map":{"a":"half.safetensors"}})");
  const auto half = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_EQ(half->tensors.size(), 1u);
  std::filesystem::rename(directory_ + "/half.safetensors", directory_ + "/model-00001-of-00002.safetensors");
  std::filesystem::remove(directory_ + "/" + kIndex);
  const auto whole = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->tensors.size(), 2u);
}

TEST_F(SafetensorsDirectoryTest, Index_LeavesOutNumberedFilesWithoutTensors_IsComplete) {
  PutTensor("model-00001-of-00002.safetensors", "a", 5);
  PutTensors("model-00002-of-00002.safetensors", "{}", 0);
  PutTensor("model-00001-of-00009.safetensors", "of another save", 5);
  Put(kIndex, R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->tensors.size(), 1u);
}

TEST_F(SafetensorsDirectoryTest, Header_SaysWhatIsTied_NameIsAnAlias) {
  PutTensors("model.safetensors",
             R"({"__metadata__":{"format":"pt","out.weight":"in.weight"},)"
             R"("in.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
             1);
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->aliases, (std::vector<std::pair<std::string, std::string>>{{"out.weight", "in.weight"}}));
}

TEST_F(SafetensorsDirectoryTest, Config_IsNestedWithoutEnd_SaysNothingOfTheHead) {
  PutTensor("a.safetensors", "model.embed_tokens.weight", 5);
  const std::string levels(450'000, '[');
  Put("config.json", R"({"tie_word_embeddings": )" + levels + std::string(levels.size(), ']') + "}");
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(manifest->aliases.empty());
}

// The cache of Hugging Face holds links to files that lie elsewhere.
TEST_F(SafetensorsDirectoryTest, File_IsALink_ItsTargetIsRead) {
  PutTensor("blob", "a", 1);
  std::filesystem::create_symlink("blob", directory_ + "/model.safetensors");
  const auto manifest = ReadSafetensorsDirectory(directory_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->files[0].name, directory_ + "/blob");
}

TEST_F(SafetensorsDirectoryTest, Config_TiesTheHead_HeadIsAnAlias) {
  const auto aliases = [&] {
    const auto manifest = ReadSafetensorsDirectory(directory_);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return manifest->aliases;
  };
  PutTensor("model.safetensors", "model.embed_tokens.weight", 1);
  for (const char* untied : {"{}", "{\"tie_word_embeddings\": false}", "no JSON", "[]"}) {
    Put("config.json", untied);
    EXPECT_TRUE(aliases().empty()) << untied;
  }
  Put("config.json", "{\"tie_word_embeddings\": true}");
  ASSERT_EQ(aliases().size(), 1u);
  EXPECT_EQ(aliases()[0], std::pair(std::string("lm_head.weight"), std::string("model.embed_tokens.weight")));
  PutTensor("head.safetensors", "lm_head.weight", 1);
  EXPECT_TRUE(aliases().empty()) << "the head is there itself";
}

// A load goes by the digest whether its source is still the same.
TEST_F(SafetensorsDirectoryTest, File_IsWrittenAgain_DigestIsAnother) {
  PutTensor("model.safetensors", "a", 1);
  const auto digest = [&] { return ReadSafetensorsDirectory(directory_)->plan_digest; };
  const std::string first = digest();
  EXPECT_EQ(digest(), first);
  PutTensor("model.safetensors", "a", 2);
  EXPECT_NE(digest(), first);
}

}  // namespace
}  // namespace cairn
