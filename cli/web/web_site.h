// Makes the answers of `cairn serve` to a browser. It uses no socket, so tests call it directly.
#ifndef CAIRN_CLI_WEB_WEB_SITE_H_
#define CAIRN_CLI_WEB_WEB_SITE_H_

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/http_server.h"

namespace cairn::cli {

// Thread-safe if its questions are. It changes nothing.
class WebSite {
 public:
  // Answers a request with JSON. `rest` is the part of the path behind the question's name: "llm" in "/api/job/llm".
  using Question = std::function<absl::StatusOr<nlohmann::ordered_json>(const std::string& rest)>;
  struct Options {
    // The Authorization header of a request for JSON must be "Bearer <token>".
    std::string token;
    // The allowed Host headers. Other hosts are refused because of DNS rebinding: a page of another site, whose name
    // resolves to this address, could otherwise send requests in the name of its visitor.
    std::vector<std::string> hosts;
    // The questions by name: "job" answers "/api/job/...".
    std::map<std::string, Question> questions;
  };
  explicit WebSite(Options options) : options_(std::move(options)) {}

  HttpAnswer Answer(const HttpRequest& request) const;

 private:
  bool IsKnownHost(const std::string& host) const;
  HttpAnswer Ask(const std::string& path) const;

  const Options options_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_WEB_WEB_SITE_H_
