#include "benchmarks/control_plane/report.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn {
namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace

void Report::Add(const std::string& name, double value, const std::string& text) {
  const std::string shown = absl::StrFormat("%.6g", value);
  lines_.push_back({name, shown, shown, text});
}

void Report::Add(const std::string& name, std::string_view value, const std::string& text) {
  lines_.push_back({name, Quoted(value), std::string(value), text});
}

void Report::Add(const std::string& name, absl::Duration value, const std::string& text) {
  Add(name, absl::ToDoubleSeconds(value), text);
}

void Report::Print() const {
  std::fprintf(stderr, "%s\n", title_.c_str());
  std::string json;
  for (const Line& line : lines_) {
    std::fprintf(stderr, "  %-28s %14s  %s\n", line.name.c_str(), line.shown.c_str(), line.text.c_str());
    absl::StrAppend(&json, json.empty() ? "" : ", ", Quoted(line.name), ": ", line.json);
  }
  std::printf("{%s}\n", json.c_str());
  std::fflush(stdout);
}

double QuantileOf(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = std::min(values.size() - 1, static_cast<size_t>(part * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double MedianOf(std::vector<double> values) { return QuantileOf(std::move(values), 0.5); }

}  // namespace cairn
