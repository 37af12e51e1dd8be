#include "common/metrics/metrics_server.h"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include "common/metrics/testing/scrape.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(MetricsServerTest, Scrape_OfARegistry_HasItsMetricsAndThoseOfTheProcess) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("demo_total").Help("A test.").Register(*registry).Add({{"job", "a"}}).Increment(3);
  const auto server = MetricsServer::Start("127.0.0.1:0", {registry});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string text = Scrape((*server)->address());
  EXPECT_NE(text.find("demo_total{job=\"a\"} 3"), std::string::npos) << text;
  for (const char* name : {"process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds ",
                           "cairn_build_info{version="}) {
    EXPECT_NE(text.find(std::string("\n") + name), std::string::npos) << name << " in " << text;
  }
}

TEST(MetricsServerTest, Start_PortIsTaken_SaysSo) {
  const auto first = MetricsServer::Start("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = MetricsServer::Start((*first)->address(), {});
  EXPECT_TRUE(HasReason(second.status(), Reason::kBadRequest)) << second.status();
}

}  // namespace
}  // namespace cairn
