#include "cli/base/live_screen.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cairn::cli {
namespace {

// Control sequences of ECMA-48 and xterm.
constexpr char kHome[] = "\033[H";
constexpr char kClearScreen[] = "\033[2J";
constexpr char kClearLine[] = "\033[K";
constexpr char kClearBelow[] = "\033[J";
constexpr char kHideCursor[] = "\033[?25l";
constexpr char kShowCursor[] = "\033[?25h";
// A terminal that supports these two shows the text between them at once. Other terminals ignore them.
constexpr char kBeginUpdate[] = "\033[?2026h";
constexpr char kEndUpdate[] = "\033[?2026l";

// Returns the length of the control sequence at the beginning of `text`; 0 if there is none.
size_t SequenceLength(std::string_view text) {
  if (text.size() < 2 || text[0] != '\033' || text[1] != '[') return 0;
  size_t length = 2;
  while (length < text.size() && (text[length] < '@' || text[length] > '~')) ++length;
  return std::min(text.size(), length + 1);
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

ScreenSize SizeOfTerminal(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {size.ws_row, size.ws_col};
}

std::string CutLine(std::string_view line, size_t columns) {
  std::string cut;
  size_t shown = 0;
  while (!line.empty()) {
    if (const size_t sequence = SequenceLength(line); sequence > 0) {
      cut.append(line.substr(0, sequence));
      line.remove_prefix(sequence);
      continue;
    }
    size_t length = 1;
    while (length < line.size() && IsContinuation(line[length])) ++length;
    if (shown < columns) cut.append(line.substr(0, length));
    ++shown;
    line.remove_prefix(length);
  }
  return cut;
}

std::string LiveScreen::Frame(std::string_view text, ScreenSize size) {
  std::vector<std::string> lines = absl::StrSplit(std::string(text), '\n');
  if (lines.back().empty()) lines.pop_back();
  // The last line of the screen stays free, because a terminal scrolls when text is written behind its end.
  const size_t fits = size.rows > 2 ? size.rows - 1 : 1;
  if (lines.size() > fits) {
    const std::string more = absl::StrCat("... ", lines.size() - fits + 1, " more lines; a higher terminal shows them");
    lines.resize(fits - 1);
    lines.push_back(more);
  }
  std::string frame = kBeginUpdate;
  if (!begun_) absl::StrAppend(&frame, kHideCursor, kClearScreen);
  begun_ = true;
  frame += kHome;
  for (const std::string& line : lines) absl::StrAppend(&frame, CutLine(line, size.columns), kClearLine, "\r\n");
  absl::StrAppend(&frame, kClearBelow, kEndUpdate);
  return frame;
}

std::string LiveScreen::End() const { return begun_ ? kShowCursor : ""; }

}  // namespace cairn::cli
