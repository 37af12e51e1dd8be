// Tells what a scenario found, as a table for people on standard error and one line of JSON on standard output.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_REPORT_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace cairn {

class Report {
 public:
  explicit Report(std::string title) : title_(std::move(title)) {}

  // A name is that of the JSON, with its unit: "cpu_s". `text` is for people.
  void Add(const std::string& name, double value, const std::string& text);
  void Add(const std::string& name, std::string_view value, const std::string& text);
  // Adds a time in seconds.
  void Add(const std::string& name, absl::Duration value, const std::string& text);
  void Print() const;

 private:
  struct Line {
    std::string name;
    std::string json;
    std::string shown;
    std::string text;
  };
  std::string title_;
  std::vector<Line> lines_;
};

double MedianOf(std::vector<double> values);
// `part` of 1; the largest for 1. 0 if there are none.
double QuantileOf(std::vector<double> values, double part);

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_REPORT_H_
