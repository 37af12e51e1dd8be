#include "common/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "common/base/version.h"

namespace cairn {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator file("/proc/self/fd", error);
  double files = 0;
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) ++files;
  return error ? 0 : files;
}

}  // namespace

prometheus::MetricFamily EmptyFamily(const std::string& name, const std::string& help, prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void AddMeasured(prometheus::MetricFamily& family, std::vector<prometheus::ClientMetric::Label> labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  (family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
}

prometheus::MetricFamily MeasuredGauge(const std::string& name, const std::string& help, double value) {
  prometheus::MetricFamily family = EmptyFamily(name, help, prometheus::MetricType::Gauge);
  AddMeasured(family, {}, value);
  return family;
}

prometheus::MetricFamily MeasuredCounter(const std::string& name, const std::string& help, double value) {
  prometheus::MetricFamily family = EmptyFamily(name, help, prometheus::MetricType::Counter);
  AddMeasured(family, {}, value);
  return family;
}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  families.push_back(MeasuredCounter("process_cpu_seconds_total", "Processor time that the process has used.",
                                     Seconds(usage.ru_utime) + Seconds(usage.ru_stime)));
  uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  families.push_back(MeasuredGauge("process_resident_memory_bytes", "Memory of the process, including shared memory.",
                                   static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE))));
  families.push_back(MeasuredGauge("process_open_fds", "Files and sockets that are open.", OpenFiles()));
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  families.push_back(
      MeasuredGauge("process_max_fds", "Limit of open files and sockets.", static_cast<double>(limit.rlim_cur)));
  prometheus::MetricFamily build =
      EmptyFamily("cairn_build_info", "Always 1; the label says which version runs.", prometheus::MetricType::Gauge);
  AddMeasured(build, {{"version", std::string(kVersion)}}, 1);
  families.push_back(std::move(build));
  return families;
}

}  // namespace cairn
