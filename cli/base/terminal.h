// Formats text for people: tables, colours, progress bars.
#ifndef CAIRN_CLI_BASE_TERMINAL_H_
#define CAIRN_CLI_BASE_TERMINAL_H_

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace cairn::cli {

// Makes untrusted text safe for a terminal: a character that is not printable (common/base/printable.h) becomes "\xNN".
// Line breaks and tabs stay. Table and Coloured call this themselves.
std::string ForTerminal(std::string_view text);

enum class Colour { kNone, kRed, kGreen, kYellow, kDim, kBold };

// Returns ForTerminal(text), in a colour if `stream` is a terminal and NO_COLOR is not set.
std::string Coloured(std::FILE* stream, Colour colour, std::string_view text);

// A table of text. A column is as wide as its widest cell; cells that begin with a digit are aligned to the right. Each
// row may have a colour. A character of a cell that is not printable, also a line break, becomes "\xNN".
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}

  void Add(std::vector<std::string> row, Colour colour = Colour::kNone);
  void Print(std::FILE* stream) const;
  // Returns the text that Print would print to `stream`.
  std::string For(std::FILE* stream) const;
  // Returns the table without colours, for tests and logs.
  std::string ToString() const;

 private:
  std::string Line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) const;
  std::vector<size_t> Widths() const;

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Colour> colours_;
};

// Returns the names, one per line and indented, for an answer that has all of them in JSON. Of more than ten, only the
// first ten are there, and then how many more there are. A character that is not printable becomes "\xNN".
std::string IndentedLines(const std::vector<std::string>& names);

// Returns for example "[#####     ]  50%  1.00 GiB of 2.00 GiB".
std::string ProgressBar(int64_t done, int64_t total);
// Returns for example "3.2 s", "4m10s" or "12 ms".
std::string ShortDuration(absl::Duration duration);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_TERMINAL_H_
