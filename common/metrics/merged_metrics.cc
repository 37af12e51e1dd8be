#include "common/metrics/merged_metrics.h"

#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

struct Metric {
  size_t told_by = 0;  // the number of the text that has given the head
  std::string head;    // type and help
  std::string series;
};

// Returns the name of the metric that a line "# HELP NAME ..." or "# TYPE NAME ..." is about; else an empty one.
absl::string_view NameIn(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
  const bool head = words.size() > 2 && words[0] == "#" && (words[1] == "HELP" || words[1] == "TYPE");
  return head ? words[2] : absl::string_view();
}

// Adds a label to a line `name{a="b"} 1` or `name 1`. A name has neither '{' nor a blank.
std::string Labelled(absl::string_view line, const std::string& label) {
  const size_t end = line.find_first_of("{ ");
  if (label.empty() || end == absl::string_view::npos) return absl::StrCat(line, "\n");
  const absl::string_view name = line.substr(0, end), rest = line.substr(end);
  if (rest[0] == ' ') return absl::StrCat(name, "{", label, "}", rest, "\n");
  return absl::StrCat(name, "{", label, rest[1] == '}' ? "" : ",", rest.substr(1), "\n");
}

}  // namespace

std::string MergedMetrics(const std::vector<MetricsText>& texts) {
  std::vector<Metric> metrics;
  absl::flat_hash_map<std::string, size_t> numbers;
  for (size_t number = 0; number < texts.size(); ++number) {
    Metric* metric = nullptr;
    for (const absl::string_view line : absl::StrSplit(texts[number].text, '\n', absl::SkipEmpty())) {
      if (line[0] != '#') {
        if (metric != nullptr) absl::StrAppend(&metric->series, Labelled(line, texts[number].label));
        continue;
      }
      const absl::string_view name = NameIn(line);
      if (name.empty()) continue;
      const auto [found, is_new] = numbers.try_emplace(name, metrics.size());
      if (is_new) metrics.push_back({.told_by = number, .head = "", .series = ""});
      metric = &metrics[found->second];
      if (metric->told_by == number) absl::StrAppend(&metric->head, line, "\n");
    }
  }
  std::string all;
  for (const Metric& metric : metrics) absl::StrAppend(&all, metric.head, metric.series);
  return all;
}

}  // namespace cairn
