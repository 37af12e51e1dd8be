#include "cli/web/web_site.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn::cli {
namespace {

class WebSiteTest : public testing::Test {
 protected:
  WebSiteTest()
      : site_({.token = "secret",
               .hosts = {"127.0.0.1:7430", "localhost:7430"},
               .questions = {{"job", [this](const std::string& rest) -> absl::StatusOr<nlohmann::ordered_json> {
                                asked_.push_back(rest);
                                if (!error_.ok()) return error_;
                                return nlohmann::ordered_json{{"job", rest}};
                              }}}}) {}

  static HttpRequest Get(const std::string& path) { return {"GET", path, "127.0.0.1:7430", "Bearer secret"}; }
  static std::string HeaderOf(const HttpAnswer& answer, const std::string& name) {
    for (const auto& [key, value] : answer.headers) {
      if (key == name) return value;
    }
    return "";
  }

  std::vector<std::string> asked_;
  absl::Status error_;
  WebSite site_;
};

TEST_F(WebSiteTest, Answer_ThePage_NeedsNoTokenAndHoldsNothingOfAJob) {
  for (const char* path : {"/", "/index.html", "/app.mjs", "/text.mjs", "/style.css"}) {
    HttpRequest request = Get(path);
    request.authorization = "";
    const HttpAnswer answer = site_.Answer(request);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_GT(answer.body.size(), 500U) << path;
    EXPECT_EQ(answer.body.find("secret"), std::string::npos);
  }
  EXPECT_TRUE(asked_.empty());
}

// A browser runs no module that has another type.
TEST_F(WebSiteTest, Answer_EachFile_HasItsType) {
  EXPECT_EQ(site_.Answer(Get("/")).type, "text/html; charset=utf-8");
  EXPECT_EQ(site_.Answer(Get("/app.mjs")).type, "text/javascript; charset=utf-8");
  EXPECT_EQ(site_.Answer(Get("/style.css")).type, "text/css; charset=utf-8");
  for (const char* path : {"", "app.mjs", "/text_test.mjs", "//app.mjs", "/web_site.cc"}) {
    EXPECT_EQ(site_.Answer(Get(path)).status, 404) << path;
  }
}

TEST_F(WebSiteTest, Answer_AQuestion_NeedsTheToken) {
  EXPECT_EQ(site_.Answer(Get("/api/job/llm/a")).body, R"({"job":"llm/a"})");
  for (const char* wrong : {"", "Bearer ", "Bearer secre", "Bearer secret2", "Basic secret", "secret"}) {
    HttpRequest request = Get("/api/job/llm");
    request.authorization = wrong;
    const HttpAnswer answer = site_.Answer(request);
    EXPECT_EQ(answer.status, 401) << wrong;
    EXPECT_NE(answer.body.find("BAD_TOKEN"), std::string::npos);
  }
  EXPECT_EQ(asked_, std::vector<std::string>{"llm/a"});
}

TEST_F(WebSiteTest, Answer_AnotherHost_IsRefused) {
  for (const char* host : {"evil.example", "127.0.0.1", "127.0.0.1:7431", ""}) {
    HttpRequest request = Get("/api/job/llm");
    request.host = host;
    EXPECT_EQ(site_.Answer(request).status, 421) << host;
    request.path = "/";
    EXPECT_EQ(site_.Answer(request).status, 421) << host;
  }
  HttpRequest request = Get("/");
  request.host = "LocalHost:7430";
  EXPECT_EQ(site_.Answer(request).status, 200);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(WebSiteTest, Answer_AnythingButReading_IsRefused) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "get"}) {
    HttpRequest request = Get("/api/job/llm");
    request.method = method;
    EXPECT_EQ(site_.Answer(request).status, 405) << method;
  }
  EXPECT_TRUE(asked_.empty());
  HttpRequest request = Get("/");
  request.method = "HEAD";
  EXPECT_EQ(site_.Answer(request).body, "");
}

TEST_F(WebSiteTest, Answer_Everything_ForbidsWhatThePageDoesNotNeed) {
  for (const HttpRequest& request : {Get("/"), Get("/api/job/llm"), Get("/nothing"), Get("/api/nothing")}) {
    const HttpAnswer answer = site_.Answer(request);
    const std::string policy = HeaderOf(answer, "Content-Security-Policy");
    EXPECT_EQ(policy.find("default-src 'none'"), 0U) << request.path;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_EQ(HeaderOf(answer, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(HeaderOf(answer, "Cache-Control"), "no-store");
  }
  EXPECT_EQ(site_.Answer(Get("/nothing")).status, 404);
  EXPECT_EQ(site_.Answer(Get("/api/nothing")).status, 404);
}

TEST_F(WebSiteTest, Answer_TheQuestionFails_TellsTheErrorAndItsKind) {
  error_ = MakeError(Reason::kJobNotFound, "no job");
  const HttpAnswer answer = site_.Answer(Get("/api/job/x"));
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(nlohmann::json::parse(answer.body)["error"]["reason"], "JOB_NOT_FOUND");
  EXPECT_EQ(nlohmann::json::parse(answer.body)["error"]["next"], NextActionOf(error_));
  error_ = MakeError(Reason::kCoordinatorUnreachable, "gone");
  EXPECT_EQ(site_.Answer(Get("/api/job/x")).status, 503);
  error_ = MakeError(Reason::kBadJobName, "no name");
  EXPECT_EQ(site_.Answer(Get("/api/job/<script>")).status, 400);
}

TEST_F(WebSiteTest, Answer_NoUtf8_IsStillJson) {
  const HttpAnswer answer = site_.Answer(Get("/api/job/\xff"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(nlohmann::json::accept(answer.body)) << answer.body;
}

}  // namespace
}  // namespace cairn::cli
