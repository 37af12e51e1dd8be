#include "common/metrics/metrics_server.h"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <atomic>
#include <latch>
#include <thread>
#include <utility>

#include "common/metrics/testing/scrape.h"
#include "common/rpc/listening_sockets.h"

namespace cairn {
namespace {

TEST(MetricsServerTest, Scrape_OfARegistry_HasItsMetricsAndThoseOfTheProcess) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("demo_total").Help("A test.").Register(*registry).Add({{"job", "a"}}).Increment(3);
  auto listening = ListenAt("--metrics-listen", "127.0.0.1:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  const auto server = MetricsServer::Start(std::move(listening->sockets), {registry});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string text = Scrape(listening->address);
  EXPECT_NE(text.find("demo_total{job=\"a\"} 3"), std::string::npos) << text;
  for (const char* name : {"process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds ",
                           "cairn_build_info{version="}) {
    EXPECT_NE(text.find(std::string("\n") + name), std::string::npos) << name << " in " << text;
  }
  EXPECT_NE(Scrape(listening->address, "/serving").find("404"), std::string::npos) << "nobody has set it";
}

TEST(MetricsServerTest, Scrape_WithOtherProcesses_HasTheirSeriesWithTheirLabel) {
  auto listening = ListenAt("--metrics-listen", "127.0.0.1:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  std::atomic<bool> serves = false;
  MetricsOptions options;
  options.others = [] {
    return std::vector<MetricsText>{{"rank=\"9\"", "# TYPE process_open_fds gauge\nprocess_open_fds 4711\n"}};
  };
  options.serving = [&serves] { return serves.load(); };
  const auto server = MetricsServer::Start(std::move(listening->sockets), {}, options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string text = Scrape(listening->address);
  EXPECT_NE(text.find("\nprocess_open_fds{rank=\"9\"} 4711\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("# TYPE process_open_fds"), text.rfind("# TYPE process_open_fds")) << "a metric has one type";
  EXPECT_NE(Scrape(listening->address, "/serving").find(" 503 "), std::string::npos);
  serves = true;
  EXPECT_NE(Scrape(listening->address, "/serving").find(" 200 "), std::string::npos);
}

TEST(MetricsServerTest, Scrape_SeveralWaitForProcessesThatDoNotAnswer_ServingIsAnsweredAndThenAllOfThem) {
  constexpr int kAsking = 3, kWaiting = kAsking + 2;
  auto listening = ListenAt("--metrics-listen", "127.0.0.1:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  std::latch asked(kAsking), answered(1);
  std::atomic<int> asks = 0;
  MetricsOptions options;
  options.others = [&] {
    if (++asks <= kAsking) asked.count_down();
    answered.wait();
    return std::vector<MetricsText>();
  };
  options.serving = [] { return true; };
  const auto server = MetricsServer::Start(std::move(listening->sockets), {}, options);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::thread> scrapes;
  for (int i = 0; i < kWaiting; ++i) {
    scrapes.emplace_back([&] { EXPECT_NE(Scrape(listening->address).find("process_open_fds"), std::string::npos); });
  }
  asked.wait();
  EXPECT_NE(Scrape(listening->address, "/serving").find(" 200 "), std::string::npos);
  answered.count_down();
  for (std::thread& scrape : scrapes) scrape.join();
}

}  // namespace
}  // namespace cairn
