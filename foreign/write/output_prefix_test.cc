#include "foreign/write/output_prefix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

bool NoName(std::string_view) { return false; }

class OutputPrefixTest : public testing::Test {
 protected:
  OutputPrefixTest() : top_(absl::StrCat(testing::TempDir(), "/prefix-", RandomToken(6))) {
    std::filesystem::create_directories(top_);
    storage_ = *PosixStorage::Open(top_, /*create=*/false);
  }
  ~OutputPrefixTest() override { std::filesystem::remove_all(top_); }

  void Put(const std::string& path, const std::string& bytes) const {
    const std::filesystem::path whole = top_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, std::ios::binary) << bytes;
  }
  std::string Get(const std::string& path) const {
    std::ifstream file(top_ + "/" + path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::vector<std::string> Names(const std::string& directory = "model") const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(top_ + "/" + directory, error)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::unique_ptr<OutputPrefix> Output(const std::string& directory = "model") const {
    return std::make_unique<OutputPrefix>(storage_, directory);
  }
  // Writes a large file, in pieces.
  static absl::Status Write(OutputPrefix& output, const std::string& name, const std::string& bytes) {
    const auto file = output.Begin(name, bytes.size());
    if (!file.ok()) return file.status();
    AlignedBuffer piece(kOutputPieceBytes);
    for (uint64_t at = 0; at < bytes.size(); at += kOutputPieceBytes) {
      const uint64_t size = std::min(kOutputPieceBytes, bytes.size() - at);
      std::memset(piece.data(), 'x', kOutputPieceBytes);
      std::memcpy(piece.data(), bytes.data() + at, size);
      if (const absl::Status written = (*file)->Write(at, {piece.data(), size}); !written.ok()) return written;
    }
    return (*file)->Finish(0);
  }

  const std::string top_;
  std::shared_ptr<Storage> storage_;
};

TEST_F(OutputPrefixTest, Publish_FilesOfAnySize_HaveTheirBytesAndOnlyThenTheirNames) {
  std::string large(kOutputPieceBytes + 777, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 >> 3);
  Put("like/tokenizer.json", large);
  Put("like/config.json", "{}");
  {
    const auto output = Output();
    ASSERT_TRUE(output->Open(NoName).ok());
    EXPECT_FALSE(*output->TakeFinished("a.safetensors", 4, nullptr));
    ASSERT_TRUE(Write(*output, "a.safetensors", large).ok());
    ASSERT_TRUE(Write(*output, "b.safetensors", "1234").ok());
    ASSERT_TRUE(output->Copy("tokenizer.json", top_ + "/like/tokenizer.json").ok());
    ASSERT_TRUE(output->Copy("config.json", top_ + "/like/config.json").ok());
    EXPECT_FALSE(output->Copy("other", top_ + "/like/none").ok());
    ASSERT_TRUE(output->Add("index", "{1}").ok());
    for (const std::string& name : Names()) EXPECT_TRUE(name.ends_with(".partial")) << name;
    const absl::Status published = output->Publish();
    ASSERT_TRUE(published.ok()) << published;
  }
  EXPECT_EQ(Names(),
            (std::vector<std::string>{"a.safetensors", "b.safetensors", "config.json", "index", "tokenizer.json"}));
  EXPECT_TRUE(Get("model/a.safetensors") == large);
  EXPECT_TRUE(Get("model/tokenizer.json") == large);
  EXPECT_EQ(Get("model/b.safetensors") + Get("model/config.json") + Get("model/index"), "1234{}{1}");
}

TEST_F(OutputPrefixTest, Object_GoneWithoutPublish_LeavesNothing) {
  Put("model/README.md", "mine");
  {
    const auto output = Output();
    ASSERT_TRUE(output->Open(NoName).ok());
    ASSERT_TRUE(Write(*output, "a.safetensors", "1234").ok());
    ASSERT_TRUE(output->Begin("b.safetensors", 4).ok());
    ASSERT_TRUE(output->Add("index", "{}").ok());
    const absl::Status full = MakeError(Reason::kNoSpace, "full");
    EXPECT_EQ(output->Abandon(full), full);
  }
  EXPECT_EQ(Names(), std::vector<std::string>{"README.md"});
}

TEST_F(OutputPrefixTest, Open_CheckpointOfAnyLibraryThere_IsRefusedByName) {
  for (const std::string name : {"model.safetensors", "__0_0.distcp", ".metadata", "config.json"}) {
    Put("model/" + name, "of another");
    const absl::Status status = Output()->Open([](std::string_view each) { return each == "config.json"; });
    EXPECT_EQ(ReasonOf(status), Reason::kOutputExists) << name;
    EXPECT_NE(status.message().find(name), absl::string_view::npos) << status;
    EXPECT_EQ(Get("model/" + name), "of another");
    std::filesystem::remove(top_ + "/model/" + name);
  }
  EXPECT_TRUE(Output()->Open(NoName).ok());
}

TEST_F(OutputPrefixTest, Open_BelowARoot_IsRefused) {
  Put("roots/one/.cairn/epochs/1", "");
  for (const std::string directory : {"roots/one", "roots/one/model/deep"}) {
    const absl::Status status = Output(directory)->Open(NoName);
    EXPECT_EQ(ReasonOf(status), Reason::kBadRequest) << status;
    EXPECT_NE(status.message().find("/roots/one, a root"), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(Output("roots/two")->Open(NoName).ok());
  Put(".cairn/epochs/1", "");
  EXPECT_EQ(ReasonOf(Output("roots/three")->Open(NoName)), Reason::kBadRequest);
}

TEST_F(OutputPrefixTest, Publish_NameTakenMeanwhile_ReplacesNothingAndLeavesNothing) {
  for (const std::string taken : {"a.safetensors", "index"}) {
    {
      const auto output = Output();
      ASSERT_TRUE(output->Open(NoName).ok());
      ASSERT_TRUE(Write(*output, "a.safetensors", "1234").ok());
      ASSERT_TRUE(output->Add("config.json", "{}").ok());
      ASSERT_TRUE(output->Add("index", "{}").ok());
      Put("model/" + taken, "of another");
      EXPECT_EQ(ReasonOf(output->Publish()), Reason::kOutputExists);
    }
    EXPECT_EQ(Names(), std::vector<std::string>{taken});
    EXPECT_EQ(Get("model/" + taken), "of another");
    std::filesystem::remove(top_ + "/model/" + taken);
  }
}

// Another program may be faster than the look at what stands there.
TEST_F(OutputPrefixTest, Publish_FailsInItsMiddle_RemovesWhatHasItsNameAlready) {
  {
    const auto output = Output();
    ASSERT_TRUE(output->Open(NoName).ok());
    ASSERT_TRUE(Write(*output, "a.safetensors", "1234").ok());
    ASSERT_TRUE(output->Add("config.json", "{}").ok());
    ASSERT_TRUE(Write(*output, "b.safetensors", "1234").ok());
    std::filesystem::remove(top_ + "/model/b.partial");  // so that it cannot be finished
    EXPECT_FALSE(output->Publish().ok());
  }
  EXPECT_TRUE(Names().empty());
}

TEST_F(OutputPrefixTest, Begin_MoreThanAStoreTakes_SaysTheSize) {
  const auto output = Output();
  ASSERT_TRUE(output->Open(NoName).ok());
  const absl::Status refused = output->Begin("a.safetensors", uint64_t{1} << 40).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kBadRequest) << refused;
  EXPECT_NE(NextActionOf(refused).find("--max-shard-size"), std::string::npos);
}

}  // namespace
}  // namespace cairn
