#include "corpus/tokenizer/tokenizer_path.h"

#include <gtest/gtest.h>

#include <string>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

TEST(TokenizerPathTest, CheckIsNoHubName_ANameOfTheHub_SaysHowToGetItsFiles) {
  for (const std::string name : {"Qwen/Qwen2.5-7B", "gpt2", "meta-llama/Llama_3.1", "none/vocab"}) {
    const absl::Status status = CheckIsNoHubName(name);
    EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable)) << name << ": " << status;
    EXPECT_NE(MetadataOf(status).at("next").find("`hf download " + name + " "), std::string::npos) << status;
  }
  EXPECT_NE(MetadataOf(CheckIsNoHubName("Qwen/Qwen2.5-7B")).at("next").find("give Qwen2.5-7B as"), std::string::npos);
}

TEST(TokenizerPathTest, CheckIsNoHubName_AnythingElse_IsOk) {
  const std::string directory = testing::TempDir();
  for (const std::string path : {"", "/none/tokenizer", "./none", "../none", "a/b/none", "none.json", "none/vocab.txt",
                                 "s3://bucket/none", "none/", "/none", "tokenizer.model", directory.c_str()}) {
    EXPECT_TRUE(CheckIsNoHubName(path).ok()) << path;
  }
}

}  // namespace
}  // namespace cairn::corpus
