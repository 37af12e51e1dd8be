#include "common/base/shell_word.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

namespace cairn {
namespace {

// What a real shell makes of the word.
std::string AsTheShellReads(const std::string& word) {
  FILE* shell = popen(("printf %s " + word).c_str(), "r");
  std::string text;
  std::array<char, 256> buffer;
  for (size_t got = 1; got > 0;) {
    got = fread(buffer.data(), 1, buffer.size(), shell);
    text.append(buffer.data(), got);
  }
  pclose(shell);
  return text;
}

TEST(ShellWordTest, ForShell_EachValue_IsReadBackAsItIs) {
  for (const std::string value :
       {"/checkpoints", "", "/my checkpoints", "it's", "$HOME/`x`", "a;b&c", "\"", "~", "*"}) {
    EXPECT_EQ(AsTheShellReads(ForShell(value)), value);
  }
}

TEST(ShellWordTest, ForShell_APlainPath_StaysAsItIs) { EXPECT_EQ(ForShell("/data/ckpt-1.5"), "/data/ckpt-1.5"); }

}  // namespace
}  // namespace cairn
