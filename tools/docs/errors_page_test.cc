#include "tools/docs/errors_page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace cairn {
namespace {

TEST(ErrorsPageTest, ErrorsPage_KeptDocument_IsThatOfTheTable) {
  std::ifstream file("docs/errors.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(page, RenderErrorsPage()) << "run: bazel run //tools/docs:write_errors_page > docs/errors.md";
}

}  // namespace
}  // namespace cairn
