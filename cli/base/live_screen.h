// Redraws text on a terminal without flicker: what has not changed is written over by itself, and nothing is cleared
// before it is drawn.
#ifndef CAIRN_CLI_BASE_LIVE_SCREEN_H_
#define CAIRN_CLI_BASE_LIVE_SCREEN_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn::cli {

// Says how many characters fit.
struct ScreenSize {
  size_t rows = 24;
  size_t columns = 80;
};

// The screen of this terminal now; 24 lines of 80 if it does not say.
ScreenSize SizeOfTerminal(int fd);

// Puts together what a program sends to the terminal. Not thread-safe.
class LiveScreen {
 public:
  // Returns what to send so that the terminal shows `text`: lines, perhaps with colours. Lines that are too long are
  // cut. If there are too many, the last one that fits says how many are left out.
  std::string Frame(std::string_view text, ScreenSize size);
  // Returns what to send at the end: the cursor is back, below what was shown last.
  std::string End() const;

 private:
  bool begun_ = false;
};

// Returns the first `columns` characters of a line. Sequences for colours take no room, and are all kept.
std::string CutLine(std::string_view line, size_t columns);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_LIVE_SCREEN_H_
