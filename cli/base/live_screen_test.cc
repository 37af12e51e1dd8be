#include "cli/base/live_screen.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"

namespace cairn::cli {
namespace {

// A terminal that understands what LiveScreen sends, and nothing else.
class Terminal {
 public:
  void Take(std::string_view bytes) {
    while (!bytes.empty()) {
      if (bytes.substr(0, 2) == "\033[") {
        const size_t end = bytes.find_first_of("HJKmhl", 2);
        ASSERT_NE(end, std::string_view::npos);
        Control(bytes.substr(2, end - 2), bytes[end]);
        bytes.remove_prefix(end + 1);
      } else {
        Put(bytes[0]);
        bytes.remove_prefix(1);
      }
    }
  }
  std::string Text() const {
    std::string text;
    for (const auto& [row, line] : lines_) absl::StrAppend(&text, line, "\n");
    return text;
  }
  bool cursor() const { return cursor_; }
  int screens_cleared() const { return screens_cleared_; }

 private:
  void Control(std::string_view parameters, char what) {
    if (what == 'H') row_ = column_ = 0;
    if (what == 'K') lines_[row_].resize(std::min(column_, lines_[row_].size()));
    if (what == 'J' && parameters == "2") {
      lines_.clear();
      ++screens_cleared_;
    } else if (what == 'J') {
      lines_.erase(lines_.lower_bound(row_), lines_.end());
    }
    if (parameters == "?25") cursor_ = what == 'h';
  }
  void Put(char c) {
    if (c == '\r') {
      column_ = 0;
    } else if (c == '\n') {
      ++row_;
    } else {
      std::string& line = lines_[row_];
      line.resize(std::max(line.size(), column_ + 1), ' ');
      line[column_++] = c;
    }
  }

  std::map<size_t, std::string> lines_;
  size_t row_ = 0, column_ = 0;
  bool cursor_ = true;
  int screens_cleared_ = 0;
};

TEST(LiveScreenTest, Frame_TextChanges_ShowsOnlyTheNewTextWithoutClearingTheScreen) {
  LiveScreen screen;
  Terminal terminal;
  terminal.Take(screen.Frame("a long first line\nsecond\nthird\n", {24, 80}));
  EXPECT_EQ(terminal.Text(), "a long first line\nsecond\nthird\n");
  EXPECT_FALSE(terminal.cursor());
  terminal.Take(screen.Frame("short\nsecond line\n", {24, 80}));
  EXPECT_EQ(terminal.Text(), "short\nsecond line\n");
  EXPECT_EQ(terminal.screens_cleared(), 1) << "a terminal that is cleared before each frame flickers";
  terminal.Take(screen.End());
  EXPECT_TRUE(terminal.cursor());
}

TEST(LiveScreenTest, Frame_MoreThanFits_SaysHowMuchIsLeftOut) {
  LiveScreen screen;
  Terminal terminal;
  terminal.Take(screen.Frame("1\n2\n3\n4\n5\n6\n7\n", {5, 12}));
  EXPECT_EQ(terminal.Text(), "1\n2\n3\n... 4 more l\n");
}

TEST(LiveScreenTest, CutLine_WithColours_CountsOnlyWhatIsSeen) {
  EXPECT_EQ(CutLine("\033[31mabcdef\033[0m", 3), "\033[31mabc\033[0m");
  EXPECT_EQ(CutLine("\xC3\xA4\xC3\xB6\xC3\xBC", 2), "\xC3\xA4\xC3\xB6");
  EXPECT_EQ(CutLine("", 3), "");
}

TEST(LiveScreenTest, End_NothingWasShown_SendsNothing) { EXPECT_EQ(LiveScreen().End(), ""); }

}  // namespace
}  // namespace cairn::cli
