#include "cli/base/text_input.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn::cli {
namespace {

TEST(TextInputTest, ReadTextInput_FileUpToTheLimit_IsReadWhole) {
  const std::string path = std::string(::testing::TempDir()) + "/input-" + RandomToken(6);
  for (size_t size : {size_t{0}, size_t{1}, size_t{65536}, size_t{300001}}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 7 % 251);
    std::ofstream(path, std::ios::binary) << content;
    const auto whole = ReadTextInput(path);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(*whole, content);
    EXPECT_TRUE(ReadTextInput(path, size).ok());
    if (size > 0) {
      EXPECT_TRUE(HasReason(ReadTextInput(path, size - 1).status(), Reason::kBadRequest)) << size;
    }
  }
  std::remove(path.c_str());
}

// Such a file does not say its size.
TEST(TextInputTest, ReadTextInput_EndlessInput_IsRefusedAtTheLimit) {
  EXPECT_TRUE(HasReason(ReadTextInput("/dev/zero", 100'000).status(), Reason::kBadRequest));
}

TEST(TextInputTest, ReadTextInput_WhatCannotBeRead_IsNamed) {
  const absl::Status missing = ReadTextInput("/no/such/file").status();
  EXPECT_TRUE(HasReason(missing, Reason::kInputUnreadable));
  EXPECT_EQ(MetadataOf(missing)["file"], "/no/such/file");
  EXPECT_TRUE(HasReason(ReadTextInput("/").status(), Reason::kInputUnreadable));
}

}  // namespace
}  // namespace cairn::cli
