// Redraws text on a terminal without flicker: each frame overwrites the previous one without clearing it.
#ifndef CAIRN_CLI_BASE_LIVE_SCREEN_H_
#define CAIRN_CLI_BASE_LIVE_SCREEN_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn::cli {

// The size of a terminal in characters.
struct ScreenSize {
  size_t rows = 24;
  size_t columns = 80;
};

// Returns the current size of this terminal; 24 rows of 80 columns if it does not tell.
ScreenSize SizeOfTerminal(int fd);

// Makes the bytes that a program sends to the terminal. Not thread-safe.
class LiveScreen {
 public:
  // Returns the bytes that make the terminal show `text`, which has lines and may have colours. Lines that are too long
  // are cut. If there are too many lines, the last shown line says how many are missing.
  std::string Frame(std::string_view text, ScreenSize size);
  // Returns the bytes to send at the end: they show the cursor again, below the last frame.
  std::string End() const;

 private:
  bool begun_ = false;
};

// Returns the first `columns` characters of a line. Escape sequences for colours are kept and do not count.
std::string CutLine(std::string_view line, size_t columns);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_LIVE_SCREEN_H_
