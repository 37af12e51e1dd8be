#include "cli/base/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "common/process/quantity.h"

namespace cairn::cli {
namespace {

const char* Code(Colour colour) {
  switch (colour) {
    case Colour::kRed:
      return "\033[31m";
    case Colour::kGreen:
      return "\033[32m";
    case Colour::kYellow:
      return "\033[33m";
    case Colour::kDim:
      return "\033[2m";
    case Colour::kBold:
      return "\033[1m";
    case Colour::kNone:
      break;
  }
  return "";
}

// Returns the number of code points. For the names that occur, this is their width on a terminal.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string ForTerminal(std::string_view text) { return Printable(text, "\n\t"); }

std::string Coloured(std::FILE* stream, Colour colour, std::string_view text) {
  const std::string shown = ForTerminal(text);
  if (colour == Colour::kNone || !isatty(fileno(stream)) || std::getenv("NO_COLOR") != nullptr) return shown;
  return absl::StrCat(Code(colour), shown, "\033[0m");
}

void Table::Add(std::vector<std::string> row, Colour colour) {
  row.resize(header_.size());
  for (std::string& cell : row) cell = Printable(cell);
  rows_.push_back(std::move(row));
  colours_.push_back(colour);
}

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < header_.size(); ++i) {
    size_t width = Width(header_[i]);
    for (const auto& row : rows_) width = std::max(width, Width(row[i]));
    widths.push_back(width);
  }
  return widths;
}

std::string Table::Line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) const {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string fill(widths[i] - Width(cells[i]), ' ');
    const bool right = !cells[i].empty() && cells[i][0] >= '0' && cells[i][0] <= '9';
    absl::StrAppend(&line, i == 0 ? "" : "  ", right ? fill : "", cells[i], right ? "" : fill);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

void Table::Print(std::FILE* stream) const { std::fputs(For(stream).c_str(), stream); }

std::string Table::For(std::FILE* stream) const {
  const auto widths = Widths();
  std::string text = Coloured(stream, Colour::kBold, Line(header_, widths)) + "\n";
  for (size_t i = 0; i < rows_.size(); ++i) {
    absl::StrAppend(&text, Coloured(stream, colours_[i], Line(rows_[i], widths)), "\n");
  }
  return text;
}

std::string Table::ToString() const {
  const auto widths = Widths();
  std::string text = Line(header_, widths) + "\n";
  for (const auto& row : rows_) text += Line(row, widths) + "\n";
  return text;
}

std::string IndentedLines(const std::vector<std::string>& names) {
  constexpr size_t kMostShown = 10;
  const size_t shown = std::min(names.size(), kMostShown);
  std::string text;
  for (size_t i = 0; i < shown; ++i) absl::StrAppend(&text, "  ", Printable(names[i]), "\n");
  if (shown < names.size()) absl::StrAppend(&text, "  and ", names.size() - shown, " more (--format=json)\n");
  return text;
}

std::string ProgressBar(int64_t done, int64_t total) {
  constexpr int kCells = 24;
  const double part = total <= 0 ? 0 : std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(part * kCells);
  return absl::StrFormat("[%s%s] %3d%%  %s of %s", std::string(static_cast<size_t>(filled), '#'),
                         std::string(static_cast<size_t>(kCells - filled), ' '), static_cast<int>(part * 100),
                         FormatSize(done), FormatSize(total));
}

std::string ShortDuration(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 1) return absl::StrFormat("%d ms", static_cast<int>(seconds * 1000));
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = absl::ToInt64Seconds(duration);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

}  // namespace cairn::cli
